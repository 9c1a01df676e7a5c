"""Server types from `data/nodes.csv`, with lower-case names people type."""

from functools import lru_cache

from planner.catalog.errors import CatalogError
from planner.catalog.tables import aliases_of, index, name_key, number, rows
from planner.catalog.types import NodeSpec


def _fabric(text: str) -> str:
    lowered = text.lower()
    for key, kind in (
        ("efa", "efa"),
        ("tcpx", "tcpx"),
        ("roce", "roce"),
        ("ib", "ib"),
        ("gvnic", "ethernet"),
        ("ethernet", "ethernet"),
        ("opa", "opa"),
        ("none", "none"),
    ):
        if key in lowered:
            # "IB NDR or RoCE": the first named is the one sold by default.
            return "ib" if key == "roce" and lowered.startswith("ib") else kind
    return "ib"


@lru_cache(maxsize=1)
def nodes() -> dict[str, NodeSpec]:
    """All server types by lower-case name."""
    out = {}
    for r in rows("nodes.csv"):
        if not r["gpus_per_node"] or r["kind"] == "fabric":
            continue
        name = r["node"].lower()
        count = int(number(r, "gpus_per_node"))
        out[name] = NodeSpec(
            name=name,
            gpu=r["gpu"],
            gpus_per_node=count,
            scaleup_domain_gpus=int(number(r, "scaleup_domain_gpus", default=count)),
            nic_count=int(number(r, "nic_count")),
            scaleout_bytes_per_s=number(r, "scaleout_gbps_per_node") / 8 * 1e9,
            fabric=_fabric(r["fabric"]),
            max_power_w=number(r, "max_power_kw") * 1e3,
            host_mem_bytes=number(r, "host_mem_gb") * 1e9,
            source=r["source"],
            notes=r["notes"],
            aliases=aliases_of(r),
        )
    return out


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    return index((n.name, n.aliases) for n in nodes().values())


@lru_cache(maxsize=512)
def node(name: str) -> NodeSpec:
    """A server type by name or alias.

    Raises:
        CatalogError: an unknown type, with the nearest names.
    """
    found = _names().get(name_key(name))
    if found is None:
        raise CatalogError(kind="node", name=name, known=[x for n in nodes().values() for x in (n.name, *n.aliases)])
    return nodes()[found]
