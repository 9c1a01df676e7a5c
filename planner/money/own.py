"""The price of an owned GPU-hour: purchase, capital recovery, running costs, cash flow, break-even against rent."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from planner.catalog.purchase import PurchasePrice, purchase_prices

HOURS_PER_YEAR = 8760.0
SERVER_KINDS = ("server", "server (per-GPU share)", "rack")
SERVER_OVER_PART = {"A100": "PP099", "V100": "PP100", "P100": "PP101"}  # others: PP102
RESALE_ROWS = ("PP111", "PP112", "PP113", "PP114", "PP115")  # H100, after 1 to 5 years


def capital_recovery_factor(*, interest_frac: float, years: float) -> float:
    """Yearly payment per dollar borrowed: i (1+i)^n / ((1+i)^n - 1); 1/n without interest."""
    if interest_frac < 1e-12:
        return 1 / years
    return interest_frac / -math.expm1(-years * math.log1p(interest_frac))


def capital_usd_per_year(*, price_usd: float, residual_usd: float, interest_frac: float, years: float) -> float:
    """Level yearly cost of holding an asset: CRF (C - S / (1+i)^n)."""
    factor = capital_recovery_factor(interest_frac=interest_frac, years=years)
    later: float = (1 + interest_frac) ** years
    return factor * (price_usd - residual_usd / later)


def resale_frac(years: float) -> float:
    """Resale value over price: straight lines through new and the resale rows of the catalogue; zero from year 6 on."""
    by_id = {p.id: p for p in purchase_prices()}
    curve = [1.0, *(float(by_id[row].ratio or 0.0) for row in RESALE_ROWS), 0.0]
    if years >= len(curve) - 1:
        return 0.0
    low = math.floor(years)
    return curve[low] + (years - low) * (curve[low + 1] - curve[low])


@dataclass(frozen=True, slots=True)
class ServerPrice:
    """A GPU's share of a server, with the spread between offers (one standard deviation of the logarithm)."""

    usd_per_gpu: float
    sigma: float
    label: str
    source: str
    date: str | None


def _month(price: PurchasePrice) -> int:
    text = str(price.date)
    return int(text[:4]) * 12 + int(text[5:7] or 6)


def robust_sigma(values: Sequence[float]) -> float:
    """Standard deviation of the logarithm from the quartiles (their distance / 1.349); 0 for fewer than four values."""
    if len(values) < 4:
        return 0.0
    low, _, high = statistics.quantiles([math.log(v) for v in values], n=4, method="inclusive")
    return (high - low) / 1.349


def server_price(*, gpu: str) -> ServerPrice | None:
    """Median of the server offers within two years of the newest; else a bare part x Epoch's server factor.

    Returns None where the catalogue prices neither.
    """
    rows = [p for p in purchase_prices() if p.gpu == gpu and p.usd_per_gpu and p.date]
    servers = [p for p in rows if p.kind in SERVER_KINDS]
    parts = [p for p in rows if p.kind == "single accelerator"]
    by_id = {p.id: p for p in purchase_prices()}
    factor = float(by_id[SERVER_OVER_PART.get(gpu.split("-", maxsplit=1)[0], "PP102")].ratio or 1.0)
    scale, pool = (1.0, servers) if servers else (factor, parts)
    if not pool:
        return None
    newest = max(_month(p) for p in pool)
    pool = sorted((p for p in pool if _month(p) > newest - 24), key=lambda p: p.usd_per_gpu or 0.0)
    prices = [scale * float(p.usd_per_gpu or 0.0) for p in pool]
    ids = ", ".join(p.id for p in pool)
    text = f"median of {len(pool)} server offers ({ids})" if servers else f"bare part x {factor:g} ({ids})"
    newest_row = max(pool, key=_month)
    return ServerPrice(
        usd_per_gpu=statistics.median(prices),
        sigma=robust_sigma(prices),
        label="published" if servers else "assumed",
        source=f"{text}; newest {newest_row.source}",
        date=newest_row.date,
    )


@dataclass(frozen=True, slots=True)
class Asset:
    """Something bought.

    Attributes:
        bucket: bucket of the bill that it belongs to.
        residual_usd: what it is sold for after `years`.
        maintenance_frac: yearly upkeep over its price.
    """

    bucket: str
    name: str
    price_usd: float
    residual_usd: float
    years: float
    maintenance_frac: float

    def usd_per_year(self, *, interest_frac: float) -> float:
        """Level yearly cost with maintenance."""
        capital = capital_usd_per_year(
            price_usd=self.price_usd, residual_usd=self.residual_usd, interest_frac=interest_frac, years=self.years
        )
        return capital + self.maintenance_frac * self.price_usd


@dataclass(frozen=True, slots=True)
class CashFlow:
    """Money out (positive) at the end of each year, year 0 first; residuals come back in the last.

    Attributes:
        npv_usd: present value of all costs at the stated interest.
        usd_per_year: the level yearly cost with that present value.
    """

    usd: tuple[float, ...]
    npv_usd: float
    usd_per_year: float


def cash_flow(*, assets: Sequence[Asset], running_usd_per_year: float, interest_frac: float, years: float) -> CashFlow:
    """Costs year by year over `years` (rounded up); an asset that outlives them is credited straight-line at the end.

    Assets with a shorter life are bought again.
    """
    horizon = math.ceil(years)
    flow = [0.0] * (horizon + 1)
    for asset in assets:
        start = 0.0
        while start < horizon - 1e-9:
            flow[math.floor(start)] += asset.price_usd
            end = start + asset.years
            if end <= horizon + 1e-9:
                flow[min(horizon, math.ceil(end - 1e-9))] -= asset.residual_usd
            else:
                left = (end - horizon) / asset.years
                flow[horizon] -= asset.residual_usd + left * (asset.price_usd - asset.residual_usd)
            start = end
    upkeep = sum(a.maintenance_frac * a.price_usd for a in assets)
    for year in range(1, horizon + 1):
        flow[year] += running_usd_per_year + upkeep
    npv = sum(v / (1 + interest_frac) ** t for t, v in enumerate(flow))
    return CashFlow(tuple(flow), npv, npv * capital_recovery_factor(interest_frac=interest_frac, years=horizon))


def owned_usd_per_gpu_hour(*, usd_per_year: float, gpus: float, utilization_frac: float) -> float:
    """Yearly cost over the GPU-hours that are used."""
    return usd_per_year / (HOURS_PER_YEAR * gpus * utilization_frac)


def break_even_utilization(
    *, fixed_usd_per_year: float, usd_per_used_hour: float, gpus: float, rent_usd_per_gpu_hour: float
) -> float | None:
    """Share of hours used from which owning is cheaper than renting only those hours.

    u* = fixed / (8760 G (p - e)), e what a used hour adds (electricity under load); above 1 = rent is always cheaper,
    None = the electricity alone costs more than the rent.
    """
    margin = rent_usd_per_gpu_hour - usd_per_used_hour
    return fixed_usd_per_year / (HOURS_PER_YEAR * gpus * margin) if margin > 0 else None
