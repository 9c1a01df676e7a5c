"""Seconds of a data-parallel exchange that is compressed: encode kernels, the wire, decode kernels.

Quantised gradients cannot be summed on their way, so a reduction becomes an all-to-all of the quantised shares, a
reduction on each rank, and (for all-reduce) an all-gather: the scheme of 1-bit Adam (arXiv 2102.02888, section 5) and
of ZeRO++ (arXiv 2306.10209). Across domains ZeRO++ exchanges inside the domain first, so that each byte crosses once.
Kernels are memory-bound passes over the gradient; a low-rank exchange (PowerSGD, arXiv 1905.13727) has three thin
products, which are memory-bound too.
"""

from functools import lru_cache

from planner.cost.collective import collective_s
from planner.cost.kernels import memory_bound_s
from planner.cost.types import Estimate, Group, Network
from planner.workload.exchange import ELEMENT_BYTES, ERROR_FEEDBACK, Exchange

FACTOR_BYTES = 4.0  # low-rank factors stay fp32
REDUCTIONS = {"all_reduce", "reduce_scatter"}


@lru_cache(maxsize=50_000)
def exchange_s(
    *, exchange: Exchange, op: str, nbytes: float, element_bytes: float, group: Group, network: Network, gpu: str
) -> Estimate:
    """Seconds of one exchange of gradients (all_reduce, reduce_scatter) or weights (all_gather).

    Args:
        exchange: how it is compressed.
        op: the plain operation that it stands for.
        nbytes: payload of that operation, as nccl-tests count.
        element_bytes: bytes of an element of that payload.
        group: the ranks.
        network: where they sit.
        gpu: the part that encodes and decodes.
    """
    if group.size <= 1 or nbytes <= 0:
        return Estimate(0.0, "published", 0.0, "degree 1")
    plain = collective_s(op=op, payload_bytes=nbytes, group=group, network=network)
    elements = nbytes / element_bytes
    if op == "all_gather":
        return _gather(exchange=exchange, plain=plain, elements=elements, group=group, network=network, gpu=gpu)
    if op not in REDUCTIONS or exchange.kind == "none":
        return plain
    if exchange.kind == "fp16":
        if element_bytes <= ELEMENT_BYTES["fp16"]:
            return plain
        wire = collective_s(op=op, payload_bytes=2.0 * elements, group=group, network=network)
        kernels = 2 * _pass_s(gpu=gpu, nbytes=(element_bytes + 2.0) * elements)
        return _joined(wire=wire, kernels_s=kernels)
    if exchange.kind == "lowrank":
        return _low_rank(exchange=exchange, elements=elements, group=group, network=network, gpu=gpu,
                         element_bytes=element_bytes)  # fmt: skip
    found = _quantised(exchange=exchange, op=op, elements=elements, element_bytes=element_bytes, group=group,
                       network=network, gpu=gpu)  # fmt: skip
    if exchange.kind != "onebit":
        return found
    w = exchange.warmup_frac
    return _scaled(found, (w * plain.seconds + (1 - w) * found.seconds) / found.seconds)


def _pass_s(*, gpu: str, nbytes: float) -> float:
    return memory_bound_s(gpu=gpu, nbytes=nbytes).seconds


def _joined(*, wire: Estimate, kernels_s: float) -> Estimate:
    return Estimate(wire.seconds + kernels_s, wire.label, max(0.2, wire.spread_frac), f"{wire.source}; coded")


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.seconds * factor, estimate.label, estimate.spread_frac, estimate.source)


def _levels(*, group: Group) -> tuple[tuple[Group, float], ...]:
    """Groups of a hierarchical all-to-all with the share of the payload that each sees."""
    inside = min(group.size, max(1, group.per_domain))
    if inside in {1, group.size}:
        return ((group, 1.0),)
    across = Group(size=group.size // inside, per_domain=1, nic_sharers=group.nic_sharers * inside)
    return ((Group(size=inside, per_domain=inside), 1.0), (across, 1.0 / inside))


def _quantised(
    *, exchange: Exchange, op: str, elements: float, element_bytes: float, group: Group, network: Network, gpu: str
) -> Estimate:
    coded = ELEMENT_BYTES[exchange.kind]
    feedback = 8.0 if exchange.kind in ERROR_FEEDBACK else 0.0  # what was not sent is read and written, fp32
    kernels = _pass_s(gpu=gpu, nbytes=(element_bytes + coded + feedback) * elements)
    wires = []
    for level, share in _levels(group=group):
        wires.append(
            collective_s(op="all_to_all", payload_bytes=coded * elements * share, group=level, network=network)
        )
        # Each rank reads the shares that it received and writes their sum, coded again.
        kernels += _pass_s(gpu=gpu, nbytes=coded * elements * share * (1 + 1 / level.size))
    if op == "all_reduce":
        wires.append(collective_s(op="all_gather", payload_bytes=coded * elements, group=group, network=network))
        kernels += _pass_s(gpu=gpu, nbytes=(element_bytes + coded) * elements)
    else:
        kernels += _pass_s(gpu=gpu, nbytes=(element_bytes + coded) * elements / group.size)
    slowest = max(wires, key=lambda e: e.seconds)
    return _joined(wire=_scaled(slowest, sum(e.seconds for e in wires) / slowest.seconds), kernels_s=kernels)


def _low_rank(
    *, exchange: Exchange, elements: float, element_bytes: float, group: Group, network: Network, gpu: str
) -> Estimate:
    """Two all-reduces of the factors; gradient and error are read for each factor and read and written for the rest."""
    factor = FACTOR_BYTES * elements * exchange.rank / exchange.side
    wire = collective_s(op="all_reduce", payload_bytes=factor, group=group, network=network)
    kernels = 2 * _pass_s(gpu=gpu, nbytes=(element_bytes + 4.0) * elements + factor)
    kernels += _pass_s(gpu=gpu, nbytes=(2 * element_bytes + 8.0) * elements + 2 * factor)
    kernels += exchange.rank * _pass_s(gpu=gpu, nbytes=2 * factor / exchange.rank)  # orthogonal columns, one by one
    return _joined(wire=_scaled(wire, 2.0), kernels_s=kernels)


def _gather(
    *, exchange: Exchange, plain: Estimate, elements: float, group: Group, network: Network, gpu: str
) -> Estimate:
    """Weights gathered: in int8 where asked; the backward one of two from the second copy inside the domain."""
    found = plain
    kernels = 0.0
    nbytes = 2.0 * elements
    if exchange.weights == "int8":
        nbytes = ELEMENT_BYTES["int8"] * elements
        wire = collective_s(op="all_gather", payload_bytes=nbytes, group=group, network=network)
        kernels = _pass_s(gpu=gpu, nbytes=(2.0 + ELEMENT_BYTES["int8"]) * elements / group.size)
        kernels += _pass_s(gpu=gpu, nbytes=(2.0 + ELEMENT_BYTES["int8"]) * elements)
        found = _joined(wire=wire, kernels_s=kernels)
    inside = min(group.size, max(1, group.per_domain))
    if not exchange.secondary or inside == group.size:
        return found
    near = Group(size=inside, per_domain=inside)
    backward = collective_s(op="all_gather", payload_bytes=nbytes, group=near, network=network).seconds + kernels
    # A sharded block is gathered once for each pass; the plan holds one duration for both.
    return _scaled(found, (found.seconds + backward) / 2 / found.seconds)
