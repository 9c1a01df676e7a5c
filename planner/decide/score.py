"""Closed-form step time and memory of all plans of one placement at once.

Layer, head and exchange seconds come from the functions that the forecast itself uses, and bytes from its memory model;
only the order of work is replaced by formulas (`score_pipeline`, `score_sharded`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.catalog.types import ModelSpec
from planner.decide.score_memory import MemoryTables
from planner.decide.score_pipeline import Stage, Work, groups_of, passes_s
from planner.decide.score_seconds import Cell, Passes, Pieces, SecondsTables
from planner.decide.score_sharded import sharded_passes
from planner.decide.space import Axes, schedules_of
from planner.simulate.durations import Machine
from planner.simulate.schedules import SPLIT
from planner.workload.layout import Layout

Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Scored:
    """All plans of a placement.

    Axes: schedule, zero stage, dp overlap, pp overlap, micro-batch, recompute, sequence parallelism, precision, tp
    overlap, mode. What is no plan of its own (sequence parallelism of one tensor rank, overlap of one stage) has
    infinite time, and so have micro-batches of which no plan fits. `plans` counts those that exist, fitting or not.
    """

    schedules: tuple[str, ...]
    step_s: Floats
    memory_bytes: Floats
    plans: int


@dataclass(frozen=True, slots=True)
class _Place:
    """A placement with its micro-batches: sequences of each, and how many of them a step has."""

    layout: Layout
    sizes: tuple[int, ...]
    schedules: tuple[str, ...]
    counts: Floats

    @property
    def micro_batches(self) -> Floats:
        """Counts, shaped as `Passes`."""
        return self.counts.reshape(-1, 1, 1, 1, 1, 1)


class Scorer:
    """Step seconds and bytes by placement, with the shared pieces kept."""

    def __init__(self, *, model: ModelSpec, machine: Machine, axes: Axes) -> None:
        self.model, self.machine, self.axes = model, machine, axes
        self.seconds = SecondsTables(model=model, machine=machine, axes=axes)
        self.memory = MemoryTables(model=model, axes=axes, fusions=machine.software.fusions)
        a = axes
        self._before = tuple(map(len, (a.zero_stage, a.dp_overlap, a.pp_overlap)))
        self._after = tuple(map(len, (a.recompute, a.sequence_parallel, a.precision, a.tp_overlap, a.mode)))
        self._size = math.prod(self._before) * math.prod(
            self._after
        )  # plans of a schedule and micro-batch, existing or not

    def score(self, layout: Layout, sizes: tuple[int, ...] = (), *, capacity_bytes: float = math.inf) -> Scored:
        """Every inner choice of a placement, for micro-batches of `sizes` sequences (that of the layout alone).

        Micro-batches of which nothing fits `capacity_bytes` are counted, not timed.
        """
        sizes = sizes or (layout.micro_batch,)
        hybrid = layout.tp * layout.pp * layout.cp > 1
        layout = replace(layout, gradient_bytes=self.machine.software.gradient_bytes if hybrid else 2)
        layouts = [replace(layout, micro_batch=n) for n in sizes]
        each = [schedules_of(axes=self.axes, layout=x) for x in layouts]
        schedules = max(each, key=len)
        memory = self.memory.total_bytes(layout=layout, schedules=schedules, sizes=sizes)
        step = np.full((len(schedules), *self._before, len(sizes), *self._after), np.inf)
        least = memory.min(axis=(0, 1, 3, 4, 5))
        timed = [i for i in range(len(sizes)) if least[i] <= capacity_bytes]
        if timed:
            counts = np.array([layouts[i].micro_batches for i in timed], dtype=np.float64)
            place = _Place(layout, tuple(sizes[i] for i in timed), schedules, counts)
            step[:, :, :, :, timed] = self._timed(place)
        exists = self._exists(layout=layout, schedules=schedules)
        step[np.broadcast_to(~exists, step.shape)] = np.inf
        known = np.array([[s in names for names in each] for s in schedules])
        for j, i in np.argwhere(~known):
            step[j, :, :, :, i] = np.inf
        per_schedule = exists.sum(axis=tuple(range(1, exists.ndim))) * (self._size // exists[0].size)
        plans = int((per_schedule[:, None] * known).sum())
        # Memory depends neither on overlap nor on captured launches: it is broadcast over them.
        spread = np.broadcast_to(memory[:, :, None, None, ..., None, None], step.shape)
        return Scored(schedules, step, spread, plans)

    def _exists(self, *, layout: Layout, schedules: tuple[str, ...]) -> Bools:
        """Which inner choices are plans of their own; axes as `Scored` with those that do not matter of length one."""
        a = self.axes
        zero = np.array([[z < 3 or s not in SPLIT for z in a.zero_stage] for s in schedules])
        beside = np.array([not on or layout.vpp > 1 for on in a.pp_overlap])
        divides = layout.tp > 1 and (layout.sequence // layout.cp) % layout.tp == 0
        sp = np.array([not on or divides for on in a.sequence_parallel])
        hidden = np.array([not on or layout.tp > 1 for on in a.tp_overlap])
        result: Bools = (
            zero.reshape(*zero.shape, 1, 1, 1, 1, 1, 1, 1, 1)
            & beside.reshape(-1, 1, 1, 1, 1, 1, 1)
            & sp.reshape(-1, 1, 1, 1)
            & hidden.reshape(-1, 1)
        )
        return result

    def _timed(self, place: _Place) -> Floats:
        pieces = self.seconds.pieces(layout=place.layout, sizes=place.sizes)
        step = np.full((len(place.schedules), *self._before, len(place.sizes), *self._after), np.inf)
        self._fill_plain(step=step, place=place, pieces=pieces)
        self._fill_sharded(step=step, place=place, pieces=pieces)
        return step

    def _beside(self, layout: Layout) -> list[tuple[int, bool]]:
        """Transfer overlaps that are plans of their own: only chunks run transfers beside compute."""
        return [(k, on) for k, on in enumerate(self.axes.pp_overlap) if not on or layout.vpp > 1]

    def _fill_plain(self, *, step: Floats, place: _Place, pieces: Pieces) -> None:
        """Plans whose parameters stay gathered: ZeRO-0 to ZeRO-2."""
        chosen = [(i, z) for i, z in enumerate(self.axes.zero_stage) if z < 3]
        if not chosen:
            return
        layout = place.layout
        stages, whole = self._stages(layout=layout, pieces=pieces)
        extras: dict[tuple[int, bool, bool], Floats] = {}
        for at, schedule in enumerate(place.schedules):
            split = schedule in SPLIT
            for i, zero in chosen:
                for j, overlap in enumerate(self.axes.dp_overlap):
                    key = (min(zero, 1), overlap, split)  # ZeRO-2 exchanges what ZeRO-1 does
                    if key not in extras:
                        plan = replace(layout, zero_stage=zero)
                        exposed = self._exposed(place=place, plan=plan, pieces=pieces, overlap=overlap, split=split)
                        extras[key] = exposed + self.seconds.update(plan)
                    step[at, i, j] = extras[key]
            for k, beside in self._beside(layout):
                work = self._work(place=place, schedule=schedule, stages=stages, whole=whole, beside=beside)
                for i, _ in chosen:
                    step[at, i, :, k] += work

    def _work(self, *, place: _Place, schedule: str, stages: Sequence[Stage], whole: Passes, beside: bool) -> Floats:
        layout = place.layout
        return passes_s(
            Work(
                schedule=schedule,
                stages=layout.pp,
                micro_batches=place.micro_batches,
                chunks=layout.vpp,
                candidates=stages,
                forward_s=whole.forward_s,
                backward_s=whole.backward_s,
                send_s=self.seconds.send(layout=layout, sizes=place.sizes),
                p2p_overlap=beside and layout.vpp > 1,
            )
        )

    def _stages(self, *, layout: Layout, pieces: Pieces) -> tuple[list[Stage], Passes]:
        """Stages that can be the slowest, and all of them together."""
        cells, _ = self.seconds.cells(layout)
        dense, moe, table = _both(pieces.dense), _both(pieces.moe), _both(pieces.embedding)
        stages = []
        for cell in cells:
            stage = self._stage(pieces=pieces, cell=cell, pp=layout.pp)
            before = cell.dense_before * dense + cell.moe_before * moe + table if cell.index else 0.0
            stages.append(Stage(cell.index, stage.forward_s, stage.backward_s, before))
        last = cells[-1]
        everything = Cell(0, last.dense_before + last.dense, last.moe_before + last.moe, 0, 0)
        return stages, self._stage(pieces=pieces, cell=everything, pp=1)

    @staticmethod
    def _stage(*, pieces: Pieces, cell: Cell, pp: int) -> Passes:
        forward = cell.dense * pieces.dense.forward_s + cell.moe * pieces.moe.forward_s
        backward = cell.dense * pieces.dense.backward_s + cell.moe * pieces.moe.backward_s
        if cell.index == 0:
            forward, backward = forward + pieces.embedding.forward_s, backward + pieces.embedding.backward_s
        if cell.index == pp - 1:
            forward, backward = forward + pieces.head.forward_s, backward + pieces.head.backward_s
        return Passes(forward_s=forward, backward_s=backward)

    def _exposed(self, *, place: _Place, plan: Layout, pieces: Pieces, overlap: bool, split: bool) -> Floats | float:
        """Gather before the first pass and buckets after the last that nothing hides."""
        start = self.seconds.exchange(plan, stage=0)
        # Weight gradients of a split backward pass end together on all stages.
        ends = [start, self.seconds.exchange(plan, stage=plan.pp - 1)] if split else [start]
        if not overlap:
            return max(e.buckets_s for e in ends) + start.gathers_s
        _, (dense, moe) = self.seconds.cells(plan)
        chunk_f = dense * pieces.dense.forward_s + moe * pieces.moe.forward_s
        chunk_b = dense * pieces.dense.backward_s + moe * pieces.moe.backward_s
        group = groups_of(stages=plan.pp, micro_batches=place.micro_batches) if plan.vpp > 1 else 1.0
        waits = np.maximum(start.gathers_s - (plan.vpp - 1) * group * chunk_f, start.first_gather_s)
        task = chunk_b + pieces.embedding.backward_s
        task = task / 2 if split else task
        left: Floats | float = 0.0
        for end in ends:
            # Bucket i of n is ready at (i + 1) / n of the last task.
            ready = task * ((end.bucket_count - 1) / end.bucket_count)
            late = np.maximum(end.first_chunk_s - ready, end.bucket_s)
            earlier = ready + (plan.vpp - 1) * group * chunk_b
            left = np.maximum(left, np.maximum(late, end.buckets_s - earlier))
        result: Floats = waits + left
        return result

    def _fill_sharded(self, *, step: Floats, place: _Place, pieces: Pieces) -> None:
        """Plans of fully sharded blocks; those do not split their backward pass."""
        if 3 not in self.axes.zero_stage or all(s in SPLIT for s in place.schedules):
            return
        zero, plan = self.axes.zero_stage.index(3), replace(place.layout, zero_stage=3)
        around = self._around(layout=plan, pieces=pieces) + self.seconds.update(plan)
        found: dict[bool, tuple[list[Stage], Passes]] = {}
        for at, schedule in enumerate(place.schedules):
            if schedule in SPLIT:
                continue
            alternating = plan.pp == 1 or schedule == "1f1b"
            if alternating not in found:
                found[alternating] = self._sharded_stages(layout=plan, pieces=pieces, alternating=alternating)
            stages, whole = found[alternating]
            for k, beside in self._beside(plan):
                work = self._work(place=place, schedule=schedule, stages=stages, whole=whole, beside=beside)
                step[at, zero, :, k] = work + around

    def _around(self, *, layout: Layout, pieces: Pieces) -> Floats:
        """The first gather and the last reductions of fully sharded blocks."""
        shards = self.seconds.shards(layout)
        reduce = (shards.moe if self.model.moe_experts else shards.dense)[1]
        result: Floats = sum(shards.embedding) + np.maximum(reduce - pieces.embedding.backward_s, 0.0)
        return result

    def _sharded_stages(self, *, layout: Layout, pieces: Pieces, alternating: bool) -> tuple[list[Stage], Passes]:
        shards = self.seconds.shards(layout)
        cells, _ = self.seconds.cells(layout)
        prefetch = self.machine.software.fsdp_prefetch

        def passes(cell: Cell, *, first: bool, last: bool) -> Passes:
            return sharded_passes(
                pieces=pieces, shards=shards, cell=cell, prefetch=prefetch, alternating=alternating, first=first,
                last=last,
            )  # fmt: skip

        stages = []
        for cell in cells:
            own = passes(cell, first=cell.index == 0, last=cell.index == layout.pp - 1)
            before: Floats | float = 0.0
            if cell.index:
                before = _both(passes(Cell(0, cell.dense_before, cell.moe_before, 0, 0), first=True, last=False))
            stages.append(Stage(cell.index, own.forward_s, own.backward_s, before))
        end = cells[-1]
        everything = Cell(0, end.dense_before + end.dense, end.moe_before + end.moe, 0, 0)
        return stages, passes(everything, first=True, last=True)


def _both(passes: Passes) -> Floats:
    return passes.forward_s + passes.backward_s


def best_of(scored: Scored, *, capacity_bytes: float, keep: int) -> tuple[int, Sequence[tuple[float, float, Any]]]:
    """(plans out of memory, the fastest that fit as (step, bytes, index))."""
    step = np.where(scored.memory_bytes <= capacity_bytes, scored.step_s, np.inf).ravel()
    out_of_memory = scored.plans - int(np.count_nonzero(np.isfinite(step)))
    keep = min(keep, step.size)
    chosen = np.argpartition(step, keep - 1)[:keep]
    memory = scored.memory_bytes
    found = [(int(i), np.unravel_index(int(i), memory.shape)) for i in chosen if np.isfinite(step[i])]
    return out_of_memory, [(float(step[i]), float(memory[at]), at) for i, at in found]
