"""Which groups of ranks and which sizes a calibration of collectives covers: pure functions of where the ranks sit."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
SMALLEST_BYTES, LARGEST_BYTES, FACTOR = 2**10, 2**32, 4
BUFFERS = 3  # send, receive, and room for the library


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks measured together: inside a node, across whole nodes, or one rank of each node."""

    name: str
    ranks: tuple[int, ...]
    nodes: int


def _doublings(limit: int) -> list[int]:
    """2, 4, 8, ... and the limit itself."""
    out, size = [], 2
    while size < limit:
        out.append(size)
        size *= 2
    return [*out, limit] if limit > 1 else []


def rank_groups(node_of_rank: Sequence[int]) -> tuple[RankGroup, ...]:
    """Groups to measure, given each rank's node.

    Inside the fullest node 2, 4, ... ranks; over 2, 4, ... nodes all of their ranks, and one rank of each.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for rank, node in enumerate(node_of_rank):
        members[node].append(rank)
    nodes = sorted(members, key=lambda n: (-len(members[n]), n))
    if not nodes:
        return ()
    out = [RankGroup("in_node", tuple(members[nodes[0]][:n]), 1) for n in _doublings(len(members[nodes[0]]))]
    for count in _doublings(len(nodes)):
        chosen = nodes[:count]
        if any(len(members[n]) > 1 for n in chosen):
            out.append(RankGroup("across_nodes", tuple(sorted(r for n in chosen for r in members[n])), count))
        out.append(RankGroup("one_a_node", tuple(sorted(members[n][0] for n in chosen)), count))
    return tuple(out)


def sizes(*, free_bytes: float, smallest: int = SMALLEST_BYTES, largest: int = LARGEST_BYTES) -> tuple[int, ...]:
    """Message sizes from smallest to largest, as far as `BUFFERS` of them fit in the free memory."""
    out, size = [], smallest
    while size <= min(largest, free_bytes / BUFFERS):
        out.append(size)
        size *= FACTOR
    return tuple(out)


def missing(groups: Sequence[RankGroup]) -> tuple[str, ...]:
    """In words, what cannot be measured on the machines at hand."""
    names = {g.name for g in groups}
    if not names:
        return (
            "one process: nothing between GPUs or nodes can be measured here (NVLink, PCIe peer copies, network cards, "
            "all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, send and receive, slow-down beside a "
            "collective); measured are the kernels that reduce and copy, and the path through host memory",
        )
    out = []
    if "in_node" not in names:
        out.append("one rank a node: nothing inside a node (NVLink, PCIe peer copies) can be measured here")
    if "one_a_node" not in names:
        out.append("one node: nothing between nodes (network cards, switches) can be measured here")
    return tuple(out)
