"""Collectives on a two-level network: measured curves inside a scale-up domain, NICs between domains.

Inside a domain `T = a + v/B + c sqrt(v)` with v the bytes on the wire of a rank (ring counting): judged on whole tables
left out it errs less than half of a latency-bandwidth fit. Constants by link, operation and ranks stand in
`data/collective_fits.csv`. Across domains a ring is limited by the slower of the links inside and the NICs that the
group may use; between exactly two domains a tree with in-switch reduction halves what crosses the NICs (NVLink 4 and
later).
"""

import csv
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from planner.cost.types import Estimate, Group, Network

WIRE = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
SIBLINGS = {
    "all_reduce": ("all_reduce", "reduce_scatter", "all_gather"),
    "all_gather": ("all_gather", "reduce_scatter", "all_to_all", "all_reduce"),
    "reduce_scatter": ("reduce_scatter", "all_gather", "all_to_all", "all_reduce"),
    "all_to_all": ("all_to_all", "all_gather", "reduce_scatter", "all_reduce"),
    "broadcast": ("all_gather", "reduce_scatter", "all_reduce"),
    "send_recv": ("all_gather", "reduce_scatter", "all_reduce"),
}
# Data-sheet rate per direction of each link, to transfer curves between links.
LINK_BYTES_PER_S = {
    "nvlink1": 80e9,
    "nvlink2": 150e9,
    "nvlink3": 300e9,
    "nvlink4": 450e9,
    "nvlink5": 900e9,
    "xgmi": 448e9,
    "pcie": 31.5e9,
    "pcie5": 63e9,
}
IN_SWITCH = {"nvlink4", "nvlink5"}
STEP_IN_S = 0.95e-6  # one more rank in a ring inside a domain: 5.1, 7.1, 11 us at 2, 4, 8 ranks of NVLink 4
# Bus bandwidth over that at four ranks, mean of the measured links; all-reduce over eight uses in-switch reduction.
RANK_SHAPE = {2: 0.80, 4: 1.0, 8: 1.04}
RANK_SHAPE_REDUCE = {2: 0.88, 4: 1.0, 8: 1.02}
RANK_SHAPE_IN_SWITCH = {2: 0.88, 4: 1.0, 8: 1.28}
OTHER = "nvlink4"


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of v wire bytes: a + v/b + c sqrt(v)."""

    a_s: float
    bytes_per_s: float
    c_s: float
    label: str
    spread_frac: float
    source: str

    def seconds(self, wire_bytes: float) -> float:
        """Duration for a rank's bytes on the wire."""
        return self.a_s + wire_bytes / self.bytes_per_s + self.c_s * math.sqrt(wire_bytes)


@lru_cache(maxsize=4)
def _table(name: str) -> tuple[dict[str, str], ...]:
    return tuple(csv.DictReader(files("planner.cost").joinpath(f"data/{name}").read_text("utf-8").splitlines()))


def wire_bytes(*, op: str, payload_bytes: float, size: int) -> float:
    """Bytes a rank sends, ring counting (nccl-tests bus bandwidth factors)."""
    return payload_bytes * WIRE.get(op, 1.0) * ((size - 1) / size if op in WIRE else 1.0)


def _shape(op: str, ranks: int, link: str) -> float:
    """How bus bandwidth varies with ranks; beyond eight it stays."""
    table = RANK_SHAPE
    if op == "all_reduce":
        table = RANK_SHAPE_IN_SWITCH if link in IN_SWITCH else RANK_SHAPE_REDUCE
    if link.startswith("pcie"):
        return 1.0
    return table[min(table, key=lambda n: (abs(math.log2(n / ranks)), n))]


@lru_cache(maxsize=4096)
def domain_curve(*, op: str, size: int, link: str, link_bytes_per_s: float) -> Curve:
    """The curve inside a scale-up domain: the nearest measured rank count and operation of the link."""
    # PCIe generation 5 cards have tables of their own; 45 GB/s lies between the two generations.
    named = "pcie5" if link == "pcie" and link_bytes_per_s > 45e9 else link
    rows = [r for r in _table("collective_fits.csv") if r["link"] == named]
    transferred = not rows
    if transferred:
        rows = [r for r in _table("collective_fits.csv") if r["link"] == OTHER]
    choices = SIBLINGS[op]
    usable = [r for r in rows if r["op"] in choices]
    best = min(usable, key=lambda r: (abs(math.log2(int(r["ranks"]) / size)) + 2 * choices.index(r["op"]), r["ranks"]))
    reference = LINK_BYTES_PER_S[OTHER if transferred else named]
    ratio = link_bytes_per_s / reference if transferred else min(1.0, link_bytes_per_s / reference)
    exact = int(best["ranks"]) == size and best["op"] == op and not transferred
    ranks = int(best["ranks"])
    a = max(3e-6, float(best["a_us"]) * 1e-6 + STEP_IN_S * (size - ranks) * (1.8 if op == "all_reduce" else 1))
    rate = float(best["b_gbs"]) * 1e9 * ratio * _shape(op, size, named) / _shape(best["op"], ranks, named)
    if op in {"send_recv", "broadcast"}:
        rate = min(rate, 0.8 * link_bytes_per_s)
    label = "transferred" if transferred else "published" if exact else "fitted"
    spread = float(best["spread"]) * (1 if exact else 2)
    return Curve(a, rate, float(best["c_us"]) * 1e-6 / math.sqrt(max(ratio, 1e-3)), label, spread, best["source"])


