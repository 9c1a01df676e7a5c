"""Collectives on a two-level network: measured curves inside a scale-up domain, NICs between domains.

Inside a domain `T = a + v/B + c sqrt(v)` with v the bytes on the wire of a rank (ring counting): judged on whole tables
left out it errs less than half of a latency-bandwidth fit. Constants by link, operation and ranks stand in
`data/collective_fits.csv`. Across domains see `planner.cost.network`.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files

from planner.cost.gloo import FRAMING, LOOPBACK_BYTES_PER_S, gloo_s
from planner.cost.measured import fit_fabric, measured_s, wire_of_profile
from planner.cost.network import (
    BASE_S,
    STEP_IN_S,
    WIRE,
    Inside,
    across_s,
    domain_nic_bytes_per_s,
    fabric_of,
    shipped_fabrics,
    wire_bytes,
)
from planner.cost.protocol import HIGH, LOW, NO_STEPS, Steps, chunks, logs_of, on_octaves, shipped_steps
from planner.cost.types import Estimate, Fabric, Group, Network

__all__ = ["OPS", "WIRE", "Curve", "collective_s", "wire_bytes"]

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
IN_SWITCH_OP = "all_reduce_in_switch"
# Data-sheet rate per direction of each link, the reference of its curves.
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
PCIE5_FROM_BYTES_PER_S = 45e9  # between the two generations
IN_SWITCH = {"nvlink4", "nvlink5"}
IN_SWITCH_FROM = 6  # ranks: over 5 of 8 B200 the ring is still chosen (678 GB/s with and without), over 6 not (778)
RING_ONLY = "-ring"  # suffix of a link whose in-switch reduction is off
ANCHORS = (2, 4, 8)
SWITCH_STEP_S = 1e-6  # doubling the ranks of a switched domain beyond eight
# NVLink rings change protocol (low-latency to simple) once a rank's chunk passes this many bytes; the start-up then
# costs more by the share below. Seen in every ring table; all-to-all, PCIe and in-switch reduction show no such step.
PROTOCOL_CHUNK_BYTES = 1.2e6  # at 900 GB/s, in proportion to the rate of the link
PROTOCOL_SHARE = 0.6
PROTOCOL_POWER = 3.0
RING_OPS = {"all_reduce", "all_gather", "reduce_scatter"}
MEASURED_WITHIN = 0.1  # a link rate this close to the reference is the same link
P2P_SHARE = 0.8


def protocol_wire_bytes(*, op: str, size: int, link: str, link_bytes_per_s: float) -> float:
    """Bytes on the wire at which a ring changes protocol; 0 where it does not."""
    if op not in RING_OPS or not link.startswith("nvlink"):
        return 0.0
    chunk = PROTOCOL_CHUNK_BYTES * link_bytes_per_s / LINK_BYTES_PER_S["nvlink5"]
    return chunk * WIRE[op] * (size - 1)


def protocol_factor(*, wire: float, change_at: float) -> float:
    """What the start-up costs at a size, over that of small messages: a smooth step, so that time grows with bytes."""
    if change_at <= 0 or wire <= 0:
        return 1.0
    return 1.0 + PROTOCOL_SHARE / (1.0 + math.pow(change_at / wire, PROTOCOL_POWER))


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of v wire bytes: a + v/b + c sqrt(v), the start-up a with its step at the change of protocol."""

    a_s: float
    bytes_per_s: float
    c_s: float
    label: str
    spread_frac: float
    source: str
    protocol_wire_bytes: float = 0.0  # where the protocol changes; 0 = nowhere

    def seconds(self, wire: float) -> float:
        """Duration for a rank's bytes on the wire."""
        start = self.a_s * protocol_factor(wire=wire, change_at=self.protocol_wire_bytes)
        return start + wire / self.bytes_per_s + self.c_s * math.sqrt(wire)


Curves = Mapping[tuple[str, str, int], Curve]


