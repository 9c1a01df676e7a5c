"""A bought cluster: what is bought, what a year costs by bucket, cash flow, price of a used hour."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from planner.catalog.facility import fact
from planner.money.own import (
    HOURS_PER_YEAR,
    Asset,
    CashFlow,
    break_even_utilization,
    cash_flow,
    owned_usd_per_gpu_hour,
    resale_frac,
    server_price,
)
from planner.money.people import operations_usd, operator_usd_per_year
from planner.money.power import Draw
from planner.money.rent import UNKNOWN_SIGMA, price_warnings
from planner.money.site import Figure, Site
from planner.scenario.pricing import Own, Pricing

UNKNOWN_SERVER_USD_PER_GPU = 35_000.0
BUCKETS = ("compute", "network", "storage", "power", "facility", "people", "support")


@dataclass(frozen=True, slots=True)
class Ownership:
    """A year of a bought cluster.

    Attributes:
        fixed_usd_per_year: by bucket, with the idle draw of all hours in `power`.
        usd_per_used_hour: what a GPU-hour of work adds: electricity above the idle draw.
        sigma: one standard deviation of the logarithm of the hardware's price.
    """

    assets: tuple[Asset, ...]
    fixed_usd_per_year: Mapping[str, float]
    usd_per_used_hour: float
    gpus: int
    utilization_frac: float
    server: Figure
    sigma: float
    flow: CashFlow
    warnings: tuple[str, ...]

    @property
    def usd_per_year(self) -> float:
        """A year at the stated utilisation."""
        hours = HOURS_PER_YEAR * self.gpus * self.utilization_frac
        return sum(self.fixed_usd_per_year.values()) + hours * self.usd_per_used_hour

    @property
    def usd_per_gpu_hour(self) -> float:
        """Price of a used GPU-hour."""
        return owned_usd_per_gpu_hour(
            usd_per_year=self.usd_per_year, gpus=self.gpus, utilization_frac=self.utilization_frac
        )

    def usd(self, *, bucket: str, gpu_hours: float) -> float:
        """A run's part of a bucket: its used hours over the used hours of a year."""
        year = HOURS_PER_YEAR * self.gpus * self.utilization_frac
        used = self.usd_per_used_hour * gpu_hours if bucket == "power" else 0.0
        return self.fixed_usd_per_year[bucket] * gpu_hours / year + used

    def break_even(self, rent_usd_per_gpu_hour: float) -> float | None:
        """Utilisation from which owning beats a rent."""
        return break_even_utilization(
            fixed_usd_per_year=sum(self.fixed_usd_per_year.values()),
            usd_per_used_hour=self.usd_per_used_hour,
            gpus=self.gpus,
            rent_usd_per_gpu_hour=rent_usd_per_gpu_hour,
        )


def _server(*, site: Site, own: Own, today: date) -> tuple[Figure, float, tuple[str, ...]]:
    """A GPU's share of its server (mean over a mixed fleet), its spread, and warnings on it."""
    if own.server_usd_per_gpu is not None:
        old = price_warnings(day=own.purchase_date, today=today, what="your server price")
        return Figure(own.server_usd_per_gpu, "published", "own price"), UNKNOWN_SIGMA if old else 0.0, old
    found = [(*_server_of(gpu=gpu, today=today), share) for gpu, share in site.gpu_shares]
    if len(found) == 1:
        return found[0][:3]
    usd = sum(price.value * share for price, _, _, share in found)
    sigma = sum(spread * price.value * share for price, spread, _, share in found) / usd
    label = "assumed" if any(price.label == "assumed" for price, *_ in found) else "published"
    source = "; ".join(dict.fromkeys(price.source for price, *_ in found))
    return Figure(usd, label, source), sigma, tuple(dict.fromkeys(w for _, _, old, _ in found for w in old))


