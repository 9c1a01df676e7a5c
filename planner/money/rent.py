"""Rental prices, their age and spread, commitments and spot capacity."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from planner.catalog.prices import discount_frac, rental_price, rental_rows
from planner.money.own import robust_sigma

STALE_DAYS = 90
UNKNOWN_SIGMA = 0.15  # spread of a price that has too few rows to show one, or that is old. Assumed
UNKNOWN_USD_PER_GPU_HOUR = 2.0
WIDE_SIGMA = 0.3  # from here on the provider decides the bill and the total says little without one


def price_warnings(*, day: str | None, today: date, what: str) -> tuple[str, ...]:
    """A warning where a price has no date or is older than 90 days."""
    if not day:
        return (f"{what} carries no date",)
    parts = [int(x) for x in day.split("-") if x.isdigit()]
    if not parts:
        return (f"{what} carries no readable date ({day})",)
    year, month, at = [*parts, 6, 15][:3] if len(parts) == 1 else [*parts, 15][:3]
    age = (today - date(year, month, at)).days
    return (f"{what} is {age} days old ({day})",) if age > STALE_DAYS else ()


@dataclass(frozen=True, slots=True)
class Rent:
    """The price of one GPU-hour.

    Attributes:
        sigma: one standard deviation of its logarithm between the offers it is the median of.
        formula: how it follows from the rows.
    """

    usd_per_gpu_hour: float
    sigma: float
    label: str
    source: str
    date: str | None
    formula: str
    warnings: tuple[str, ...] = ()


def quoted(*, usd_per_gpu_hour: float, day: str | None, today: date, formula: str) -> Rent:
    """Your own quote: no spread while it is fresh."""
    old = price_warnings(day=day, today=today, what="your quote")
    return Rent(usd_per_gpu_hour, UNKNOWN_SIGMA if old else 0.0, "published", "own quote", day, formula, old)


def catalogue_rent(*, gpu: str, tenure: str, provider: str | None, region: str | None, today: date) -> Rent:
    """Median catalogue price of a tenure.

    On-demand less the usual discount where rows of that tenure are fewer than two (and no provider is named), or dearer
    than on-demand because other providers print them.
    """
    zone = region.partition(":")[2] if region and ":" in region else None
    found = rental_price(gpu=gpu, tenure=tenure, provider=provider, region=zone)
    base, factor = tenure, 1.0
    full = rental_price(gpu=gpu, tenure="on_demand", provider=provider, region=zone)
    # One offer, or offers of dear providers alone, say less about the market than the usual discount does.
    few = provider is None and len(rental_rows(gpu=gpu, tenure=tenure, region=zone)) < 2
    dear = found is not None and full is not None and found.usd_per_gpu_hour >= full.usd_per_gpu_hour
    if tenure != "on_demand" and full is not None and (found is None or few or dear):
        found = full
        base, factor = "on_demand", 1 - discount_frac(tenure=tenure, provider=provider)
    if found is None:
        usd = UNKNOWN_USD_PER_GPU_HOUR * (1 - (discount_frac(tenure=tenure) if tenure != "on_demand" else 0.0))
        text = f"no {tenure} price of {gpu} known: {usd:.2f} USD per GPU-hour assumed; give pricing.usd_per_gpu_hour"
        return Rent(usd, UNKNOWN_SIGMA, "assumed", "no row in the price table", None, "assumed", (text,))
    pool = [p.usd_per_gpu_hour for p in rental_rows(gpu=gpu, tenure=base, provider=provider, region=zone)]
    usd = found.usd_per_gpu_hour * factor
    what = f"price of {gpu} ({found.provider} {found.instance or found.region}, {usd:.2f} USD per GPU-hour)"
    warnings = price_warnings(day=found.date, today=today, what=what)
    if factor != 1.0:
        warnings += (f"too few {tenure} prices of {gpu}: on-demand x {factor:.2f}, the usual discount",)
    sigma = robust_sigma(pool) or UNKNOWN_SIGMA
    if sigma > WIDE_SIGMA:
        low, high = pool[0] * factor, pool[-1] * factor
        warnings += (
            f"offers of {gpu} run from {low:.2f} to {high:.2f} USD per GPU-hour: the total's band is wide until "
            "pricing names a provider or your quote",
        )
    return Rent(
        usd_per_gpu_hour=usd,
        sigma=sigma,
        label="published" if factor == 1.0 else "assumed",
        source=f"{found.provider} {found.instance} {found.region} {found.date or 'undated'}; {found.source}",
        date=found.date,
        formula=f"median of {len(pool)} {base} rows" + ("" if factor == 1.0 else f" x {factor:.3f}"),
        warnings=warnings,
    )


def mean_rent(parts: Sequence[tuple[Rent, float]]) -> Rent:
    """The rent of a fleet of several parts, each with its share of the GPUs; the spreads move together.

    The label is that of its weakest part, the date that of its oldest, none where one is undated.
    """
    if len(parts) == 1:
        return parts[0][0]
    usd = sum(rent.usd_per_gpu_hour * share for rent, share in parts)
    rents = [rent for rent, _ in parts]
    dates = [rent.date for rent in rents]
    return Rent(
        usd_per_gpu_hour=usd,
        sigma=sum(rent.sigma * rent.usd_per_gpu_hour * share for rent, share in parts) / usd,
        label="assumed" if any(rent.label == "assumed" for rent in rents) else "published",
        source="; ".join(dict.fromkeys(rent.source for rent in rents)),
        date=min((d for d in dates if d), default=None) if all(dates) else None,
        formula=" + ".join(f"{share:.3f} x {rent.usd_per_gpu_hour:.2f} ({rent.formula})" for rent, share in parts),
        warnings=tuple(dict.fromkeys(w for rent in rents for w in rent.warnings)),
    )


def commitment_break_even(*, discount: float) -> float:
    """Share of committed hours that must work before a commitment beats on-demand: u* = 1 - discount."""
    return 1 - discount


def spot_useful_frac(*, stall_s: float, interval_s: float, losses_per_s: float, recovery_s: float) -> float:
    """Share of held time that is useful on spot: 1 - delta/tau - lambda (tau/2 + R), lambda gang losses a second."""
    return max(0.0, 1 - stall_s / interval_s - losses_per_s * (interval_s / 2 + recovery_s))


def spot_break_even_ratio(*, useful_spot: float, useful_on_demand: float = 1.0) -> float:
    """Spot over on-demand price below which a useful hour is cheaper on spot: p_s/p_od < E_s/E_od."""
    return useful_spot / useful_on_demand
