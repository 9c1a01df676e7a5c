"""What hardware costs to buy, from `data/purchase_prices.csv`: parts, servers, racks, network bills, ratios."""

from dataclasses import dataclass
from functools import lru_cache

from planner.catalog.gpus import gpu as find_gpu
from planner.catalog.tables import number, rows


@dataclass(frozen=True, slots=True)
class PurchasePrice:
    """One dated price or ratio.

    Attributes:
        kind: single accelerator, server, rack, switch, network bill, optics, estimate, ratio, ...
        gpu: part of the catalogue, None where the source names none that the catalogue holds.
        usd: price of the whole item, None when only a price per GPU is known.
        ratio: a share, factor or number of years (kind `ratio`).
        date: as the source prints it: a day, a month or a year.
    """

    id: str
    item: str
    kind: str
    gpu: str | None
    unit_count: float
    usd: float | None
    usd_per_gpu: float | None
    ratio: float | None
    date: str | None
    notes: str
    source: str
    year: int
    provenance: str


@lru_cache(maxsize=1)
def _all() -> tuple[PurchasePrice, ...]:
    return tuple(
        PurchasePrice(
            id=r["id"],
            item=r["item"],
            kind=r["kind"],
            gpu=r["gpu"] or None,
            unit_count=number(r, "unit_count", default=1.0),
            usd=number(r, "price_usd") or None,
            usd_per_gpu=number(r, "price_per_gpu_usd") or None,
            ratio=number(r, "ratio_value") or None,
            date=r["date"] or None,
            notes=r["notes"],
            source=r["source"],
            year=int(number(r, "year")),
            provenance=r["provenance"],
        )
        for r in rows("purchase_prices.csv")
    )


@lru_cache(maxsize=128)
def purchase_prices(gpu: str | None = None) -> tuple[PurchasePrice, ...]:
    """Every purchase price and ratio; those of one part when `gpu` (name or alias) is given.

    Raises:
        CatalogError: an unknown part.
    """
    if gpu is None:
        return _all()
    wanted = find_gpu(gpu).name
    return tuple(p for p in _all() if p.gpu == wanted)
