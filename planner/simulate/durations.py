"""From workload and cost to the durations of a step plan: the bridge between operators and the order of work."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from planner import catalog
from planner.catalog.software import Software
from planner.catalog.types import ModelSpec
from planner.cost.collective import collective_s
from planner.cost.compression import exchange_s
from planner.cost.kernels import optimizer_s
from planner.cost.network import beside_frac
from planner.cost.operator import HOST_CALL_S, PhaseCost, Setting, phase_cost
from planner.cost.topology import axis_group, crosses_domains
from planner.cost.types import Network
from planner.simulate.measured_pieces import (
    MeasuredRank,
    RankShape,
    measured_embedding,
    measured_head,
    measured_layer,
    measured_rank,
    measured_update_s,
)
from planner.simulate.plan import FsdpBlock, StepPlan
from planner.simulate.relax import beside_exchange, relaxed
from planner.workload.exchange import PLAIN
from planner.workload.layout import LayerKind, Layout, layers_by_kind, layers_per_chunk, recomputed_block
from planner.workload.memory import stage_params
from planner.workload.operators import embedding_operators, head_operators, layer_operators
from planner.workload.params import is_moe_layer, layer_params, moe_layers

PHASES = ("forward", "recompute", "backward")
# Gradient bucket of Megatron-Core (40 M parameters) and of DistributedDataParallel (25 MB): both near 100 MB.
BUCKET_BYTES = 100e6
MAX_BUCKETS = 12
# AdamW of many kernels against one, 1e9 fp32 parameters on H200: 21.8 (foreach) and 20.9 ms (loop) against 8.0. A loop
# also visits every tensor on the host: 7.1 ms for the 148 tensors of GPT-2 124M, where one kernel takes 1.0.
UNFUSED_OPTIMIZER = {"adamw_foreach": 21.8 / 8.0, "adamw_loop": 20.9 / 8.0}
LOOP_TENSOR_S = 7.1e-3 / 148
TENSORS_PER_LAYER = 12


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware and software that a plan runs on.

    Attributes:
        compiled: "" eager, `regional` or `whole`.
        profile: shipped name or path of the calibration profile that kernels and host times are read from; "" = none.
    """

    gpu: str
    network: Network
    software: Software
    cuda_graph: bool = False
    hot: bool = True
    ep_overlap: bool = False
    p2p_overlap: bool = True
    compiled: str = ""
    profile: str = ""

    @property
    def rank(self) -> RankShape:
        """What of it decides the kernels of a measured rank."""
        return RankShape(self.software, self.compiled, self.cuda_graph, self.profile)

    @property
    def setting(self) -> Setting:
        """What the cost room needs to know of it."""
        return Setting(
            gpu=self.gpu,
            network=self.network,
            attention=self.software.attention,
            tp_overlap_frac=self.software.tp_overlap_frac,
            host_scale=0.15 if self.cuda_graph else self.software.host_scale,
            ep_overlap=self.ep_overlap or "ep_overlap" in self.software.fusions,
            hot=self.hot,
            profile=self.profile,
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """Costs of one layer, the head or the embedding, by phase."""

    forward: PhaseCost
    recompute: PhaseCost
    backward: PhaseCost

    @property
    def forward_s(self) -> float:
        """Wall seconds of the forward pass."""
        return self.forward.wall_s

    @property
    def backward_s(self) -> float:
        """Wall seconds of recompute and backward pass."""
        return self.recompute.wall_s + self.backward.wall_s


@dataclass(frozen=True, slots=True)
class Durations:
    """A step plan with the pieces that explain it."""

    plan: StepPlan
    layers: tuple[tuple[Piece, float], ...]  # layer piece and how many of it all stages run for one micro-batch
    head: Piece
    embedding: Piece
    dp_link_s: float
    optimizer_s: float


def _piece(*, operators: tuple, layout: Layout, setting: Setting) -> Piece:  # type: ignore[type-arg]
    costs = [phase_cost(operators=operators, phase=p, layout=layout, setting=setting) for p in PHASES]
    return Piece(*costs)


@lru_cache(maxsize=4096)
def layer_piece(*, model: ModelSpec, layout: Layout, moe: bool, machine: Machine) -> Piece:
    """Costs of one decoder layer."""
    ops = layer_operators(model=model, layout=layout, moe=moe, fusions=machine.software.fusions)
    found = None if moe else _measured(model=model, layout=layout, machine=machine)
    if found is not None:
        return Piece(*measured_layer(found=found, operators=ops, layout=layout, setting=machine.setting))
    return _piece(operators=ops, layout=layout, setting=machine.setting)


@lru_cache(maxsize=4096)
def head_piece(*, model: ModelSpec, layout: Layout, machine: Machine) -> Piece:
    """Costs of final norm, output projection and loss."""
    ops = head_operators(model=model, layout=layout, fusions=machine.software.fusions)
    found = _measured(model=model, layout=layout, machine=machine)
    if found is not None:
        return Piece(*measured_head(found=found, operators=ops, layout=layout, setting=machine.setting))
    return _piece(operators=ops, layout=layout, setting=machine.setting)


@lru_cache(maxsize=4096)
def embedding_piece(*, model: ModelSpec, layout: Layout, machine: Machine) -> Piece:
    """Costs of the embedding look-up and its gradient."""
    ops = embedding_operators(model=model, layout=layout)
    found = _measured(model=model, layout=layout, machine=machine)
    if found is not None:
        return Piece(*measured_embedding(found=found, operators=ops, layout=layout, setting=machine.setting))
    return _piece(operators=ops, layout=layout, setting=machine.setting)


def _measured(*, model: ModelSpec, layout: Layout, machine: Machine) -> MeasuredRank | None:
    return measured_rank(model=model, layout=layout, rank=machine.rank) if machine.profile else None


def _cells(*, model: ModelSpec, layout: Layout) -> list[list[tuple[int, int]]]:
    """[stage][chunk] -> (dense layers, expert layers)."""
    counts = layers_per_chunk(layers=model.layers, layout=layout)
    cells = [[(0, 0)] * layout.vpp for _ in range(layout.pp)]
    first = 0
    for chunk in range(layout.vpp):
        for stage in range(layout.pp):
            n = counts[stage][chunk]
            moe = sum(is_moe_layer(model=model, index=i) for i in range(first, first + n))
            cells[stage][chunk] = (n - moe, moe)
            first += n
    return cells


def _exchange_s(*, nbytes: float, op: str, axis: str, layout: Layout, machine: Machine) -> float:
    group = axis_group(axis=axis, layout=layout, network=machine.network)
    if layout.exchange != PLAIN and axis in {"dp", "shard", "expert_dp"}:
        element = 2.0 if op == "all_gather" else float(layout.gradient_bytes)
        return exchange_s(
            exchange=layout.exchange, op=op, nbytes=nbytes, element_bytes=element,
            group=group, network=machine.network, gpu=machine.gpu,
        ).seconds  # fmt: skip
    return collective_s(op=op, payload_bytes=nbytes, group=group, network=machine.network).seconds


def gradient_buckets(*, dense: float, experts: float, layout: Layout, machine: Machine) -> tuple[float, ...]:
    """Durations of the gradient exchange of one chunk: all-reduce, or reduce-scatter when states are sharded."""
    op = "all_reduce" if layout.zero_stage == 0 else "reduce_scatter"
    nbytes = dense * layout.gradient_bytes * layout.trained_frac
    if layout.dp * layout.cp == 1 or nbytes <= 0:
        return ()
    n = int(min(MAX_BUCKETS, max(1, round(nbytes / BUCKET_BYTES))))
    one = _exchange_s(nbytes=nbytes / n, op=op, axis="dp", layout=layout, machine=machine)
    # Above MAX_BUCKETS a bucket stands for several: their latency is paid as often as there are real buckets.
    extra = 0.0
    if experts > 0:
        extra = _exchange_s(
            nbytes=experts * layout.gradient_bytes * layout.trained_frac,
            op=op,
            axis="expert_dp",
            layout=layout,
            machine=machine,
        )
    return tuple(one + extra / n for _ in range(n))


def param_gather_s(*, dense: float, experts: float, layout: Layout, machine: Machine) -> float:
    """Gather of the updated parameters of one chunk, where the optimizer is sharded."""
    if layout.zero_stage not in {1, 2} or layout.dp * layout.cp == 1:
        return 0.0
    total = _exchange_s(
        nbytes=dense * 2.0 * layout.trained_frac, op="all_gather", axis="dp", layout=layout, machine=machine
    )
    if experts > 0:
        total += _exchange_s(nbytes=experts * 2.0, op="all_gather", axis="expert_dp", layout=layout, machine=machine)
    return total


def shard_exchange_s(*, model: ModelSpec, layout: Layout, machine: Machine) -> tuple[float, float]:
    """(gather, reduce) seconds of a mean layer of a fully sharded model."""
    n_moe = moe_layers(model)
    gathers, reduces = 0.0, 0.0
    for moe, count in ((False, model.layers - n_moe), (True, n_moe)):
        if not count:
            continue
        p = layer_params(model=model, moe=moe)
        gather, reduce = shard_s(
            params=(p.attention + p.mlp) / layout.tp + p.replicated,
            expert_params=p.experts / (layout.ep * layout.etp) if moe else 0.0,
            layout=layout,
            machine=machine,
        )
        gathers, reduces = gathers + count * gather, reduces + count * reduce
    return gathers / model.layers, reduces / model.layers


@lru_cache(maxsize=8192)
def shard_s(*, params: float, expert_params: float, layout: Layout, machine: Machine) -> tuple[float, float]:
    """(gather, reduce) seconds of one fully sharded block."""
    sharing = max(1, layout.dp * layout.cp // layout.sharded_over)
    gather = _exchange_s(nbytes=params * 2.0, op="all_gather", axis="shard", layout=layout, machine=machine)
    grads = layout.gradient_bytes * layout.trained_frac
    reduce = _exchange_s(nbytes=params * grads, op="reduce_scatter", axis="shard", layout=layout, machine=machine)
    if expert_params:
        kw: dict[str, Any] = {"axis": "expert_dp", "layout": layout, "machine": machine}
        gather += _exchange_s(nbytes=expert_params * 2.0, op="all_gather", **kw)
        reduce += _exchange_s(nbytes=expert_params * grads, op="reduce_scatter", **kw)
    if sharing > 1:
        # Hybrid sharding: the shard's gradient is all-reduced over its replicas.
        shard = params * grads / layout.sharded_over
        reduce += _exchange_s(nbytes=shard, op="all_reduce", axis="dp", layout=layout, machine=machine)
    soft = machine.software
    gather, reduce = gather / soft.shard_wire_frac, reduce / soft.shard_wire_frac
    if soft.shard_node_bytes_per_s and layout.sharded_over > machine.network.gpus_per_node:
        # Every node takes in the whole gathered buffer once, and as much of the gradients.
        gather = max(gather, (params + expert_params) * 2.0 / soft.shard_node_bytes_per_s)
        reduce = max(reduce, (params + expert_params) * grads / soft.shard_node_bytes_per_s)
    return gather, reduce


def _fsdp_blocks(
    *, model: ModelSpec, layout: Layout, machine: Machine, cell: tuple[int, int], first: bool, last: bool
) -> tuple[FsdpBlock, ...]:
    """One block a layer, with embedding and head as blocks of their own, gathered and reduced over the shard ranks."""
    blocks = []

    def block(*, piece: Piece, params: float, expert_params: float = 0.0) -> FsdpBlock:
        gather, reduce = shard_s(params=params, expert_params=expert_params, layout=layout, machine=machine)
        return FsdpBlock(forward_s=piece.forward_s, backward_s=piece.backward_s, gather_s=gather, reduce_s=reduce)

    if first:
        blocks.append(
            block(
                piece=embedding_piece(model=model, layout=layout, machine=machine),
                params=model.vocab * model.hidden / layout.tp,
            )
        )
    kinds = layer_kinds(model=model, layout=layout, machine=machine)
    for (moe, again), n in layers_by_kind(layout=layout, dense=cell[0], moe=cell[1]):
        p, piece = layer_params(model=model, moe=moe), kinds[moe, again]
        dense = (p.attention + p.mlp) / layout.tp + p.replicated
        one = block(piece=piece, params=dense, expert_params=p.experts / (layout.ep * layout.etp) if moe else 0.0)
        blocks += [one] * n
    if last:
        untied = 0 if model.tied_embeddings and layout.pp == 1 else model.vocab * model.hidden / layout.tp
        blocks.append(block(piece=head_piece(model=model, layout=layout, machine=machine), params=untied))
    return tuple(blocks)


def optimizer_step_s(*, model: ModelSpec, layout: Layout, machine: Machine) -> tuple[float, ...]:
    """Optimizer seconds of each stage: traffic over owned parameters, and host calls of a per-tensor loop."""
    out = []
    owned_by = layout.sharded_over if layout.zero_stage >= 1 else 1
    found = _measured(model=model, layout=layout, machine=machine)
    for stage in range(layout.pp):
        dense, experts = stage_params(model=model, layout=layout, stage=stage)
        expert_ranks = (
            max(1.0, layout.dp * layout.cp * layout.tp / (layout.ep * layout.etp)) if layout.zero_stage else 1.0
        )
        owned = (dense / owned_by + experts / min(expert_ranks, owned_by)) * layout.trained_frac
        if found is not None:
            out.append(measured_update_s(found=found, owned=owned, optimizer=layout.optimizer))
            continue
        seconds = optimizer_s(
            gpu=machine.gpu, params=owned, bytes_per_param=machine.software.optimizer_bytes_per_param
        ).seconds * UNFUSED_OPTIMIZER.get(layout.optimizer, 1.0)
        if layout.optimizer == "adamw_loop":
            tensors = TENSORS_PER_LAYER * model.layers / layout.pp + 4
            seconds = max(seconds, tensors * LOOP_TENSOR_S * machine.setting.host_scale)
        # Gradient norm, clip and bookkeeping: about thirty calls with one read back of the norm.
        out.append(seconds + 30 * HOST_CALL_S * machine.setting.host_scale)
    return tuple(out)


def build(*, model: ModelSpec, layout: Layout, machine: Machine) -> Durations:
    """Durations of every task, exchange and update of one optimizer step."""
    cells = _cells(model=model, layout=layout)
    kinds = layer_kinds(model=model, layout=layout, machine=machine)
    head = head_piece(model=model, layout=layout, machine=machine)
    embedding = embedding_piece(model=model, layout=layout, machine=machine)
    split = layout.schedule in {"zb1p", "zb2p", "dualpipe", "dualpipev"}
    forward, backward, weight, buckets, gathers, fsdp = [], [], [], [], [], []
    optimizer = optimizer_step_s(model=model, layout=layout, machine=machine)
    for stage in range(layout.pp):
        rows: list[list[float]] = [[], [], []]
        stage_buckets: list[tuple[float, ...]] = []
        stage_gathers: list[float] = []
        stage_fsdp: list[tuple[FsdpBlock, ...]] = []
        for chunk in range(layout.vpp):
            n_dense, n_moe = cells[stage][chunk]
            first, last = stage == 0 and chunk == 0, stage == layout.pp - 1 and chunk == layout.vpp - 1
            counts = layers_by_kind(layout=layout, dense=n_dense, moe=n_moe)
            f = sum(n * kinds[k].forward_s for k, n in counts)
            b = sum(n * kinds[k].backward_s for k, n in counts)
            f += (embedding.forward_s if first else 0) + (head.forward_s if last else 0)
            b += (embedding.backward_s if first else 0) + (head.backward_s if last else 0)
            w = b / 2 if split else 0.0
            for row, value in zip(rows, (f, b - w, w), strict=True):
                row.append(value)
            p_dense, p_experts = chunk_params(model=model, layout=layout, cell=(n_dense, n_moe), first=first, last=last)
            if layout.zero_stage >= 3:
                stage_buckets.append(())
                stage_gathers.append(0.0)
                stage_fsdp.append(
                    _fsdp_blocks(
                        model=model, layout=layout, machine=machine, cell=(n_dense, n_moe), first=first, last=last
                    )
                )
            else:
                stage_buckets.append(gradient_buckets(dense=p_dense, experts=p_experts, layout=layout, machine=machine))
                stage_gathers.append(param_gather_s(dense=p_dense, experts=p_experts, layout=layout, machine=machine))
        forward.append(tuple(rows[0]))
        backward.append(tuple(rows[1]))
        weight.append(tuple(rows[2]))
        buckets.append(tuple(stage_buckets))
        gathers.append(tuple(stage_gathers))
        fsdp.append(tuple(stage_fsdp))
    plan = StepPlan(
        schedule=layout.schedule,
        stages=layout.pp,
        micro_batches=layout.micro_batches,
        chunks=layout.vpp,
        forward_s=tuple(forward),
        backward_s=tuple(backward),
        weight_s=tuple(weight),
        send_s=send_s(model=model, layout=layout, machine=machine),
        p2p_overlap=machine.p2p_overlap and layout.vpp > 1,
        grad_bucket_s=tuple(buckets),
        dp_overlap=machine.software.dp_overlap,
        param_gather_s=tuple(gathers),
        gather_overlap=machine.software.gather_overlap,
        fsdp=tuple(fsdp) if layout.zero_stage >= 3 else None,
        prefetch=machine.software.fsdp_prefetch,
        optimizer_s=optimizer,
        tail_s=tail_s(model=model, layout=layout, machine=machine),
        # Zero-bubble 2p drops the barrier of the gradient norm (arXiv 2401.10241, section 4).
        optimizer_barrier=layout.schedule != "zb2p",
        shared_link=all(crosses_domains(axis=a, layout=layout, network=machine.network) for a in ("pp", "dp")),
    )
    plan = relaxed(plan=plan, exchange=layout.exchange)
    axis = "dp" if layout.zero_stage < 3 else "shard"
    group = axis_group(axis=axis, layout=layout, network=machine.network)
    plan = beside_exchange(plan=plan, slow_frac=beside_frac(group=group, network=machine.network))
    every = [pair for row in cells for c in row for pair in layers_by_kind(layout=layout, dense=c[0], moe=c[1])]
    layers = tuple((piece, float(sum(n for k, n in every if k == kind))) for kind, piece in kinds.items())
    link = max(sum(sum(b) for b in stage) for stage in buckets) + max(sum(g) for g in gathers)
    return Durations(plan, layers, head, embedding, link, max(optimizer))


def layer_kinds(*, model: ModelSpec, layout: Layout, machine: Machine) -> dict[LayerKind, Piece]:
    """Costs of a layer of each kind that the layout has."""
    bare = (
        replace(layout, recompute="none", recompute_method="", recompute_layers=0)
        if recomputed_block(layout)
        else layout
    )
    return {
        (moe, again): layer_piece(model=model, layout=layout if again else bare, moe=moe, machine=machine)
        for moe in ((False, True) if model.moe_experts else (False,))
        for again in ((True, False) if bare is not layout else (True,))
    }


def chunk_params(
    *, model: ModelSpec, layout: Layout, cell: tuple[int, int], first: bool, last: bool
) -> tuple[float, float]:
    """(dense, expert) parameters of one chunk on one rank, embedding and head included."""
    d, e = layer_params(model=model, moe=False), layer_params(model=model, moe=True) if model.moe_experts else None
    dense = cell[0] * ((d.attention + d.mlp) / layout.tp + d.replicated)
    experts = 0.0
    if e is not None:
        dense += cell[1] * ((e.attention + e.mlp) / layout.tp + e.replicated)
        experts = cell[1] * e.experts / (layout.ep * layout.etp)
    table = model.vocab * model.hidden / layout.tp
    dense += table if first else 0.0
    dense += table if last and (not model.tied_embeddings or layout.pp > 1) else 0.0
    return dense, experts


def send_s(*, model: ModelSpec, layout: Layout, machine: Machine) -> float:
    """One boundary message: the activation of a micro-batch, split over tensor ranks when they scatter it."""
    if layout.pp == 1:
        return 0.0
    nbytes = layout.tokens * model.hidden * layout.compute_bytes / layout.tp
    return _exchange_s(nbytes=nbytes, op="send_recv", axis="pp", layout=layout, machine=machine)


def tail_s(*, model: ModelSpec, layout: Layout, machine: Machine) -> float:
    """Tied embeddings of first and last stage sum their gradients before the step."""
    if layout.pp == 1 or not model.tied_embeddings:
        return 0.0
    nbytes = model.vocab * model.hidden / layout.tp * layout.gradient_bytes / (layout.dp if layout.zero_stage else 1)
    return 2 * _exchange_s(nbytes=nbytes, op="send_recv", axis="pp", layout=layout, machine=machine)


def machine_of(
    *,
    node: str,
    software: Software,
    scaleout: str | None = None,
    node_bytes_per_s: float | None = None,
    oversubscription: float = 1.0,
    cuda_graph: bool = False,
) -> Machine:
    """The machine of a named node type."""
    from planner.cost.topology import network_of

    spec = catalog.node(node)
    network = network_of(
        node=spec,
        gpu=catalog.gpu(spec.gpu),
        scaleout=scaleout,
        node_bytes_per_s=node_bytes_per_s,
        oversubscription=oversubscription,
    )
    return Machine(gpu=spec.gpu, network=network, software=software, cuda_graph=cuda_graph)
