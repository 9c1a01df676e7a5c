"""Collectives of the gloo library over TCP, from the rate and the one-way latency of a link.

The algorithms are those of gloo's sources (pytorch/gloo, gloo/allreduce.cc, allgather.cc, broadcast.cc, alltoall.cc):
all-reduce is a ring of reduce-scatter and all-gather. A message is cut into segments of at most 1 MB, at least two a
rank, and two segments are under way at a time. A receiver announces its buffer before a sender starts
(transport/tcp/pair.cc), so that every segment waits for one latency to be asked for and one to arrive.
"""

import math

SEGMENT_BYTES = 2**20
# Payload of a full Ethernet frame with TCP time stamps over what it holds on the wire (IEEE 802.3: preamble, header,
# check sum, gap): 1448 of 1538 bytes.
FRAMING = 1448 / 1538
# What threads and kernel add to a message, and the rate between ranks of one host: all-reduce of 4 KB (336 us, four
# messages) and 64 MB (1.15 GB/s) over the loopback of a two-core virtual machine, torch 2.13, 2026-12-01.
MESSAGE_S = 80e-6
LOOPBACK_BYTES_PER_S = 1.15e9


def ring_phase_s(*, segments: int, segment_s: float, message_s: float) -> float:
    """Seconds until a rank has received `segments` from its neighbour, two of them under way at a time.

    Segment i is asked for when segment i - 2 has arrived; asking and arriving take `message_s` each; the link carries
    one segment in `segment_s`. Either the link is always busy or every pair of segments waits for both messages.
    """
    if segments <= 0:
        return 0.0
    busy = 2 * message_s + segments * segment_s
    waiting = math.ceil(segments / 2) * (2 * message_s + segment_s) + (0.0 if segments % 2 else segment_s)
    return max(busy, waiting)


def gloo_s(*, op: str, payload_bytes: float, size: int, bytes_per_s: float, latency_s: float) -> float:
    """Seconds of one collective of gloo; payload as nccl-tests count it.

    Args:
        op: one of `planner.cost.collective.OPS`.
        payload_bytes: the message, the full buffer for gather and scatter, the send buffer for all-to-all.
        size: ranks.
        bytes_per_s: rate that a rank's link has for payload.
        latency_s: one way, between two ranks.

    Raises:
        ValueError: an unknown operation or no rate.
    """
    if bytes_per_s <= 0:
        raise ValueError("gloo needs a rate")
    if size <= 1 or payload_bytes <= 0:
        return 0.0
    message = latency_s + MESSAGE_S
    whole = payload_bytes / bytes_per_s
    if op in {"all_reduce", "reduce_scatter"}:
        # torch builds its reduce-scatter on gloo's all-reduce.
        each = math.ceil(max(math.ceil(payload_bytes / SEGMENT_BYTES), 2 * size) / size)
        return 2 * ring_phase_s(segments=each * (size - 1), segment_s=whole / (each * size), message_s=message)
    if op == "all_gather":
        return ring_phase_s(segments=2 * (size - 1), segment_s=whole / (2 * size), message_s=message)
    if op == "broadcast":
        return math.ceil(math.log2(size)) * (2 * message + whole)
    if op == "all_to_all":
        return 2 * message + whole * (size - 1) / size
    if op == "send_recv":
        return 2 * message + whole
    raise ValueError(f"unknown collective {op!r}")