def _fabric(kind: str) -> dict[str, str]:
    rows = {r["kind"]: r for r in _table("collective_fabrics.csv")}
    return rows.get(kind, rows["none"])


def _domain_nic_bytes_per_s(*, network: Network, group: Group) -> float:
    """NIC rate of a whole domain that one of `nic_sharers` equal groups gets."""
    domain = max(1, network.scaleup_domain_gpus)
    nodes_in_domain = max(1.0, domain / max(1, network.gpus_per_node))
    efficiency = float(_fabric(network.scaleout)["efficiency"])
    rate = network.node_bytes_per_s * nodes_in_domain * efficiency / max(1.0, network.oversubscription)
    return rate / max(1, group.nic_sharers)


@lru_cache(maxsize=200_000)
def collective_s(*, op: str, payload_bytes: float, group: Group, network: Network) -> Estimate:
    """Seconds of one collective.

    `payload_bytes` as nccl-tests counts: the message, the full gathered buffer for all-gather and reduce-scatter, the
    send buffer of a rank for all-to-all. A group of one costs nothing.

    Raises:
        ValueError: an unknown operation, or ranks across domains on a network without NICs.
    """
    if op not in SIBLINGS:
        raise ValueError(f"unknown collective {op!r}; known: {', '.join(sorted(SIBLINGS))}")
    if group.size <= 1 or payload_bytes <= 0:
        return Estimate(0.0, "published", 0.0, "degree 1")
    inside = min(group.size, max(1, group.per_domain))
    if group.size <= inside:
        curve = domain_curve(op=op, size=group.size, link=network.scaleup, link_bytes_per_s=network.scaleup_bytes_per_s)
        seconds = curve.seconds(wire_bytes(op=op, payload_bytes=payload_bytes, size=group.size))
        return Estimate(seconds, curve.label, curve.spread_frac, curve.source)
    if network.node_bytes_per_s <= 0:
        raise ValueError(f"{group.size} ranks in domains of {inside}, but the network between nodes has no rate")
    return _across(op=op, payload_bytes=payload_bytes, group=group, network=network, inside=inside)


def _across(*, op: str, payload_bytes: float, group: Group, network: Network, inside: int) -> Estimate:
    domains = math.ceil(group.size / inside)
    fabric = _fabric(network.scaleout)
    nic = _domain_nic_bytes_per_s(network=network, group=group)
    latency = float(fabric["latency_us"]) * 1e-6
    sqrt_s = float(fabric["sqrt_us"]) * 1e-6
    a, rate_in = 10e-6, math.inf
    if inside > 1:
        curve = domain_curve(op=op, size=inside, link=network.scaleup, link_bytes_per_s=network.scaleup_bytes_per_s)
        a, rate_in = curve.a_s, curve.bytes_per_s
    if op == "all_to_all":
        # Each rank sends most of its buffer over its share of the domain's NICs, the rest inside.
        per_rank_nic = nic / inside
        out = payload_bytes * (group.size - inside) / group.size
        local = payload_bytes * (inside - 1) / group.size
        steps = latency * min(domains - 1, 64) * 0.5
        seconds = a + latency + steps + max(out / per_rank_nic, local / rate_in) + sqrt_s * math.sqrt(out)
        return Estimate(seconds, fabric["label"], float(fabric["spread"]), fabric["source"])
    wire = wire_bytes(op=op, payload_bytes=payload_bytes, size=group.size)
    rounds = 2 if op == "all_reduce" else 1
    ring = rounds * (latency * (domains - 1) + STEP_IN_S * (group.size - domains))
    tree = rounds * latency * math.ceil(math.log2(domains)) + STEP_IN_S * inside
    if op in {"send_recv", "broadcast"}:
        ring = tree
    candidates = [ring + wire / min(rate_in, nic)]
    if op == "all_reduce":
        # A tree sends twice the message up and down but pays latency only along its depth.
        candidates.append(tree + 2.0 * payload_bytes / min(rate_in, 0.9 * nic))
        if domains == 2 and network.scaleup in IN_SWITCH and inside > 1:
            candidates.append(tree + max(wire / rate_in, payload_bytes / nic))
    seconds = a + min(candidates) + sqrt_s * math.sqrt(wire)
    return Estimate(seconds, fabric["label"], float(fabric["spread"]), fabric["source"])
