"""Bytes of the fullest rank for all inner choices of a placement, from the forecast's own memory model.

Kept activations and buffers grow in proportion to the tokens of a micro-batch on a rank, and with the chunks that a
stage holds; so a few calls of `rank_memory` on layouts of one and two sequences say them for every placement of the
same tensor and expert degrees. Stacks whose buffers follow the parameters of a stage are asked plan by plan.
"""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from planner.catalog.types import ModelSpec
from planner.decide.space import Axes
from planner.workload.layout import Layout
from planner.workload.memory import chunks_held, gathered_bytes, rank_memory
from planner.workload.memory_activations import layer_activation_bytes
from planner.workload.memory_stack import stack_of
from planner.workload.memory_states import rank_states, stage_layers

Floats = np.ndarray[Any, np.dtype[np.float64]]
PROBE_LAYERS = 4


def stages_of(pp: int) -> tuple[int, ...]:
    """Stages that can be the fullest, as `worst_rank` looks at them."""
    return tuple(range(pp)) if pp <= 8 else (0, 1, pp - 2, pp - 1)


class MemoryTables:
    """Memory by placement; axes (schedule, zero stage, micro-batch, recompute, sequence parallelism, precision)."""

    def __init__(self, *, model: ModelSpec, axes: Axes, fusions: frozenset[str]) -> None:
        self.model, self.axes, self.fusions = model, axes, fusions
        self.stack = stack_of(fusions)
        s = self.stack
        self._plan_by_plan = bool(
            s.dropout or s.bucket_elements or s.cached_wgrad or s.step_copy_stays or s.fp8_copies_bytes
        )
        self._shape = (len(axes.recompute), len(axes.sequence_parallel), len(axes.precision))
        self._memo: dict[Hashable, Any] = {}

    def total_bytes(self, *, layout: Layout, schedules: tuple[str, ...], sizes: tuple[int, ...]) -> Floats:
        """Allocator peak and reserve of the fullest rank of every inner choice, micro-batches of `sizes` sequences."""
        if self._plan_by_plan:
            return np.stack([self._asked(replace(layout, schedule=s), sizes) for s in schedules])
        dense, moe = self._held(layout, schedules, sizes)  # (schedule, stage, micro-batch)
        kept_dense, kept_moe = self._kept(layout)
        constant, slope = self._buffers(layout)
        share = (np.array(sizes) / layout.cp).reshape(-1, 1, 1, 1)
        held = dense[..., None, None, None] * kept_dense
        if self.model.moe_experts:
            held = held + moe[..., None, None, None] * kept_moe
        live = constant[:, None] + share * (slope[:, None] + held)
        states, gathered = self._states(layout)  # (stage, zero), (zero,)
        frac = self.stack.reserve_frac
        fixed = states * (1 + (frac if self.stack.states_fragment else 0.0)) + gathered * (1 + frac)
        live *= 1 + frac
        live += self.stack.outside_bytes
        total = live[:, 0, None] + fixed[0, :, None, None, None, None]
        for stage in range(1, live.shape[1]):
            np.maximum(total, live[:, stage, None] + fixed[stage, :, None, None, None, None], out=total)
        return total

    def _inner(self, layout: Layout) -> list[Layout]:
        a = self.axes
        return [
            replace(layout, recompute=r, sequence_parallel=sp and layout.tp > 1, precision=p)
            for r in a.recompute
            for sp in a.sequence_parallel
            for p in a.precision
        ]

    def _held(self, layout: Layout, schedules: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Dense and expert layers times the micro-batches that each stage holds of them."""
        local = layout.global_batch // layout.dp
        key = ("held", layout.pp, layout.vpp, schedules, tuple(local // n for n in sizes))
        if key not in self._memo:
            rows = [[self._in_flight(layout, schedule, n) for n in sizes] for schedule in schedules]
            table = np.moveaxis(np.array(rows), 1, 2)  # (schedule, stage, micro-batch, kind)
            self._memo[key] = (table[..., 0], table[..., 1])
        return self._memo[key]  # type: ignore[no-any-return]

    def _in_flight(self, layout: Layout, schedule: str, size: int) -> list[tuple[float, float]]:
        """Of each stage, the dense and the expert layers whose activations it holds at once."""
        key = ("flight", layout.pp, layout.vpp, schedule, layout.global_batch // layout.dp // size)
        if key not in self._memo:
            plan, rows = replace(layout, schedule=schedule, micro_batch=size), []
            for stage in stages_of(layout.pp):
                chunks = stage_layers(model=self.model, layout=layout, stage=stage)
                held = chunks_held(layout=plan, stage=stage)
                moe = sum(n * sum(c) for c, n in zip(chunks, held, strict=True))
                rows.append((float(sum(n * len(c) for c, n in zip(chunks, held, strict=True)) - moe), float(moe)))
            self._memo[key] = rows
        return self._memo[key]  # type: ignore[no-any-return]

    def _kept(self, layout: Layout) -> tuple[Floats, Floats]:
        """Bytes that a dense and an expert layer keep of one sequence on one context rank."""
        key = ("kept", layout.tp, layout.ep, layout.etp)
        if key not in self._memo:
            one = self._inner(replace(layout, cp=1, micro_batch=1))
            tables = []
            for moe in (False, True):
                known = bool(self.model.moe_experts) or not moe
                tables.append(np.array([self._layer(x, moe) if known else 0.0 for x in one]).reshape(self._shape))
            self._memo[key] = tuple(tables)
        return self._memo[key]  # type: ignore[no-any-return]

    def _layer(self, layout: Layout, moe: bool) -> float:
        return layer_activation_bytes(model=self.model, layout=layout, moe=moe, fusions=self.fusions, stack=self.stack)

    def _buffers(self, layout: Layout) -> tuple[Floats, Floats]:
        """Buffers of each stage: what is always there, and what a sequence on one context rank adds."""
        key = ("buffers", layout.tp, layout.ep, layout.etp, layout.pp, layout.vpp)
        if key not in self._memo:
            rows = []
            for stage in stages_of(layout.pp):
                kinds = {moe for c in stage_layers(model=self.model, layout=layout, stage=stage) for moe in c}
                found = [self._probe(layout, stage == layout.pp - 1, kind) for kind in sorted(kinds or {False})]
                # A stage of both kinds needs the larger of the two.
                constant, slope, chunk = max(found, key=lambda x: float(x[1].sum()))
                rows.append((constant, slope + (layout.vpp - 1) * chunk))
            self._memo[key] = tuple(np.stack(x) for x in zip(*rows, strict=True))
        return self._memo[key]  # type: ignore[no-any-return]

    def _probe(self, layout: Layout, last: bool, moe: bool) -> tuple[Floats, Floats, Floats]:
        """Constant, growth with sequences, and that growth's growth with chunks, of a stage of one kind of layer."""
        stages = min(layout.pp, 2)
        key = ("probe", layout.tp, layout.ep, layout.etp, stages, last, moe)
        if key not in self._memo:
            model = replace(self.model, layers=PROBE_LAYERS, moe_dense_layers=0, moe_every=1)
            if not moe and model.moe_experts:
                model = replace(model, moe_dense_layers=PROBE_LAYERS)
            base = replace(
                layout, pp=stages, vpp=1, dp=1, cp=1, micro_batch=1, global_batch=8, zero_stage=0, schedule="1f1b"
            )
            sizes = [base, replace(base, micro_batch=2)]
            if stages > 1:
                sizes.append(replace(base, vpp=2, schedule="interleaved"))
            one, two, *more = (self._probed(model, x, stages - 1 if last else 0) for x in sizes)
            chunk = more[0] - one if more else np.zeros(self._shape)
            self._memo[key] = (2 * one - two, two - one, chunk)
        return self._memo[key]  # type: ignore[no-any-return]

    def _probed(self, model: ModelSpec, layout: Layout, stage: int) -> Floats:
        ranks = [
            rank_memory(model=model, layout=x, stage=stage, fusions=self.fusions, stack=self.stack)
            for x in self._inner(layout)
        ]
        return np.array([r.buffers_bytes for r in ranks]).reshape(self._shape)

    def _states(self, layout: Layout) -> tuple[Floats, Floats]:
        key = ("states", layout.tp, layout.pp, layout.vpp, layout.cp, layout.dp, layout.ep, layout.etp)
        if key not in self._memo:
            plans = [replace(layout, zero_stage=z) for z in self.axes.zero_stage]
            stages = stages_of(layout.pp)
            states = [[sum(rank_states(model=self.model, layout=x, stage=s)) for x in plans] for s in stages]
            gathered = [gathered_bytes(model=self.model, layout=x, stack=self.stack) for x in plans]
            self._memo[key] = (np.array(states), np.array(gathered))
        return self._memo[key]  # type: ignore[no-any-return]

    def _asked(self, layout: Layout, sizes: tuple[int, ...]) -> Floats:
        """Every choice by a call of its own."""
        rows = []
        for zero in self.axes.zero_stage:
            for size in sizes:
                for x in self._inner(replace(layout, zero_stage=zero, micro_batch=size)):
                    ranks = [
                        rank_memory(model=self.model, layout=x, stage=s, fusions=self.fusions, stack=self.stack)
                        for s in stages_of(layout.pp)
                    ]
                    rows.append(max(r.peak_bytes + r.reserved_bytes for r in ranks))
        return np.array(rows).reshape(len(self.axes.zero_stage), len(sizes), *self._shape)
