"""Who sells which node in which tenure: nodes and prices of the catalogue joined by part and provider."""

from dataclasses import dataclass
from functools import lru_cache

from planner.catalog.gpus import gpu as find_gpu
from planner.catalog.nodes import nodes
from planner.catalog.prices import rental_rows
from planner.catalog.purchase import purchase_prices
from planner.catalog.tables import number, rows

RENTED = ("on_demand", "reserved_1y", "reserved_3y", "spot")
FIRST_YEAR = 2020  # parts announced earlier are not proposed unless they are named
FEWEST_PROVIDERS = 2  # that price a part before it is proposed by itself
OWNED_KINDS = ("single accelerator", "server", "server (per-GPU share)", "rack")


@dataclass(frozen=True, slots=True)
class Source:
    """A node type and who sells it; provider None is the market: the median over every offer, or a purchase."""

    node: str
    gpu: str
    provider: str | None
    tenures: tuple[str, ...]


def _usable(row: dict[str, str]) -> bool:
    return bool(row["gpus_per_node"]) and row["kind"] in {"cloud", "on-prem"} and row["provider"] != "composed"


@lru_cache(maxsize=64)
def reference_node(gpu: str) -> str | None:
    """The vendor's own server of a part: the one that is bought, and that small providers rent out."""
    found = [r for r in rows("nodes.csv") if _usable(r) and r["kind"] == "on-prem" and r["gpu"] == gpu]
    if not found:
        return None
    # The board of all makers before the vendor's own box where the table holds both.
    best = max(found, key=lambda r: (r["provider"] == "OEM", number(r, "scaleout_gbps_per_node")))
    return best["node"].lower()


def _tenures(*, gpu: str, provider: str | None) -> tuple[str, ...]:
    on_demand = bool(rental_rows(gpu=gpu, tenure="on_demand", provider=provider))
    out = [t for t in RENTED[:3] if on_demand or rental_rows(gpu=gpu, tenure=t, provider=provider)]
    if rental_rows(gpu=gpu, tenure="spot", provider=provider):
        out.append("spot")
    if provider is None and any(p.usd_per_gpu and p.date and p.kind in OWNED_KINDS for p in purchase_prices(gpu)):
        out.append("own")
    return tuple(out)


@lru_cache(maxsize=64)
def sources(gpu: str) -> tuple[Source, ...]:
    """Every way to get a part: the market on the reference node first, then providers on their own fastest node.

    A single listing of a provider without a node in the catalogue names neither fabric nor capacity; it counts in the
    market's median only.

    Raises:
        CatalogError: an unknown part.
    """
    gpu = find_gpu(gpu).name
    out = []
    reference = reference_node(gpu)
    if reference is not None:
        out.append(Source(reference, gpu, None, _tenures(gpu=gpu, provider=None)))
    clouds: dict[str, dict[str, str]] = {}
    for row in rows("nodes.csv"):
        if not _usable(row) or row["kind"] != "cloud" or row["gpu"] != gpu or row["node"].lower() not in nodes():
            continue
        held = clouds.get(row["provider"])
        rank = (number(row, "scaleout_gbps_per_node"), number(row, "year"))
        if held is None or rank >= (number(held, "scaleout_gbps_per_node"), number(held, "year")):
            clouds[row["provider"]] = row
    for provider, row in clouds.items():
        out.append(Source(row["node"].lower(), gpu, provider, _tenures(gpu=gpu, provider=provider)))
    return tuple(s for s in out if s.tenures)


@lru_cache(maxsize=1)
def proposed_gpus() -> tuple[str, ...]:
    """Parts that a purchase is proposed of without being asked: recent, with a node, rented out by two or more."""
    out = []
    for name in sorted({n.gpu for n in nodes().values()}):
        priced = {p.provider for p in rental_rows(gpu=name, tenure="on_demand")}
        if find_gpu(name).year >= FIRST_YEAR and reference_node(name) and len(priced) >= FEWEST_PROVIDERS:
            out.append(name)
    return tuple(out)
