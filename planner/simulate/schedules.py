"""Order of work on every pipeline stage: the only source of who runs what, and when in the queue.

A task is one pass of one micro-batch through one chunk of layers. Schedules that split the backward pass (`SPLIT`)
have a third kind, `weight`: the weight gradient, which nothing but the optimizer waits for.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Kind = Literal["forward", "backward", "weight"]

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb1p", "zb2p", "dualpipev")
SPLIT = frozenset({"zb1p", "zb2p", "dualpipev"})
ONE_CHUNK = frozenset({"1f1b", "zb1p", "zb2p"})


@dataclass(frozen=True, slots=True)
class Task:
    """One pass of a micro-batch through a chunk."""

    kind: Kind
    micro_batch: int
    chunk: int


Order = tuple[tuple[Task, ...], ...]
Place = tuple[int, int]


class _Tasks:
    """One shared object for each task."""

    def __init__(self, *, micro_batches: int, chunks: int) -> None:
        kinds: tuple[Kind, ...] = ("forward", "backward", "weight")
        self._of = {
            (k, c): [Task(kind=k, micro_batch=i, chunk=c) for i in range(micro_batches)]
            for k in kinds
            for c in range(chunks)
        }

    def forward(self, micro_batch: int, chunk: int = 0) -> Task:
        return self._of["forward", chunk][micro_batch]

    def backward(self, micro_batch: int, chunk: int = 0) -> Task:
        return self._of["backward", chunk][micro_batch]

    def weight(self, micro_batch: int, chunk: int = 0) -> Task:
        return self._of["weight", chunk][micro_batch]


def check(*, schedule: str, stages: int, micro_batches: int, chunks: int) -> None:
    """Raise ValueError where the schedule does not exist for these sizes."""
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown pipeline schedule {schedule!r}; known: {', '.join(SCHEDULES)}")
    if min(stages, micro_batches, chunks) < 1:
        raise ValueError(f"stages {stages}, micro-batches {micro_batches} and chunks {chunks} must be at least 1")
    if schedule in ONE_CHUNK and chunks != 1:
        raise ValueError(f"schedule {schedule} runs one chunk a stage, not {chunks}; use interleaved")
    if schedule == "dualpipev" and (chunks != 2 or micro_batches < 2 * stages):
        needs = f"2 chunks a stage and at least {2 * stages} micro-batches"
        raise ValueError(f"dualpipev needs {needs}, not {chunks} and {micro_batches}")


@lru_cache(maxsize=256)
def order(*, schedule: str, stages: int, micro_batches: int, chunks: int) -> Order:
    """Tasks of each stage in the order that it runs them.

    Args:
        schedule: one of `SCHEDULES`.
        stages: pipeline stages.
        micro_batches: micro-batches of one optimizer step.
        chunks: model chunks on each stage (virtual pipeline size).

    Raises:
        ValueError: the schedule does not exist for these sizes.
    """
    check(schedule=schedule, stages=stages, micro_batches=micro_batches, chunks=chunks)
    p, m, v = stages, micro_batches, chunks
    tasks = _Tasks(micro_batches=m, chunks=v)
    if schedule == "gpipe":
        return (_breadth_first(tasks=tasks, m=m, v=v),) * p
    if schedule == "dualpipev":
        return tuple(_dualpipev(tasks=tasks, stage=s, p=p, m=m) for s in range(p))
    if schedule == "zb1p":
        return tuple(_zero_bubble(tasks=tasks, m=m, warmup=p - s - 1, late=s) for s in range(p))
    if schedule == "zb2p":
        return tuple(_zero_bubble(tasks=tasks, m=m, warmup=2 * (p - s - 1), late=2 * s) for s in range(p))
    return tuple(_one_forward_one_backward(tasks=tasks, stage=s, p=p, m=m, v=v) for s in range(p))


def _breadth_first(*, tasks: _Tasks, m: int, v: int) -> tuple[Task, ...]:
    forward = [tasks.forward(i, c) for c in range(v) for i in range(m)]
    return tuple(forward + [tasks.backward(i, c) for c in reversed(range(v)) for i in range(m)])


def group_size(*, stages: int, micro_batches: int) -> int:
    """Consecutive micro-batches of one chunk in the interleaved schedule.

    Megatron's default is the number of stages; it wants the last, smaller group to be empty or at least as large as
    the pipeline, so the smallest group that grants this is taken.
    """
    if micro_batches <= stages:
        return micro_batches
    sizes = range(stages, micro_batches + 1)
    return next(n for n in sizes if micro_batches % n == 0 or micro_batches % n >= stages)


def _one_forward_one_backward(*, tasks: _Tasks, stage: int, p: int, m: int, v: int) -> tuple[Task, ...]:
    """Megatron's 1F1B, interleaved for more than one chunk."""
    group = group_size(stages=p, micro_batches=m)
    table = [(i, c) for g in range(0, m, group) for c in range(v) for i in range(g, min(g + group, m))]
    forward = [tasks.forward(i, c) for i, c in table]
    backward = [tasks.backward(i, v - 1 - c) for i, c in table]
    warmup = p - stage - 1 if v == 1 else 2 * (p - stage - 1) + (v - 1) * group
    warmup = min(warmup, m * v)
    out = forward[:warmup]
    for f, b in zip(forward[warmup:], backward, strict=False):
        out += (f, b)
    return tuple(out + backward[m * v - warmup :])