def _server_of(*, gpu: str, today: date) -> tuple[Figure, float, tuple[str, ...]]:
    found = server_price(gpu=gpu)
    if found is None:
        usd = UNKNOWN_SERVER_USD_PER_GPU
        text = f"no purchase price of {gpu} known: {usd:,.0f} USD per GPU assumed; give own.server_usd_per_gpu"
        return Figure(usd, "assumed", "no row in the purchase table"), UNKNOWN_SIGMA, (text,)
    what = f"server price of {gpu} ({found.usd_per_gpu:,.0f} USD per GPU)"
    old = price_warnings(day=found.date, today=today, what=what)
    return Figure(found.usd_per_gpu, found.label, found.source), found.sigma or UNKNOWN_SIGMA, old


def assets_of(*, site: Site, own: Own, server_usd_per_gpu: float) -> tuple[Asset, ...]:
    """What is bought: servers with spares, fabric, storage, racks, installation and, where built, the hall."""
    resale = resale_frac(own.life_years) if own.residual_frac is None else own.residual_frac
    servers = site.gpus * server_usd_per_gpu
    fabric = site.fabric.switches * own.switch_usd + site.fabric.links * own.cable_usd
    taxed = 1 + own.tax_frac

    def bought(bucket: str, name: str, usd: float, sold_frac: float) -> Asset:
        price = usd * taxed
        return Asset(bucket, name, price, price * sold_frac, own.life_years, own.maintenance_frac)

    out = [
        bought("compute", "servers", servers, resale),
        bought("compute", "spares", servers * own.spares_frac, resale),
        bought("network", "fabric", fabric, resale),
        bought("storage", "storage", servers * own.storage_frac, resale),
        bought("facility", "racks", site.hall.racks * own.rack_usd, 0.0),
        Asset("facility", "installation", servers * own.installation_frac, 0.0, own.life_years, 0.0),
    ]
    if own.site == "build":
        price = site.hall.contracted_w * own.construction_usd_per_w
        out.append(Asset("facility", "building", price, 0.0, own.building_years, own.maintenance_frac))
    return tuple(out)


def ownership_of(*, site: Site, pricing: Pricing, loaded: Draw, idle: Draw, today: date) -> Ownership:
    """A year of the cluster if it is bought.

    Colocation is paid per contracted kW (rated maxima), electricity per kWh drawn; operators only where self-run.
    """
    own = pricing.own
    server, sigma, warnings = _server(site=site, own=own, today=today)
    assets = assets_of(site=site, own=own, server_usd_per_gpu=server.value)
    usd_per_it_kwh = site.usd_per_kwh.value * site.pue.value
    fixed = {b: sum(a.usd_per_year(interest_frac=own.interest_frac) for a in assets if a.bucket == b) for b in BUCKETS}
    running = dict.fromkeys(BUCKETS, 0.0)
    running["compute"] = own.software_usd_per_gpu_year * site.gpus
    running["power"] = idle.it_w / 1e3 * site.gpus * HOURS_PER_YEAR * usd_per_it_kwh
    if own.site == "colocation":
        usd_per_kw = fact("F075").known if own.usd_per_kw_month is None else own.usd_per_kw_month
        running["facility"] = site.hall.contracted_w / 1e3 * usd_per_kw * 12
    operations = pricing.operations or "self_run"
    if operations == "self_run":
        wage = operator_usd_per_year() if pricing.usd_per_operator_year is None else pricing.usd_per_operator_year
        running["people"] = operations_usd(
            gpu_hours=site.gpus * HOURS_PER_YEAR,
            fte_per_1000_gpus=pricing.operations_fte_per_1000_gpus,
            usd_per_year=wage,
        )
    elif operations == "managed":
        running["support"] = pricing.managed_premium_frac * (sum(fixed.values()) + sum(running.values()))
    used_hour = max(0.0, loaded.it_w - idle.it_w) / 1e3 * usd_per_it_kwh
    hours = HOURS_PER_YEAR * site.gpus * own.utilization_frac
    return Ownership(
        assets=assets,
        fixed_usd_per_year={b: fixed[b] + running[b] for b in BUCKETS},
        usd_per_used_hour=used_hour,
        gpus=site.gpus,
        utilization_frac=own.utilization_frac,
        server=server,
        sigma=sigma,
        flow=cash_flow(
            assets=assets,
            running_usd_per_year=sum(running.values()) + hours * used_hour,
            interest_frac=own.interest_frac,
            years=own.life_years,
        ),
        warnings=warnings,
    )
