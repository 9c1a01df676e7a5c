"""Closed-form step time and memory of all plans of one placement at once.

Layer, head and exchange seconds come from the functions that the forecast itself uses; only the order of work is
replaced by formulas: 1F1B and GPipe T = (m - 1) max(F + B) + sum(F + B) (Narayanan et al., arXiv 2104.04473),
interleaved with the fill divided by the chunks, zero-bubble with fill F alone, or none (arXiv 2401.10241).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from planner.catalog.types import ModelSpec
from planner.cost.operator import PhaseCost
from planner.decide.space import Axes, schedules_of
from planner.simulate.durations import (
    Machine,
    Piece,
    chunk_params,
    embedding_piece,
    gradient_buckets,
    head_piece,
    layer_piece,
    optimizer_step_s,
    param_gather_s,
    send_s,
    shard_exchange_s,
    tail_s,
)
from planner.simulate.schedules import SPLIT
from planner.workload.layout import Layout, layers_per_chunk
from planner.workload.memory import gathered_bytes, rank_memory
from planner.workload.memory_stack import stack_of
from planner.workload.memory_states import rank_states
from planner.workload.params import moe_layers

Floats = np.ndarray[Any, np.dtype[np.float64]]
GRAPH_HOST_SCALE = 0.15  # of a captured graph, as `planner.simulate.durations.Machine.setting`
TP_HIDDEN_FRAC = 0.5  # share of a tensor-parallel collective that userbuffer chunking hides


@dataclass(frozen=True, slots=True)
class Scored:
    """All plans of a placement.

    Axes: schedule, zero stage, dp overlap, pp overlap, recompute, sequence parallelism, precision, tp overlap, mode.
    What is no plan of its own (sequence parallelism of one tensor rank, overlap of one stage) has infinite time.
    """

    schedules: tuple[str, ...]
    step_s: Floats
    memory_bytes: Floats


class Scorer:
    """Step seconds and bytes by placement, with the shared pieces kept."""

    def __init__(self, *, model: ModelSpec, machine: Machine, axes: Axes) -> None:
        self.model, self.machine, self.axes = model, machine, axes
        off = replace(machine.software, tp_overlap_frac=0.0)
        self._machine = replace(machine, software=off)
        self._moe = moe_layers(model)
        self._inner: dict[Any, Any] = {}
        self._bytes: dict[Any, Any] = {}

    def score(self, layout: Layout) -> Scored:
        """Every inner choice of a placement."""
        schedules = schedules_of(axes=self.axes, layout=layout)
        forward, backward, head, embedding = self._seconds(layout)
        parts = {"forward": forward, "backward": backward, "head": head, "embedding": embedding}
        step = np.stack([self._pipeline(layout=layout, schedule=s, **parts) for s in schedules])
        whole = self._with_exchange(
            layout=layout, schedules=schedules, pipeline=step, backward=backward, forward=forward
        )
        if layout.tp == 1:
            whole[:, :, :, :, :, [i for i, on in enumerate(self.axes.sequence_parallel) if on]] = np.inf
            whole[..., [i for i, on in enumerate(self.axes.tp_overlap) if on], :] = np.inf
        if layout.vpp == 1:  # only the interleaved schedule runs transfers beside compute
            whole[:, :, :, [i for i, on in enumerate(self.axes.pp_overlap) if on]] = np.inf
        memory = np.stack([self._memory(layout=replace(layout, schedule=s)) for s in schedules])
        # Memory does not depend on overlap: it is broadcast over both overlap axes.
        return Scored(schedules, whole, np.broadcast_to(memory[:, :, None, None, :, :, :, None, None], whole.shape))

    def _inner_layouts(self, layout: Layout) -> list[Layout]:
        a = self.axes
        return [
            replace(layout, recompute=r, sequence_parallel=sp and layout.tp > 1, precision=p)
            for r in a.recompute
            for sp in a.sequence_parallel
            for p in a.precision
        ]

    def _seconds(self, layout: Layout) -> tuple[Floats, Floats, Floats, Floats]:
        """(forward, backward) of a mean layer, head and embedding totals, over (r, sp, p, tpo, mode)."""
        key = (layout.tp, layout.cp, layout.ep, layout.etp, layout.micro_batch)
        if key not in self._inner:
            base = replace(layout, pp=1, vpp=1, dp=layout.dp * layout.pp, schedule="1f1b")
            rows = [self._mean_layer(x) for x in self._inner_layouts(base)]
            a = self.axes
            shape = (len(a.recompute), len(a.sequence_parallel), len(a.precision), len(a.tp_overlap), len(a.mode))
            self._inner[key] = tuple(np.array([r[i] for r in rows]).reshape(shape) for i in range(4))
        return self._inner[key]  # type: ignore[no-any-return]

    def _mean_layer(self, layout: Layout) -> tuple[list[float], list[float], list[float], list[float]]:
        kinds = {k: n for k, n in ((False, self.model.layers - self._moe), (True, self._moe)) if n}
        pieces = [
            (layer_piece(model=self.model, layout=layout, moe=moe, machine=self._machine), n / self.model.layers)
            for moe, n in kinds.items()
        ]
        head = head_piece(model=self.model, layout=layout, machine=self._machine)
        embedding = embedding_piece(model=self.model, layout=layout, machine=self._machine)
        out: tuple[list[float], list[float], list[float], list[float]] = ([], [], [], [])
        for overlap, mode in product(self.axes.tp_overlap, self.axes.mode):
            hidden = TP_HIDDEN_FRAC if overlap else 0.0
            host = GRAPH_HOST_SCALE / self.machine.setting.host_scale if mode == "graph" else 1.0
            out[0].append(sum(_forward_s(p, hidden, host) * w for p, w in pieces))
            out[1].append(sum(_backward_s(p, hidden, host) * w for p, w in pieces))
            out[2].append(_forward_s(head, hidden, host) + _backward_s(head, hidden, host))
            out[3].append(_forward_s(embedding, hidden, host) + _backward_s(embedding, hidden, host))
        return out

    def _pipeline(
        self, *, layout: Layout, schedule: str, forward: Floats, backward: Floats, head: Floats, embedding: Floats
    ) -> Floats:
        m, p, v = layout.micro_batches, layout.pp, layout.vpp
        counts = [sum(c) for c in layers_per_chunk(layers=self.model.layers, layout=layout)]
        both = forward + backward
        stages = [n * both for n in counts]
        stages[0] = stages[0] + embedding
        stages[-1] = stages[-1] + head
        slowest = np.maximum.reduce(stages)
        total = np.add.reduce(stages)
        send = send_s(model=self.model, layout=layout, machine=self._machine)
        work = _work_s(schedule=schedule, m=m, p=p, v=v, slowest=slowest, total=total, forward_frac=forward / both)
        rows = []
        for overlap in self.axes.pp_overlap:
            # Hidden transfers show while the pipeline fills and drains; others hold every pass of every micro-batch.
            beside = overlap and v > 1
            waits = 2 * (p - 1) * send + (0.0 if beside or p == 1 else 2 * m * v * send)
            rows.append(work + waits)
        return np.stack(rows)

    def _with_exchange(
        self, *, layout: Layout, schedules: tuple[str, ...], pipeline: Floats, forward: Floats, backward: Floats
    ) -> Floats:
        """All axes of `Scored`: gradient exchange, parameter gather and optimizer added to the pipeline."""
        zeros = []
        for zero in self.axes.zero_stage:
            plan = replace(layout, zero_stage=zero)
            update = max(optimizer_step_s(model=self.model, layout=plan, machine=self.machine))
            update += tail_s(model=self.model, layout=plan, machine=self.machine)
            if zero >= 3:
                extra = self._sharded_extra(layout=plan, forward=forward, backward=backward)
                # Fully sharded blocks do not split their backward pass.
                extra = extra + np.array([np.inf if s in SPLIT else 0.0 for s in schedules]).reshape(-1, *[1] * 6)
                zeros.append(np.stack([pipeline + extra + update] * len(self.axes.dp_overlap), axis=1))
                continue
            exchange, last, gather, first = self._exchange(layout=plan)
            count = max(sum(c) for c in layers_per_chunk(layers=self.model.layers, layout=plan)) / plan.vpp
            rows = []
            for overlap in self.axes.dp_overlap:
                if not overlap:
                    rows.append(pipeline + exchange + gather + update)
                    continue
                hidden = np.maximum(exchange - count * backward, last)
                waiting = np.maximum(gather - count * forward * plan.vpp, first)
                rows.append(pipeline + hidden + waiting + update)
            zeros.append(np.stack(rows, axis=1))
        return np.stack(zeros, axis=1)

    def _exchange(self, *, layout: Layout) -> tuple[float, float, float, float]:
        """(all gradient buckets, the last one, all gathers, the first) of the fullest stage."""
        key = ("x", layout.tp, layout.pp, layout.vpp, layout.cp, layout.ep, layout.zero_stage)
        if key not in self._bytes:
            counts = layers_per_chunk(layers=self.model.layers, layout=layout)
            totals = []
            for stage in {0, layout.pp - 1}:
                buckets, gathers = [], []
                for chunk in range(layout.vpp):
                    n = counts[stage][chunk]
                    n_moe = round(n * self._moe / self.model.layers)
                    dense, experts = chunk_params(
                        model=self.model,
                        layout=layout,
                        cell=(n - n_moe, n_moe),
                        first=stage == 0 and chunk == 0,
                        last=stage == layout.pp - 1 and chunk == layout.vpp - 1,
                    )
                    sizes: dict[str, Any] = {
                        "dense": dense,
                        "experts": experts,
                        "layout": layout,
                        "machine": self.machine,
                    }
                    buckets.append(gradient_buckets(**sizes))
                    gathers.append(param_gather_s(**sizes))
                flat = [b for row in buckets for b in row]
                totals.append((sum(flat), flat[-1] if flat else 0.0, sum(gathers), gathers[0]))
            self._bytes[key] = max(totals)
        return self._bytes[key]  # type: ignore[no-any-return]

    def _sharded_extra(self, *, layout: Layout, forward: Floats, backward: Floats) -> Floats:
        """What gathers and reductions of fully sharded layers add: a layer takes the longer of work and wire."""
        gather, reduce = shard_exchange_s(model=self.model, layout=layout, machine=self.machine)
        layers = self.model.layers / layout.pp
        wait_forward = np.maximum(gather - forward, 0.0)
        wait_backward = np.maximum(gather + reduce - backward, 0.0)
        result: Floats = layout.micro_batches * layers * (wait_forward + wait_backward) + gather + reduce
        return result

    def _memory(self, *, layout: Layout) -> Floats:
        """(zero, r, sp, p) bytes of the fullest of first, second and last stage, reserve included."""
        a, fusions = self.axes, self.machine.software.fusions
        shape = (len(a.recompute), len(a.sequence_parallel), len(a.precision))
        stack = stack_of(fusions)
        inner = self._inner_layouts(layout)
        stages = sorted({0, min(1, layout.pp - 1), layout.pp - 1})
        worst = np.zeros((len(a.zero_stage), *shape))
        for stage in stages:
            held = [rank_memory(model=self.model, layout=x, stage=stage, fusions=fusions, stack=stack) for x in inner]
            # Sharding changes states and gathered weights alone; both are counted apart for each ZeRO stage.
            kept = np.array([h.activations_bytes + h.buffers_bytes for h in held]).reshape(shape)
            kept = kept - self._gathered(layout)
            for index, zero in enumerate(a.zero_stage):
                plan = replace(layout, zero_stage=zero)
                states = sum(rank_states(model=self.model, layout=plan, stage=stage))
                live = kept + self._gathered(plan)
                reserve = stack.outside_bytes + stack.reserve_frac * (live + (states if stack.states_fragment else 0))
                worst[index] = np.maximum(worst[index], states + live + reserve)
        return worst

    def _gathered(self, layout: Layout) -> float:
        return gathered_bytes(model=self.model, layout=layout, stack=stack_of(self.machine.software.fusions))


def _work_s(*, schedule: str, m: int, p: int, v: int, slowest: Floats, total: Floats, forward_frac: Floats) -> Floats:
    """Seconds of all passes of `m` micro-batches; `total` is one micro-batch through all stages, forward and back.

    With fewer micro-batches than stages the way of one micro-batch through the pipeline is the longest path.
    """
    if schedule == "interleaved":
        if m >= p:
            return m * slowest + (total - slowest) / v
        return total + (m - 1) * slowest / v
    if schedule in {"1f1b", "gpipe"}:
        return m * slowest + total - slowest
    fill = (total - slowest) * forward_frac if schedule == "zb1p" else np.zeros_like(total)
    # Weight gradients fill gaps, but forward and input gradient of one micro-batch still follow each other.
    through = 0.5 * (1.0 + forward_frac)
    path = (total + (m - 1) * slowest) * through + slowest * (1.0 - through)
    return np.maximum(m * slowest + fill, path)


def _forward_s(piece: Piece, hidden_frac: float, host_factor: float) -> float:
    return _wall(piece.forward, hidden_frac, host_factor)


def _backward_s(piece: Piece, hidden_frac: float, host_factor: float) -> float:
    return _wall(piece.recompute, hidden_frac, host_factor) + _wall(piece.backward, hidden_frac, host_factor)


def _wall(cost: PhaseCost, hidden_frac: float, host_factor: float) -> float:
    tp = cost.tp_s - min(hidden_frac * cost.tp_s, cost.compute_matmul_s)
    return replace(cost, tp_s=tp, host_s=cost.host_s * host_factor).wall_s


def best_of(scored: Scored, *, capacity_bytes: float, keep: int) -> tuple[int, Sequence[tuple[float, float, Any]]]:
    """(plans out of memory, the fastest that fit as (step, bytes, index))."""
    fits = scored.memory_bytes <= capacity_bytes
    out_of_memory = int(np.count_nonzero(np.isfinite(scored.step_s) & ~fits))
    step = np.where(fits, scored.step_s, np.inf).ravel()
    keep = min(keep, step.size)
    chosen = np.argpartition(step, keep - 1)[:keep]
    return out_of_memory, [
        (float(step[i]), float(scored.memory_bytes.ravel()[i]), np.unravel_index(int(i), scored.step_s.shape))
        for i in chosen
        if np.isfinite(step[i])
    ]
