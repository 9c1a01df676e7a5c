"""Dated rental prices from `data/prices.csv`."""

import statistics
from functools import lru_cache

from planner.catalog.gpus import gpu as find_gpu
from planner.catalog.tables import number, rows
from planner.catalog.types import Price


@lru_cache(maxsize=1)
def _all() -> tuple[Price, ...]:
    out = []
    for r in rows("prices.csv"):
        gpu, count = r.get("gpu_norm") or r["gpu"], number(r, "gpu_count", default=1.0)
        date = r["date"] if r.get("dated") == "yes" else None
        base = number(r, "per_gpu_hour_usd")
        for tenure, usd in (
            ("on_demand", base),
            ("spot", number(r, "spot_hour_usd_median") / count),
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


@lru_cache(maxsize=256)
def rental_price(*, gpu: str, tenure: str, provider: str | None = None) -> Price | None:
    """The median price of a part, from dated rows where there are any; None where no row exists."""
    found = [
        p
        for p in prices()
        if p.gpu == gpu and p.tenure == tenure and (provider is None or p.provider.lower() == provider.lower())
    ]
    dated = [p for p in found if p.date]
    if dated:
        # Prices fall by a third a year: only rows within a year of the newest speak for today.
        newest = max(int(str(p.date)[:4]) * 12 + int(str(p.date)[5:7] or 6) for p in dated)
        dated = [p for p in dated if int(str(p.date)[:4]) * 12 + int(str(p.date)[5:7] or 6) > newest - 12]
    pool = sorted(dated or found, key=lambda p: p.usd_per_gpu_hour)
    if not pool:
        return None
    middle = statistics.median_low([p.usd_per_gpu_hour for p in pool])
    return next(p for p in pool if p.usd_per_gpu_hour == middle)