def curves_of(text: str) -> dict[tuple[str, str, int], Curve]:
    """Curves from the text of a table, by link, operation and ranks."""
    return {
        (r["link"], r["op"], int(r["ranks"])): Curve(
            float(r["a_us"]) * 1e-6,
            float(r["b_gbs"]) * 1e9,
            float(r["c_us"]) * 1e-6,
            r["label"],
            float(r["spread"]),
            r["source"],
        )
        for r in csv.DictReader(text.splitlines())
    }


@lru_cache(maxsize=1)
def shipped_curves() -> Curves:
    """The packaged curves."""
    return curves_of(files("planner.cost").joinpath("data/collective_fits.csv").read_text("utf-8"))


def curve_link(*, link: str, link_bytes_per_s: float) -> tuple[str, bool]:
    """Name of the link whose curves serve, and whether in-switch reduction is off."""
    ring = link.endswith(RING_ONLY)
    name = link.removesuffix(RING_ONLY)
    if name == "pcie":
        return ("pcie5" if link_bytes_per_s > PCIE5_FROM_BYTES_PER_S else "pcie"), ring
    if name in LINK_BYTES_PER_S and name != "nvlink1":
        return name, ring
    if name == "nvlink1":
        return "nvlink2", ring
    return ("pcie5" if link_bytes_per_s < 100e9 else "nvlink3"), ring


def switched(*, op: str, size: int, link: str, ring_only: bool) -> bool:
    """Whether the library reduces in the switch."""
    return op == "all_reduce" and link in IN_SWITCH and size >= IN_SWITCH_FROM and not ring_only


def anchor_weights(size: int) -> list[tuple[int, float]]:
    """Measured rank counts and their weights, linear in the logarithm; beyond the ends the end."""
    x = math.log2(min(max(size, ANCHORS[0]), ANCHORS[-1]))
    low = max(n for n in ANCHORS if math.log2(n) <= x + 1e-12)
    high = min(n for n in ANCHORS if math.log2(n) >= x - 1e-12)
    if low == high:
        return [(low, 1.0)]
    share = (x - math.log2(low)) / (math.log2(high) - math.log2(low))
    return [(low, 1.0 - share), (high, share)]


def mesh_factor(*, link: str, size: int) -> float:
    """Share of a GPU's links that a group uses: on a point-to-point mesh only those to its members."""
    return (min(size, 8) - 1) / 7 if link == "xgmi" else 1.0


def extra_latency_s(*, op: str, size: int) -> float:
    """Latency of ranks beyond the largest measured count."""
    if op == IN_SWITCH_OP:
        return SWITCH_STEP_S * math.log2(max(1.0, size / ANCHORS[-1]))
    return STEP_IN_S * max(0, size - ANCHORS[-1]) * (2 if op == "all_reduce" else 1)


def curve_wire_bytes(*, op: str, payload_bytes: float, size: int) -> float:
    """Bytes on the wire; with in-switch reduction up to eight ranks they do not grow with the ranks."""
    if op == IN_SWITCH_OP:
        return wire_bytes(op="all_reduce", payload_bytes=payload_bytes, size=max(ANCHORS[-1], size))
    return wire_bytes(op=op, payload_bytes=payload_bytes, size=size)


