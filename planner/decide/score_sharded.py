"""Passes of a stage of fully sharded blocks: each layer takes the longer of its work and of what the wire does beside.

One block is gathered ahead; a reduction queues before the gather that its end releases; the block that has just run
is not gathered again, so where forward and backward passes alternate a stage keeps its first and last block.
"""

from typing import Any

import numpy as np

from planner.decide.score_seconds import Cell, Passes, Pieces, Shards

Floats = np.ndarray[Any, np.dtype[np.float64]]
Seconds = Floats | float


def sharded_passes(
    *, pieces: Pieces, shards: Shards, cell: Cell, prefetch: int, alternating: bool, first: bool, last: bool
) -> Passes:
    """Passes of one stage.

    Args:
        pieces: work of the blocks.
        shards: gather and reduction of the blocks.
        cell: layers of the stage.
        prefetch: blocks gathered ahead; none means that every gather holds the work.
        alternating: forward and backward passes of one chunk follow each other.
        first: the stage holds the embedding.
        last: the stage holds the head.
    """
    forward: Seconds = 0.0
    backward: Seconds = 0.0
    for count, passes, (gather, reduce) in (
        (cell.dense, pieces.dense, shards.dense),
        (cell.moe, pieces.moe, shards.moe),
    ):
        if not count:
            continue
        if prefetch:
            forward = forward + count * np.maximum(passes.forward_s, gather)
            backward = backward + count * np.maximum(passes.backward_s, gather + reduce)
        else:
            forward = forward + count * (passes.forward_s + gather)
            backward = backward + count * (passes.backward_s + gather + reduce)
    if first:
        forward = forward + pieces.embedding.forward_s
        backward = backward + pieces.embedding.backward_s
    if last:
        forward = forward + pieces.head.forward_s
        backward = backward + pieces.head.backward_s
    if not prefetch:
        more = (sum(shards.embedding) if first else 0.0) + (sum(shards.head) if last else 0.0)
        return Passes(forward_s=np.asarray(forward), backward_s=np.asarray(backward + more))
    if alternating and cell.dense + cell.moe > 1:
        forward, backward = _ends(
            forward=forward, backward=backward, pieces=pieces, shards=shards, cell=cell, first=first, last=last
        )
    elif last:
        layer = pieces.moe if cell.moe else pieces.dense
        forward = forward + np.maximum(shards.head[0] - layer.forward_s, 0.0)
        backward = backward + np.maximum(sum(shards.head) - layer.backward_s, 0.0)
    return Passes(forward_s=np.asarray(forward), backward_s=np.asarray(backward))


def _ends(
    *, forward: Seconds, backward: Seconds, pieces: Pieces, shards: Shards, cell: Cell, first: bool, last: bool
) -> tuple[Seconds, Seconds]:
    """The first and the last layer of a stage, whose neighbours are kept, embedding or head."""
    layer, (g, r) = (pieces.moe, shards.moe) if cell.moe else (pieces.dense, shards.dense)
    f, b = layer.forward_s, layer.backward_s
    (g_head, r_head), (g_table, r_table) = shards.head, shards.embedding
    plain_f, plain_b = np.maximum(f, g), np.maximum(b, g + r)
    # Beside the last layer: the head is gathered, or nothing.
    forward = forward - plain_f + (np.maximum(f, g_head) if last else f)
    # Beside the first backward layer: the layer before it, behind the head's reduction.
    if last:
        head = pieces.head.backward_s
        backward = backward - head + np.maximum(head, g) - plain_b + np.maximum(b, r_head + g)
    else:
        backward = backward - plain_b + np.maximum(b, g)
    # Beside the last backward layer: the embedding, or nothing; then the next micro-batch's second layer.
    backward = backward - plain_b + np.maximum(b, r + (g_table if first else 0.0))
    if first:
        table = pieces.embedding.forward_s + pieces.embedding.backward_s
        backward = backward + np.maximum(r + r_table + g - table, 0.0)
    else:
        forward = forward - plain_f + np.maximum(f, r + g)
    return forward, backward
