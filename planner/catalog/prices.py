"""Dated rental prices from `data/prices.csv`."""

import statistics
from collections.abc import Mapping
from functools import lru_cache

from planner.catalog.gpus import gpu as find_gpu
from planner.catalog.tables import number, rows
from planner.catalog.types import Price


def _offers_spot(row: Mapping[str, str]) -> bool:
    # A tenth of on-demand is a placeholder and equality means that the zone offers none.
    ratio = number(row, "spot_median_over_ondemand", default=0.5)
    return 0.11 <= ratio <= 0.99


@lru_cache(maxsize=1)
def _all() -> tuple[Price, ...]:
    out = []
    for r in rows("prices.csv"):
        gpu, count = r.get("gpu_norm") or r["gpu"], number(r, "gpu_count", default=1.0)
        date = r["date"] if r.get("dated") == "yes" else None
        base = number(r, "per_gpu_hour_usd")
        if r["tenure"] == "cost":
            continue  # what an owner spends, not what anybody is charged
        for tenure, usd in (
            (r["tenure"] or "on_demand", base),
            ("spot", number(r, "spot_hour_usd_median") / count if _offers_spot(r) else 0.0),
            ("reserved_1y", number(r, "commit_1y_hour_usd") / count),
            ("reserved_3y", number(r, "commit_3y_hour_usd") / count),
        ):
            if usd > 0:
                out.append(Price(r["provider"], r["instance"], gpu, r["region"], tenure, usd, date, r["source"]))
    return tuple(out)


@lru_cache(maxsize=128)
def prices(gpu: str | None = None) -> tuple[Price, ...]:
    """Every price of a GPU-hour by provider, region and tenure; of one part when `gpu` (name or alias) is given.

    Raises:
        CatalogError: an unknown part.
    """
    if gpu is None:
        return _all()
    wanted = find_gpu(gpu).name
    return tuple(p for p in _all() if p.gpu == wanted)


def _month(price: Price) -> int:
    return int(str(price.date)[:4]) * 12 + int(str(price.date)[5:7] or 6)


@lru_cache(maxsize=256)
def rental_rows(*, gpu: str, tenure: str, provider: str | None = None, region: str | None = None) -> tuple[Price, ...]:
    """The rows that speak for today's price of a part, cheapest first.

    Dated rows where there are at least two, of those the ones within a year of the newest: prices fall by a third a
    year. A region that no row names is not looked at.
    """
    found = [
        p
        for p in prices()
        if p.gpu == gpu and p.tenure == tenure and (provider is None or p.provider.lower() == provider.lower())
    ]
    if region is not None:
        found = [p for p in found if p.region.lower() == region.lower()] or found
    dated = [p for p in found if p.date]
    if len(dated) < 2:
        dated = found if len(found) > 1 else dated
    else:
        newest = max(_month(p) for p in dated)
        dated = [p for p in dated if _month(p) > newest - 12]
    return tuple(sorted(dated or found, key=lambda p: p.usd_per_gpu_hour))


@lru_cache(maxsize=256)
def rental_price(*, gpu: str, tenure: str, provider: str | None = None, region: str | None = None) -> Price | None:
    """The median of `rental_rows`; None where no row exists."""
    pool = rental_rows(gpu=gpu, tenure=tenure, provider=provider, region=region)
    if not pool:
        return None
    middle = statistics.median_low([p.usd_per_gpu_hour for p in pool])
    return next(p for p in pool if p.usd_per_gpu_hour == middle)


@lru_cache(maxsize=64)
def discount_frac(*, tenure: str, provider: str | None = None) -> float:
    """Median discount of a commitment or of spot capacity off the on-demand price, over all rows that print one.

    Raises:
        ValueError: a tenure that has no discount.
    """
    column = {
        "reserved_1y": "commit_1y_discount",
        "reserved_3y": "commit_3y_discount",
        "spot": "spot_median_over_ondemand",
    }.get(tenure)
    if column is None:
        raise ValueError(f"{tenure!r} has no discount")
    known = [r for r in rows("prices.csv") if r[column] and (tenure != "spot" or _offers_spot(r))]
    own = [r for r in known if provider is not None and r["provider"].lower() == provider.lower()]
    middle = statistics.median(number(r, column) for r in own or known)
    return 1 - middle if tenure == "spot" else middle


@lru_cache(maxsize=1)
def providers() -> tuple[str, ...]:
    """Every provider that a price row names."""
    return tuple(sorted({r["provider"] for r in rows("prices.csv")}))
