"""Seconds of layers, head, embedding, exchanges and updates that plans share, kept by what they depend on."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from planner.catalog.types import ModelSpec
from planner.cost.operator import PhaseCost
from planner.cost.rates import base_dtype
from planner.decide.space import Axes
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
    shard_s,
    tail_s,
)
from planner.workload.layout import Layout
from planner.workload.memory_states import stage_layers
from planner.workload.params import layer_params, moe_layers

Floats = np.ndarray[Any, np.dtype[np.float64]]
TP_HIDDEN_FRAC = 0.5  # share of a tensor-parallel collective that userbuffer chunking hides, as `workload.resolve`


@dataclass(frozen=True, slots=True)
class Passes:
    """Forward and backward seconds of one micro-batch.

    Axes: micro-batch, recompute, sequence parallelism, precision, tp overlap, mode.
    """

    forward_s: Floats
    backward_s: Floats


@dataclass(frozen=True, slots=True)
class Pieces:
    """What stages are made of."""

    dense: Passes
    moe: Passes
    head: Passes
    embedding: Passes


@dataclass(frozen=True, slots=True)
class Cell:
    """Layers of a stage (all chunks) and of the stages before it."""

    index: int
    dense: int
    moe: int
    dense_before: int
    moe_before: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """Gradient exchange and parameter gather of a stage, seconds."""

    buckets_s: float
    first_chunk_s: float  # of its first chunk, whose gradients are complete last
    bucket_s: float
    bucket_count: int  # of the first chunk
    gathers_s: float
    first_gather_s: float


@dataclass(frozen=True, slots=True)
class Shards:
    """(gather, reduce) seconds of the fully sharded blocks."""

    dense: tuple[float, float]
    moe: tuple[float, float]
    head: tuple[float, float]
    embedding: tuple[float, float]


class SecondsTables:
    """Shared durations of the plans of one model on one machine."""

    def __init__(self, *, model: ModelSpec, machine: Machine, axes: Axes) -> None:
        self.model, self.machine, self.axes = model, machine, axes
        off = replace(machine.software, tp_overlap_frac=0.0)
        self._machine = replace(machine, software=off, cuda_graph=False)
        self._hidden_frac = max(TP_HIDDEN_FRAC, machine.software.tp_overlap_frac)
        graph = replace(machine, cuda_graph=True).setting.host_scale
        eager = self._machine.setting.host_scale
        self._host_factor = np.array([graph / eager if mode == "graph" else 1.0 for mode in axes.mode])
        self._memo: dict[Hashable, Any] = {}

    def inner(self, layout: Layout) -> list[Layout]:
        """Layouts over (recompute, sequence parallelism, precision)."""
        a = self.axes
        return [
            replace(layout, recompute=r, sequence_parallel=sp and layout.tp > 1, precision=p)
            for r in a.recompute
            for sp in a.sequence_parallel
            for p in a.precision
        ]

    def pieces(self, *, layout: Layout, sizes: tuple[int, ...]) -> Pieces:
        """Passes of a dense and an expert layer, head and embedding for micro-batches of `sizes` sequences."""
        key = ("pieces", layout.tp, layout.cp, layout.ep, layout.etp, layout.gradient_bytes, sizes)
        if key not in self._memo:
            found = [self._pieces(replace(layout, micro_batch=size)) for size in sizes]
            self._memo[key] = Pieces(
                dense=_stacked([x.dense for x in found]),
                moe=_stacked([x.moe for x in found]),
                head=_stacked([x.head for x in found]),
                embedding=_stacked([x.embedding for x in found]),
            )
        return self._memo[key]  # type: ignore[no-any-return]

    def _pieces(self, layout: Layout) -> Pieces:
        # Degrees that do not reach into a layer are left out, so that the layers are those of every placement.
        base = replace(layout, pp=1, vpp=1, dp=layout.dp * layout.pp, schedule="1f1b")
        whole = replace(base, ep=1, etp=1)
        dense = self._memoised("dense", whole, partial(layer_piece, moe=False))
        return Pieces(
            dense=dense,
            moe=self._memoised("moe", base, partial(layer_piece, moe=True)) if moe_layers(self.model) else dense,
            head=self._memoised("head", whole, head_piece),
            embedding=self._memoised("embedding", whole, embedding_piece),
        )

    def _memoised(self, name: str, layout: Layout, piece_of: Callable[..., Piece]) -> Passes:
        key = (name, layout.tp, layout.cp, layout.ep, layout.etp, layout.gradient_bytes, layout.micro_batch)
        if key not in self._memo:
            self._memo[key] = self._passes(layout=layout, piece_of=piece_of)
        return self._memo[key]  # type: ignore[no-any-return]

    def _passes(self, *, layout: Layout, piece_of: Callable[..., Piece]) -> Passes:
        """One kind of piece over all inner choices; what two choices share is asked for once."""
        found: dict[Layout, Piece] = {}
        pieces = []
        for plan in self.inner(layout):
            same = self._standing_for(plan)
            if same not in found:
                found[same] = piece_of(model=self.model, layout=same, machine=self._machine)
            piece = found[same]
            pieces.append(replace(piece, recompute=PhaseCost()) if plan.recompute == "none" else piece)
        forward = self._walls([p.forward for p in pieces])
        backward = self._walls([p.backward for p in pieces]) + self._walls([p.recompute for p in pieces])
        return Passes(forward_s=forward, backward_s=backward)

    def _standing_for(self, plan: Layout) -> Layout:
        """The plan that takes the same seconds: passes apart from recompute are alike, and so are 16-bit dtypes."""
        recompute = "full" if plan.recompute == "none" else plan.recompute
        precision = "bf16" if base_dtype(plan.precision) == "bf16" and plan.compute_bytes == 2 else plan.precision
        return replace(plan, recompute=recompute, precision=precision)

    def _walls(self, costs: list[PhaseCost]) -> Floats:
        """Wall seconds with and without hidden collectives and captured launches, as `PhaseCost.wall_s`."""
        a = self.axes
        shape = (len(a.recompute), len(a.sequence_parallel), len(a.precision), 1, 1)
        table = np.array([(c.gpu_s - c.tp_s, c.tp_s, c.compute_matmul_s, c.host_s) for c in costs])
        rest, tp, matmul, host = (table[:, i].reshape(shape) for i in range(4))
        frac = np.array([self._hidden_frac if on else 0.0 for on in a.tp_overlap]).reshape(-1, 1)
        gpu = rest + tp - np.minimum(frac * tp, matmul)
        wall: Floats = np.cbrt(gpu**3 + (host * self._host_factor) ** 3)
        return wall

    def cells(self, layout: Layout) -> tuple[tuple[Cell, ...], tuple[int, int]]:
        """Stages that can be the slowest (both ends, and the first of every other kind); layers of the first chunk."""
        key = ("cells", layout.pp, layout.vpp)
        if key not in self._memo:
            out: list[Cell] = []
            seen: set[tuple[int, int]] = set()
            dense_before = moe_before = 0
            for stage in range(layout.pp):
                chunks = stage_layers(model=self.model, layout=layout, stage=stage)
                moe = sum(map(sum, chunks))
                kind = (sum(map(len, chunks)) - moe, moe)
                if stage in {0, layout.pp - 1} or kind not in seen:
                    out.append(Cell(stage, *kind, dense_before, moe_before))
                if stage > 0:
                    seen.add(kind)
                dense_before, moe_before = dense_before + kind[0], moe_before + kind[1]
            first = stage_layers(model=self.model, layout=layout, stage=0)[0]
            self._memo[key] = (tuple(out), (len(first) - sum(first), sum(first)))
        return self._memo[key]  # type: ignore[no-any-return]

    def send(self, *, layout: Layout, sizes: tuple[int, ...]) -> Floats | float:
        """Seconds of a boundary message by micro-batch and precision, shaped as `Passes`."""
        if layout.pp == 1:
            return 0.0
        key = ("send", layout.tp, layout.cp, layout.dp, sizes)
        if key not in self._memo:
            plans = [replace(layout, micro_batch=n, precision=p) for n in sizes for p in self.axes.precision]
            seconds = [send_s(model=self.model, layout=x, machine=self._machine) for x in plans]
            self._memo[key] = np.array(seconds).reshape(len(sizes), 1, 1, -1, 1, 1)
        return self._memo[key]  # type: ignore[no-any-return]

    def update(self, layout: Layout) -> Floats:
        """Optimizer of the fullest stage and the tail, by mode."""
        key = ("update", layout.tp, layout.pp, layout.vpp, layout.cp, layout.dp, layout.ep, layout.etp,
               min(layout.zero_stage, 1))  # fmt: skip
        if key not in self._memo:
            machines = [replace(self._machine, cuda_graph=mode == "graph") for mode in self.axes.mode]
            tail = tail_s(model=self.model, layout=layout, machine=self._machine)
            steps = [max(optimizer_step_s(model=self.model, layout=layout, machine=m)) for m in machines]
            self._memo[key] = np.array(steps) + tail
        return self._memo[key]  # type: ignore[no-any-return]

    def exchange(self, layout: Layout, *, stage: int) -> Exchange:
        """Exchange of one stage; the same for ZeRO-1 and ZeRO-2."""
        key = ("exchange", layout.tp, layout.pp, layout.vpp, layout.cp, layout.dp, layout.ep, layout.etp,
               min(layout.zero_stage, 1), stage)  # fmt: skip
        if key not in self._memo:
            buckets, gathers = [], []
            for chunk, layers in enumerate(stage_layers(model=self.model, layout=layout, stage=stage)):
                dense, experts = chunk_params(
                    model=self.model,
                    layout=layout,
                    cell=(len(layers) - sum(layers), sum(layers)),
                    first=stage == 0 and chunk == 0,
                    last=stage == layout.pp - 1 and chunk == layout.vpp - 1,
                )
                sizes: dict[str, Any] = {"dense": dense, "experts": experts, "layout": layout, "machine": self._machine}
                buckets.append(gradient_buckets(**sizes))
                gathers.append(param_gather_s(**sizes))
            first = buckets[0]
            self._memo[key] = Exchange(
                buckets_s=sum(map(sum, buckets)),
                first_chunk_s=sum(first),
                bucket_s=first[-1] if first else 0.0,
                bucket_count=max(1, len(first)),
                gathers_s=sum(gathers),
                first_gather_s=gathers[0],
            )
        return self._memo[key]  # type: ignore[no-any-return]

    def shards(self, layout: Layout) -> Shards:
        """Gather and reduction of every kind of fully sharded block."""
        key = ("shards", layout.tp, layout.cp, layout.dp, layout.ep, layout.etp, layout.pp == 1)
        if key not in self._memo:
            model, rows = self.model, []
            kw: dict[str, Any] = {"layout": layout, "machine": self._machine}
            for moe in (False, bool(model.moe_experts)):
                p = layer_params(model=model, moe=moe)
                experts = p.experts / (layout.ep * layout.etp)
                rows.append(
                    shard_s(params=(p.attention + p.mlp) / layout.tp + p.replicated, expert_params=experts, **kw)
                )
            table = model.vocab * model.hidden / layout.tp
            tied = model.tied_embeddings and layout.pp == 1
            head = shard_s(params=0.0 if tied else table, expert_params=0.0, **kw)
            embedding = shard_s(params=table, expert_params=0.0, **kw)
            self._memo[key] = Shards(dense=rows[0], moe=rows[1], head=head, embedding=embedding)
        return self._memo[key]  # type: ignore[no-any-return]


def _stacked(passes: list[Passes]) -> Passes:
    return Passes(
        forward_s=np.stack([p.forward_s for p in passes]), backward_s=np.stack([p.backward_s for p in passes])
    )