def domain_curve(
    *, op: str, size: int, link: str, link_bytes_per_s: float, curves: Curves, in_switch: bool
) -> tuple[Curve, str]:
    """The curve inside a scale-up domain and the operation it counts wire bytes for."""
    name, ring_only = curve_link(link=link, link_bytes_per_s=link_bytes_per_s)
    kind = op
    if op in {"send_recv", "broadcast"}:
        kind = "all_gather"
    if in_switch and switched(op=op, size=size, link=name, ring_only=ring_only):
        kind = IN_SWITCH_OP
    ranks = 2 if op == "send_recv" else size
    weights = [(ANCHORS[-1], 1.0)] if kind == IN_SWITCH_OP else anchor_weights(ranks)
    parts = [(curves[(name, kind, n)], w) for n, w in weights]
    ratio = link_bytes_per_s / LINK_BYTES_PER_S[name]
    if link == "pcie":
        ratio = min(1.0, ratio)  # generations have curves of their own
    a = math.exp(sum(w * math.log(c.a_s) for c, w in parts)) + extra_latency_s(op=kind, size=ranks)
    rate = math.exp(sum(w * math.log(c.bytes_per_s) for c, w in parts)) * ratio
    rate *= mesh_factor(link=name, size=ranks)
    sqrt_s = math.exp(sum(w * math.log(c.c_s) for c, w in parts)) / math.sqrt(ratio)
    borrowed = kind not in {op, IN_SWITCH_OP}
    if borrowed:
        rate = min(rate, P2P_SHARE * link_bytes_per_s)
    nearest = max(parts, key=lambda p: p[1])[0]
    label, spread = nearest.label, nearest.spread_frac
    other_link = name != link.removesuffix(RING_ONLY) and not link.startswith("pcie")
    if link.removesuffix(RING_ONLY) not in LINK_BYTES_PER_S:
        label, spread = "datasheet", max(0.3, spread)
    elif other_link or abs(math.log(ratio)) > MEASURED_WITHIN:
        label, spread = "transferred", max(0.2, spread)
    elif borrowed or len(parts) > 1 or size > ANCHORS[-1]:
        spread *= 1.5
    change = protocol_wire_bytes(op=kind, size=ranks, link=name, link_bytes_per_s=link_bytes_per_s)
    if borrowed:
        change = 0.0
    return Curve(a, rate, sqrt_s, label, spread, nearest.source, change), kind


@lru_cache(maxsize=4096)
def _knots(*, curve: Curve, kind: str, size: int, logs: tuple[float, ...]) -> tuple[float, ...]:
    """Seconds on the octaves of a chunk; a larger message never takes less."""
    out, longest = [], 0.0
    for octave, log in zip(range(LOW, HIGH + 1), logs, strict=True):
        payload = 2.0**octave * chunks(kind=kind, size=size)
        smooth = curve.seconds(curve_wire_bytes(op=kind, payload_bytes=payload, size=size))
        longest = max(longest, smooth * math.exp(log))
        out.append(longest)
    return tuple(out)


def _inside_s(*, op: str, payload_bytes: float, size: int, network: Network, curves: Curves, steps: Steps) -> Estimate:
    """Seconds of a collective inside a scale-up domain."""
    link, rate = network.scaleup, _rate(network)
    curve, kind = domain_curve(op=op, size=size, link=link, link_bytes_per_s=rate, curves=curves, in_switch=True)
    seconds = curve.seconds(
        curve_wire_bytes(op=kind if kind == IN_SWITCH_OP else op, payload_bytes=payload_bytes, size=size)
    )
    logs = None
    if kind in {op, IN_SWITCH_OP}:
        name, _ = curve_link(link=link, link_bytes_per_s=rate)
        weights = [(ANCHORS[-1], 1.0)] if kind == IN_SWITCH_OP else anchor_weights(size)
        logs = logs_of(steps=steps, link=name, kind=kind, weights=weights)
    if logs is not None:
        seconds = on_octaves(
            knots=_knots(curve=curve, kind=kind, size=size, logs=logs),
            chunk=payload_bytes / chunks(kind=kind, size=size),
            smooth_s=seconds,
            first_log=logs[0],
            last_log=logs[-1],
        )
    return Estimate(seconds, curve.label, curve.spread_frac, curve.source)


def _rate(network: Network) -> float:
    if network.scaleup_bytes_per_s > 0:
        return network.scaleup_bytes_per_s
    return LINK_BYTES_PER_S.get(network.scaleup.removesuffix(RING_ONLY), LINK_BYTES_PER_S["pcie"])


