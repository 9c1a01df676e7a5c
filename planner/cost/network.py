"""The network between scale-up domains: the NIC rate a group gets, and collectives that cross it.

Always a two-level hierarchy: links inside a domain, NICs between domains, the algorithm chosen as the library would
(the quickest of ring, tree and, between two domains, tree with in-switch reduction). Never a flat ring at one NIC's
rate. Constants by fabric stand in `data/collective_fabrics.csv`.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from planner.cost.types import Estimate, Fabric, Group, Network

WIRE = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
# One more rank in a ring inside a domain: all-gather of 5.1, 7.1, 10.9 us at 2, 4, 8 ranks of NVLink 4.
STEP_IN_S = 0.95e-6
BASE_S = 10e-6  # launch and protocol of a collective with one rank a domain
# Chains through larger domains (NVL72 racks) make trees useless: 20 racks show the latency of a ring over all ranks.
TREE_DOMAIN_GPUS = 16
TREE_SHARE = 0.9  # bandwidth of a tree over that of a ring, as the library's own tuning table has it
# What kernels lose while a collective runs beside them. Collectives are kernels that hold processors and take memory
# traffic: Galvatron measured 1.126 (arXiv 2211.13878), Calculon assumes 1.15 inside a domain (SC '23). They hold them
# between domains too: DeepSeek-V3 gives 20 of 132 processors to its cross-node kernels (arXiv 2412.19437, 3.2.2).
# Calculon's 1.02 there counts the cards alone; public runs of 16 of 20 multi-node groups say more.
BESIDE_FRAC = 0.126
EXCHANGE_STEPS = 64  # peers whose latencies an all-to-all does not hide under each other, at most


@dataclass(frozen=True, slots=True)
class Inside:
    """What a collective finds inside a domain: latency, ring rate, in-switch rate (0 without)."""

    base_s: float
    ring_bytes_per_s: float
    switch_bytes_per_s: float = 0.0


def fabrics_of(text: str) -> dict[str, Fabric]:
    """Fabrics from the text of a table."""
    return {
        r["kind"]: Fabric(
            float(r["efficiency"]),
            float(r["latency_us"]) * 1e-6,
            float(r["sqrt_us"]) * 1e-6,
            r["label"],
            float(r["spread"]),
            r["source"],
        )
        for r in csv.DictReader(text.splitlines())
    }


@lru_cache(maxsize=1)
def shipped_fabrics() -> Mapping[str, Fabric]:
    """The packaged fabrics by kind."""
    return fabrics_of(files("planner.cost").joinpath("data/collective_fabrics.csv").read_text("utf-8"))


def fabric_of(*, network: Network, fabrics: Mapping[str, Fabric]) -> Fabric:
    """The constants of a network: its own, else those of its kind; an unknown kind takes the row `none`."""
    return network.fabric or fabrics.get(network.scaleout, fabrics["none"])


def wire_bytes(*, op: str, payload_bytes: float, size: int) -> float:
    """Bytes a rank sends, ring counting (nccl-tests bus bandwidth factors)."""
    return payload_bytes * WIRE.get(op, 1.0) * ((size - 1) / size if op in WIRE else 1.0)


def beside_frac(*, group: Group, network: Network) -> float:
    """By how much kernels take longer while a collective of this group runs beside them: measured, else published."""
    if group.size <= 1:
        return 0.0
    wire = network.measured
    if group.size <= max(1, group.per_domain):
        found = wire.beside_inside_frac if wire else None
    else:
        found = wire.beside_across_frac if wire else None
    return BESIDE_FRAC if found is None else found


def domain_nic_bytes_per_s(*, network: Network, group: Group, efficiency: float) -> float:
    """NIC rate that one domain offers to one of `nic_sharers` equal groups.

    Rail aligned (a NIC a GPU or more), the group's members reach only their own NICs.
    """
    nodes_in_domain = max(1.0, network.scaleup_domain_gpus / max(1, network.gpus_per_node))
    rate = network.node_bytes_per_s * nodes_in_domain / max(1, group.nic_sharers)
    if network.nic_count >= network.gpus_per_node:
        rate = min(rate, network.node_bytes_per_s * max(1, group.per_domain) / max(1, network.gpus_per_node))
    return rate * efficiency / max(1.0, network.oversubscription)


def across_s(
    *, op: str, payload_bytes: float, group: Group, network: Network, inside: Inside, fabric: Fabric
) -> Estimate:
    """Seconds of a collective whose ranks lie in more than one domain.

    Raises:
        ValueError: the network between domains has no rate.
    """
    members = min(group.size, max(1, group.per_domain))
    if network.node_bytes_per_s <= 0:
        raise ValueError(f"{group.size} ranks in domains of {members}, but the network between nodes has no rate")
    domains = math.ceil(group.size / members)
    nic = domain_nic_bytes_per_s(network=network, group=group, efficiency=fabric.efficiency)
    if op == "all_to_all":
        seconds, crossing = _exchange(
            payload_bytes=payload_bytes, group=group, members=members, nic=nic, inside=inside, fabric=fabric
        )
    else:
        crossing = wire_bytes(op=op, payload_bytes=payload_bytes, size=group.size)
        rounds = 2 if op == "all_reduce" else 1
        rate = min(inside.ring_bytes_per_s, nic)
        hops_in = max(0, group.size - members - domains + 1)
        ring = rounds * (fabric.latency_s * (domains - 1) + STEP_IN_S * hops_in)
        tree = rounds * fabric.latency_s * math.ceil(math.log2(domains)) + STEP_IN_S * members
        candidates = [(tree if op in {"send_recv", "broadcast"} else ring) + crossing / rate]
        if op == "all_reduce" and members <= TREE_DOMAIN_GPUS:
            # A tree sends twice the message up and down but pays latency only along its depth.
            candidates.append(tree + 2.0 * payload_bytes / min(inside.ring_bytes_per_s, TREE_SHARE * nic))
            if domains == 2 and inside.switch_bytes_per_s > 0:
                candidates.append(tree + max(crossing / inside.switch_bytes_per_s, payload_bytes / nic))
        seconds = min(candidates)
    seconds += inside.base_s + fabric.sqrt_s * math.sqrt(crossing)
    return Estimate(seconds, fabric.label, fabric.spread_frac, fabric.source)


def _exchange(
    *, payload_bytes: float, group: Group, members: int, nic: float, inside: Inside, fabric: Fabric
) -> tuple[float, float]:
    """All-to-all: most of a rank's buffer leaves over its share of the domain's NICs, the rest stays inside."""
    out = payload_bytes * (group.size - members) / group.size
    local = payload_bytes * (members - 1) / group.size
    domains = math.ceil(group.size / members)
    steps = fabric.latency_s * (1 + 0.5 * min(domains - 1, EXCHANGE_STEPS))
    return steps + max(out * members / nic, local / inside.ring_bytes_per_s), out
