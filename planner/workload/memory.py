"""Bytes a rank holds: states by ZeRO stage, activations by operator and recompute mode, logits and buffers.

Activation counts follow Korthikanti et al. 2022 (arXiv 2205.05198, table 2); flash attention keeps no scores.
"""

from dataclasses import dataclass

from planner.catalog.types import ModelSpec
from planner.workload.exchange import extra_bytes
from planner.workload.layout import Layout, layers_per_chunk
from planner.workload.params import (
    attention_dims,
    attention_params,
    embedding_params,
    gates,
    is_moe_layer,
    layer_params,
)

CONTEXT_BYTES = 1.0e9  # driver context, library workspaces and communicator buffers of one process
RESERVE_FRAC = 0.06  # allocator reserved over allocated (SimuMax mem_factor 0.94)


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of one rank by part. `peak_bytes` is what the allocator hands out in steady state."""

    stage: int
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    buffers_bytes: float
    peak_load_bytes: float
    peak_first_step_bytes: float
    reserved_bytes: float

    @property
    def peak_bytes(self) -> float:
        """Sum of the parts that live at the same time."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.buffers_bytes
        )


def stage_params(*, model: ModelSpec, layout: Layout, stage: int) -> tuple[float, float]:
    """Parameters one rank of a stage owns: (dense part, expert part), after tensor and expert sharding."""
    counts = layers_per_chunk(layers=model.layers, layout=layout)
    order = [(c, s) for c in range(layout.vpp) for s in range(layout.pp)]
    first = 0
    dense = experts = 0.0
    for chunk, at in order:
        n = counts[at][chunk]
        if at == stage:
            for index in range(first, first + n):
                p = layer_params(model=model, moe=is_moe_layer(model=model, index=index))
                dense += (p.attention + p.mlp) / layout.tp + p.replicated
                experts += p.experts / (layout.ep * layout.etp)
        first += n
    if stage == 0:
        dense += embedding_params(model) / layout.tp
    if stage == layout.pp - 1 and (not model.tied_embeddings or layout.pp > 1):
        dense += model.vocab * model.hidden / layout.tp
    return dense, experts


def state_bytes(*, params: float, ranks: float, layout: Layout) -> tuple[float, float, float]:
    """Weights, gradients and optimizer bytes of `params` whose states `ranks` share (ZeRO, arXiv 1910.02054)."""
    w = 4 if layout.autocast or layout.precision in {"fp32", "tf32"} else 2
    g = 4.0 if layout.autocast else float(layout.gradient_bytes)
    # Two Adam moments; an fp32 master copy where weights are 16-bit and the optimizer keeps one.
    o = 8.0 if w == 4 else 12.0
    if layout.optimizer.startswith("adamw_") and w == 2:
        o = 2.0 * w  # torch AdamW on 16-bit weights keeps 16-bit moments and no master
    if layout.optimizer == "sgd":
        o = 4.0
    if layout.lora_rank:
        # Frozen weights carry neither gradients nor states.
        g, o = layout.trained_frac * g, layout.trained_frac * o
    shard = max(1.0, ranks)
    return (
        params * w / (shard if layout.zero_stage >= 3 else 1),
        params * g / (shard if layout.zero_stage >= 2 else 1),
        params * o / (shard if layout.zero_stage >= 1 else 1),
    )


def layer_activation_bytes(*, model: ModelSpec, layout: Layout, moe: bool, fusions: frozenset[str]) -> float:
    """Bytes one layer keeps for its backward pass, one micro-batch."""
    t, h, w, tp = layout.tokens, model.hidden, layout.compute_bytes, layout.tp
    outside = tp if layout.sequence_parallel else 1
    if layout.recompute == "full":
        return t * h * w / outside
    qk, v = attention_dims(model)
    heads, kv = model.heads / tp, max(model.kv_heads / tp, 1.0)
    if layout.recompute == "selective" and "op_selective" in fusions:
        # Kept: the layer's input, the outputs of every second product, and the attention output.
        mlp_out = 2 * model.ffn if gates(model) == 3 else model.ffn
        return t * w * (h / outside + heads * qk + kv * (qk + v) + heads * v + (mlp_out / tp if not moe else 0)) + (
            _mlp_activation(model=model, layout=layout, moe=True) if moe else 0.0
        )
    norm_in = 2 * t * h * w / outside * (1 if "norm" in fusions else 2)
    linear_in = 2 * t * h * w / outside
    qkv = t * w * (heads * qk + kv * (qk + v))
    context = t * heads * v * w
    if "rope" not in fusions and model.position == "rotary":
        qkv *= 2
    masks = 2 * t * h / outside if "dropout" in fusions else 0.0
    scores = 0.0
    if "flash" in fusions:
        scores = t * heads * 4.0
    elif layout.recompute != "selective":
        scores = (
            layout.micro_batch * heads * layout.sequence**2 / layout.cp * (2 * w + (1 if "dropout" in fusions else 0))
        )
    if layout.autocast:
        norm_in *= 1.5  # the residual stream and norm inputs stay fp32
    return norm_in + linear_in + qkv + context + masks + scores + _mlp_activation(model=model, layout=layout, moe=moe)