def _zero_bubble(*, tasks: _Tasks, m: int, warmup: int, late: int) -> tuple[Task, ...]:
    """ZB-H1 and ZB-H2 (Qi et al. 2023): a stage may be `late` weight gradients behind its input gradients."""
    warmup = min(warmup, m)
    out = [tasks.forward(i) for i in range(warmup)]
    done = 0
    for i in range(m):
        if warmup + i < m:
            out.append(tasks.forward(warmup + i))
        out.append(tasks.backward(i))
        if i + 1 - done > late:
            out.append(tasks.weight(done))
            done += 1
    return tuple(out + [tasks.weight(i) for i in range(done, m)])


class _Queue:
    """Writes the order of one DualPipeV rank; weight gradients wait in a queue when asked to."""

    def __init__(self, tasks: _Tasks) -> None:
        self.out: list[Task] = []
        self._tasks = tasks
        self._next = {"forward": [0, 0], "backward": [0, 0]}
        self._waiting: deque[Task] = deque()

    def _count(self, kind: str, chunk: int) -> int:
        i = self._next[kind][chunk]
        self._next[kind][chunk] += 1
        return i

    def forward(self, chunk: int) -> None:
        self.out.append(self._tasks.forward(self._count("forward", chunk), chunk))

    def backward(self, chunk: int, *, split: bool = False) -> None:
        i = self._count("backward", chunk)
        self.out.append(self._tasks.backward(i, chunk))
        (self._waiting if split else self.out).append(self._tasks.weight(i, chunk))

    def weight(self) -> None:
        self.out.append(self._waiting.popleft())

    def both(self, forward: int, backward: int) -> None:
        self.forward(forward)
        self.backward(backward)


def _dualpipev(*, tasks: _Tasks, stage: int, p: int, m: int) -> tuple[Task, ...]:
    """DualPipeV (DeepSeek 2025): chunk 0 runs down the stages, chunk 1 back up; the published eight phases."""
    queue, later = _Queue(tasks), p - stage - 1
    for _ in range(2 * later):
        queue.forward(0)
    for _ in range(stage + 1):
        queue.forward(0)
        queue.forward(1)
    for _ in range(later):
        queue.backward(1, split=True)
        queue.weight()
        queue.forward(1)
    for _ in range(m - 2 * p + stage + 1):
        queue.both(0, 1)
        queue.both(1, 0)
    for _ in range(later):
        queue.backward(1)
        queue.both(1, 0)
    for i, chunk in ((i, c) for i in range(stage + 1) for c in (1, 0)):
        half = (stage + 1) // 2
        queue.backward(chunk, split=i > half or (i == half and (stage % 2 == 1 or chunk == 0)))
    for _ in range(later):
        queue.weight()
        queue.backward(0, split=True)
    for _ in range(stage + 1):
        queue.weight()
    return tuple(queue.out)


def upstream(*, schedule: str, stages: int, chunks: int, stage: int, chunk: int) -> Place | None:
    """Stage and chunk whose output a chunk's forward pass reads; None for the first."""
    if schedule == "dualpipev" and chunk == 1:
        return (stage, 0) if stage == stages - 1 else (stage + 1, 1)
    if stage > 0:
        return (stage - 1, chunk)
    return (stages - 1, chunk - 1) if chunk > 0 and schedule != "dualpipev" else None


def downstream(*, schedule: str, stages: int, chunks: int, stage: int, chunk: int) -> Place | None:
    """Stage and chunk that read a chunk's output; None for the last."""
    if schedule == "dualpipev":
        if chunk == 1:
            return (stage - 1, 1) if stage > 0 else None
        return (stage, 1) if stage == stages - 1 else (stage + 1, 0)
    if stage < stages - 1:
        return (stage + 1, chunk)
    return (0, chunk + 1) if chunk < chunks - 1 else None


def last_gradient_tasks(tasks: tuple[Task, ...], *, split: bool) -> Iterator[tuple[int, int]]:
    """Position and chunk of the task that completes each chunk's gradients, in the order of the stage."""
    kind = "weight" if split else "backward"
    last = {task.chunk: i for i, task in enumerate(tasks) if task.kind == kind}
    return iter(sorted((i, chunk) for chunk, i in last.items()))


@lru_cache(maxsize=256)
def in_flight(*, schedule: str, stages: int, micro_batches: int, chunks: int) -> tuple[int, ...]:
    """Most chunk activations that each stage holds at once: forward done, its backward not."""
    peaks = []
    for tasks in order(schedule=schedule, stages=stages, micro_batches=micro_batches, chunks=chunks):
        held = peak = 0
        for task in tasks:
            held += {"forward": 1, "backward": -1, "weight": 0}[task.kind]
            peak = max(peak, held)
        peaks.append(peak)
    return tuple(peaks)