def predict(
    *,
    op: str,
    payload_bytes: float,
    group: Group,
    network: Network,
    curves: Curves,
    fabrics: Mapping[str, Fabric],
    steps: Steps = NO_STEPS,
) -> Estimate:
    """Seconds of one collective with given constants.

    Raises:
        ValueError: an unknown operation, or ranks across domains on a network without NICs.
    """
    if op not in OPS:
        raise ValueError(f"unknown collective {op!r}; known: {', '.join(sorted(OPS))}")
    if group.size <= 1 or payload_bytes <= 0:
        return Estimate(0.0, "published", 0.0, "degree 1")
    if network.library == "gloo":
        return _gloo(op=op, payload_bytes=payload_bytes, group=group, network=network, fabrics=fabrics)
    inside = min(group.size, max(1, group.per_domain))
    link, rate = network.scaleup, _rate(network)
    if group.size <= inside:
        return _inside_s(
            op=op, payload_bytes=payload_bytes, size=group.size, network=network, curves=curves, steps=steps
        )
    found = Inside(BASE_S, math.inf)
    if inside > 1:
        ring, _ = domain_curve(op=op, size=inside, link=link, link_bytes_per_s=rate, curves=curves, in_switch=False)
        switch, kind = domain_curve(op=op, size=inside, link=link, link_bytes_per_s=rate, curves=curves, in_switch=True)
        found = Inside(ring.a_s, ring.bytes_per_s, switch.bytes_per_s if kind == IN_SWITCH_OP else 0.0)
    fabric = fabric_of(network=network, fabrics=fabrics)
    return across_s(op=op, payload_bytes=payload_bytes, group=group, network=network, inside=found, fabric=fabric)


def _gloo(*, op: str, payload_bytes: float, group: Group, network: Network, fabrics: Mapping[str, Fabric]) -> Estimate:
    """Gloo over TCP: the ring crosses a host's NIC once each way, whatever ranks the host holds."""
    if group.size <= max(1, group.per_domain):
        rate, latency_s = LOOPBACK_BYTES_PER_S, 0.0
    else:
        if network.node_bytes_per_s <= 0:
            raise ValueError(f"{group.size} ranks on several nodes, but the network between nodes has no rate")
        own = network.fabric
        latency_s = fabric_of(network=network, fabrics=fabrics).latency_s
        efficiency = own.efficiency if own is not None else FRAMING
        rate = domain_nic_bytes_per_s(network=network, group=group, efficiency=efficiency)
    seconds = gloo_s(op=op, payload_bytes=payload_bytes, size=group.size, bytes_per_s=rate, latency_s=latency_s)
    label = network.fabric.label if network.fabric else "fitted"
    return Estimate(seconds, label, 0.15, "algorithm of gloo's sources over rate and latency")


@lru_cache(maxsize=200_000)
def collective_s(*, op: str, payload_bytes: float, group: Group, network: Network) -> Estimate:
    """Seconds of one collective.

    `payload_bytes` as nccl-tests counts: the message, the full gathered buffer for all-gather and reduce-scatter, the
    send buffer of a rank for all-to-all. A group of one costs nothing.

    Raises:
        ValueError: an unknown operation, or ranks across domains on a network without NICs.
    """
    if network.measured is not None and op in OPS and group.size > 1 and payload_bytes > 0:
        return measured_s(op=op, payload_bytes=payload_bytes, group=group, network=network, model=shipped_model)
    return shipped_model(op=op, payload_bytes=payload_bytes, group=group, network=network)


def shipped_model(*, op: str, payload_bytes: float, group: Group, network: Network) -> Estimate:
    """Seconds of one collective with the packaged constants."""
    return predict(
        op=op,
        payload_bytes=payload_bytes,
        group=group,
        network=network,
        curves=shipped_curves(),
        fabrics=shipped_fabrics(),
        steps=shipped_steps(),
    )


@lru_cache(maxsize=256)
def with_measured(*, network: Network, profile: str) -> Network:
    """A network with the tables of a profile, and the fabric constants that fit them.

    Raises:
        ProfileError: the profile cannot be read.
        ValueError: it holds no collective.
    """
    wire = wire_of_profile(profile)
    prior = fabric_of(network=network, fabrics=shipped_fabrics())
    fabric = fit_fabric(wire=wire, network=network, prior=prior, model=shipped_model)
    return replace(network, measured=wire, fabric=fabric or network.fabric)