def _mlp_activation(*, model: ModelSpec, layout: Layout, moe: bool) -> float:
    t, w, tp, g = layout.tokens, layout.compute_bytes, layout.tp, gates(model)
    if not moe:
        return t * w * model.ffn * g / tp
    local = t / tp if layout.sequence_parallel else t
    routed = local * model.moe_topk
    return routed * w * (2 * model.hidden + model.moe_ffn * g) + t * w * model.moe_shared_ffn * g / tp


def in_flight(*, layout: Layout, stage: int) -> float:
    """Micro-batches of whole-stage activations a stage holds at its peak, in units of the stage's layers."""
    p, m, v = layout.pp, layout.micro_batches, layout.vpp
    if p == 1:
        return 1.0
    if layout.schedule == "gpipe":
        return float(m)
    if v > 1:
        warmup = (p - stage - 1) * 2 + (v - 1) * p + 1
        return min(warmup, m * v) / v
    held = p - stage
    if layout.schedule in {"zb2p", "dualpipe", "dualpipev"}:
        held = min(2 * p - 1, 2 * held)
    return float(min(held, m))


def rank_memory(*, model: ModelSpec, layout: Layout, stage: int, fusions: frozenset[str]) -> RankMemory:
    """Memory of one rank of a pipeline stage."""
    dense, experts = stage_params(model=model, layout=layout, stage=stage)
    expert_ranks = max(1.0, layout.dp * layout.cp * layout.tp / (layout.ep * layout.etp))
    dense_states = state_bytes(params=dense, ranks=layout.sharded_over, layout=layout)
    expert_states = state_bytes(params=experts, ranks=min(expert_ranks, layout.sharded_over), layout=layout)
    weights, gradients, optimizer = (a + b for a, b in zip(dense_states, expert_states, strict=True))
    activations = _stage_activations(model=model, layout=layout, stage=stage, fusions=fusions)
    buffers = _buffers(model=model, layout=layout, stage=stage, fusions=fusions)
    buffers += extra_bytes(exchange=layout.exchange, params=dense + experts, trained_frac=layout.trained_frac)
    peak = weights + gradients + optimizer + activations + buffers
    w = 4 if layout.autocast else 2
    return RankMemory(
        stage=stage,
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        buffers_bytes=buffers,
        peak_load_bytes=(dense + experts) * w
        if layout.zero_stage < 3
        else max(weights, (dense + experts) * w / layout.pp * 0),
        peak_first_step_bytes=peak,
        reserved_bytes=CONTEXT_BYTES + RESERVE_FRAC * (activations + buffers),
    )


def _stage_activations(*, model: ModelSpec, layout: Layout, stage: int, fusions: frozenset[str]) -> float:
    counts = layers_per_chunk(layers=model.layers, layout=layout)
    order = [(c, s) for c in range(layout.vpp) for s in range(layout.pp)]
    first, held = 0, 0.0
    moe_any = False
    for chunk, at in order:
        n = counts[at][chunk]
        if at == stage:
            for index in range(first, first + n):
                moe = is_moe_layer(model=model, index=index)
                moe_any = moe_any or moe
                held += layer_activation_bytes(model=model, layout=layout, moe=moe, fusions=fusions)
        first += n
    held *= in_flight(layout=layout, stage=stage)
    if layout.recompute == "full":
        # While one layer is recomputed its own activations live too.
        one = Layout(**{f: getattr(layout, f) for f in layout.__slots__} | {"recompute": "none"})
        held += layer_activation_bytes(model=model, layout=one, moe=moe_any, fusions=fusions)
    return held


def _buffers(*, model: ModelSpec, layout: Layout, stage: int, fusions: frozenset[str]) -> float:
    """Logits and loss on the last stage, gathered layers of ZeRO-3, gradient buckets, working space of a layer."""
    t, w = layout.tokens, layout.compute_bytes
    total = 4.0 * t * model.hidden * w
    if stage == layout.pp - 1:
        per_logit = 6.0 if "cross_entropy" in fusions else 10.0
        total += t * model.vocab / layout.tp * per_logit
    if layout.zero_stage >= 3:
        p = layer_params(model=model, moe=bool(model.moe_experts))
        layer = (p.attention + p.mlp) / layout.tp + p.experts / (layout.ep * layout.etp)
        head = model.vocab * model.hidden / layout.tp
        if "gather_by_parameter" in fusions:
            # DeepSpeed holds at most stage3_max_live_parameters (1e9) gathered, whatever the layer.
            layer, head = min(layer, 0.5e9), min(head, 0.5e9)
        # Two gathered units (one in use, one prefetched) and one unreduced gradient of the largest unit.
        total += 2 * max(layer, head) * 2 + max(layer, head) * layout.gradient_bytes
    return total + (2 * 32e6)


def worst_rank(*, model: ModelSpec, layout: Layout, fusions: frozenset[str]) -> RankMemory:
    """The fullest stage; only a few can be, so first, second and last are looked at along with every uneven one."""
    stages = range(layout.pp) if layout.pp <= 8 else (0, 1, layout.pp - 2, layout.pp - 1)
    ranks = [rank_memory(model=model, layout=layout, stage=s, fusions=fusions) for s in stages]
    return max(ranks, key=lambda r: r.peak_bytes + r.reserved_bytes)


__all__ = ["RankMemory", "attention_params", "rank_memory", "stage_params", "worst_rank"]
