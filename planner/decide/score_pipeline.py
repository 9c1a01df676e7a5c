"""Closed forms of the order of work: seconds that the passes of a step take, for many plans at once.

With F and B the seconds of one micro-batch on a stage (all its chunks), p stages, m micro-batches and v chunks a stage:

- gpipe: both halves fill the pipeline once, (m - 1) max + sum each (Huang et al. 2019, arXiv 1811.06965);
- 1f1b: m (F + B) on a stage, the way to it and back, and its idle time while the first micro-batch goes round the
  stages behind it (Narayanan et al. 2021, arXiv 2104.04473);
- interleaved: the fill divided by v; a chunk waits where the round trip through all stages is longer than the group
  of micro-batches that passes one chunk (ibid., section 2.2);
- zb1p, zb2p: of the fill, weight gradients of p - 1 or 2 (p - 1) micro-batches take their share (Qi et al. 2023, arXiv
  2401.10241, table 1);
- dualpipev: two chunks a stage in a V, (p - 1) forward passes of a chunk stay empty (DeepSeek-AI 2025).

Tests hold each of them to the recurrence that evaluates the same order of work task by task.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.simulate.schedules import group_size

Floats = np.ndarray[Any, np.dtype[np.float64]]
Seconds = Floats | float


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that may be the slowest: its place, its own passes, and those of all stages before it.

    Attributes:
        index: place in the pipeline.
        forward_s: forward pass of one micro-batch through all chunks of the stage.
        backward_s: backward pass, recompute and weight gradient included.
        before_s: forward and backward passes of the stages before it.
    """

    index: int
    forward_s: Seconds
    backward_s: Seconds
    before_s: Seconds


@dataclass(frozen=True, slots=True)
class Work:
    """What a pipeline has to run; `candidates` are the stages that may be the slowest, both ends among them."""

    schedule: str
    stages: int
    micro_batches: Seconds  # a count, or an array of them that broadcasts with the seconds
    chunks: int
    candidates: Sequence[Stage]
    forward_s: Seconds  # all stages, one micro-batch
    backward_s: Seconds
    send_s: Seconds = 0.0
    p2p_overlap: bool = True


def passes_s(work: Work) -> Floats:
    """Seconds from the first forward pass to the end of the last backward pass of the slowest way through."""
    if work.stages == 1:
        only = work.candidates[0]
        return np.asarray(work.micro_batches * (only.forward_s + only.backward_s))
    form = {
        "gpipe": _gpipe,
        "1f1b": _one_forward_one_backward,
        "interleaved": _interleaved,
        "zb1p": _zero_bubble,
        "zb2p": _zero_bubble,
        "dualpipev": _dualpipev,
    }[work.schedule]
    return np.asarray(form(work))


def groups_of(*, stages: int, micro_batches: Seconds) -> Floats:
    """Micro-batches that pass a chunk before the next one starts, for each count of micro-batches."""
    counts = np.asarray(micro_batches)
    sizes = [group_size(stages=stages, micro_batches=int(m)) for m in counts.ravel()]
    return np.array(sizes, dtype=np.float64).reshape(counts.shape)


def _hops(work: Work, stage: Stage) -> tuple[int, int]:
    """Whether a stage receives a forward input and a backward input from another one."""
    return int(stage.index > 0), int(stage.index < work.stages - 1)


def _gpipe(work: Work) -> Seconds:
    m, p, send = work.micro_batches, work.stages, work.send_s
    forward: Seconds = 0.0
    backward: Seconds = 0.0
    for stage in work.candidates:
        # A transfer that is not overlapped holds the sender before its next pass and the receiver before this one.
        forward = np.maximum(forward, stage.forward_s + send)
        backward = np.maximum(backward, stage.backward_s + send)
    both = work.forward_s + work.backward_s + 2 * (p - 1) * send
    return both + (m - 1) * (forward + backward)


def _one_forward_one_backward(work: Work) -> Seconds:
    m, p, send = work.micro_batches, work.stages, work.send_s
    total = work.forward_s + work.backward_s + 2 * (p - 1) * send
    out: Seconds = 0.0
    for stage in work.candidates:
        k, (into, back) = stage.index, _hops(work, stage)
        f, b = stage.forward_s + into * send, stage.backward_s + back * send
        before = stage.before_s + (2 * k - into) * send
        behind = total - before - f - b
        held = np.minimum(p - k, m) - 1  # passes that fill the way of the first and of the last micro-batch
        front = np.maximum(behind - held * f, 0.0)
        tail = np.maximum(behind * (held / max(p - k - 1, 1)) - held * b, 0.0)
        out = np.maximum(out, before + m * (f + b) + front + tail)
    return out


def _interleaved(work: Work) -> Seconds:
    m, p, v, send = work.micro_batches, work.stages, work.chunks, work.send_s
    group = groups_of(stages=p, micro_batches=m)
    held = 0.0 if work.p2p_overlap else v * send  # a transfer before each pass of a chunk
    hop = send if work.p2p_overlap else 0.0
    forward = (work.forward_s + p * held) / v + p * hop
    backward = (work.backward_s + p * held) / v + p * hop
    out: Seconds = 0.0
    for stage in work.candidates:
        f, b = stage.forward_s + held, stage.backward_s + held
        fill = forward + backward - 2 * hop - (f + b) / v
        rounds = np.maximum(forward - group * f / v, 0.0) + np.maximum(backward - group * b / v, 0.0)
        out = np.maximum(out, m * (f + b) + fill + (v - 1) * rounds)
    return out


def _zero_bubble(work: Work) -> Seconds:
    m, p, send = work.micro_batches, work.stages, work.send_s
    most = p if work.schedule == "zb1p" else 2 * p - 1
    way = work.forward_s + 0.5 * work.backward_s + 2 * (p - 1) * send
    out: Seconds = 0.0
    for stage in work.candidates:
        into, back = _hops(work, stage)
        # Sending the input gradient holds the weight gradient too.
        f, b, w = stage.forward_s + into * send, 0.5 * stage.backward_s + back * send, 0.5 * stage.backward_s
        late = into * send
        # The gaps are those of the other stages.
        others_f = (work.forward_s - stage.forward_s) / (p - 1)
        others_w = 0.5 * (work.backward_s - stage.backward_s) / (p - 1)
        fill = way - f - b - (np.minimum(m, most) - 1) * np.minimum(others_f, others_w)
        out = np.maximum(out, m * (f + b + w + late) + fill)
    return out


def _dualpipev(work: Work) -> Seconds:
    m, p, send = work.micro_batches, work.stages, work.send_s
    hops = (max(2 * (p - 1), 3 * p - 6) if work.p2p_overlap else 4 * m + (p - 4)) * send
    f, b = work.forward_s / (2 * p), work.backward_s / (4 * p)  # one chunk, mean over stages
    fill = np.maximum((p - 1) * f, (p - 1) * b - f)
    slowest: Seconds = 0.0
    for stage in work.candidates:
        slowest = np.maximum(slowest, stage.forward_s + stage.backward_s)
    return m * slowest + fill + hops
