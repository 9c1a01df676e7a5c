"""Parameters a rank owns and the bytes of their weights, gradients and optimizer states (ZeRO, arXiv 1910.02054)."""

from functools import lru_cache

from planner.catalog.types import ModelSpec
from planner.workload.layout import Layout, layers_per_chunk
from planner.workload.params import embedding_params, is_moe_layer, layer_params

FP8 = {"fp8", "fp8_rowwise", "fp8_block", "mxfp8", "nvfp4"}


def stage_layers(*, model: ModelSpec, layout: Layout, stage: int) -> tuple[tuple[bool, ...], ...]:
    """For each chunk of a stage, whether each of its layers holds experts."""
    return _stage_layers(model, layers_per_chunk(layers=model.layers, layout=layout), stage)


@lru_cache(maxsize=65_536)
def _stage_layers(model: ModelSpec, counts: tuple[tuple[int, ...], ...], stage: int) -> tuple[tuple[bool, ...], ...]:
    first, out = 0, []
    for chunk in range(len(counts[0])):
        for at in range(len(counts)):
            n = counts[at][chunk]
            if at == stage:
                out.append(tuple(is_moe_layer(model=model, index=i) for i in range(first, first + n)))
            first += n
    return tuple(out)


def _layer_share(*, model: ModelSpec, layout: Layout, moe: bool) -> tuple[float, float]:
    p = layer_params(model=model, moe=moe)
    whole = p.replicated
    if model.mla is not None:
        # Latent down-projections are whole on every tensor-parallel rank.
        whole += model.hidden * (model.mla.q_rank + model.mla.kv_rank + model.mla.qk_rope_dim) * (1 - 1 / layout.tp)
    return (p.attention + p.mlp) / layout.tp + whole, p.experts / (layout.ep * layout.etp)


def stage_params(*, model: ModelSpec, layout: Layout, stage: int) -> tuple[float, float]:
    """Parameters one rank of a stage owns: (dense part, expert part), after tensor and expert sharding.

    Learned positions and norms are whole on every tensor-parallel rank. Tied embeddings are held twice, on the first
    and on the last stage, when these differ; multi-token prediction needs the input embedding on the last stage too.
    """
    dense = experts = 0.0
    chunks = stage_layers(model=model, layout=layout, stage=stage)
    n_moe = sum(map(sum, chunks))
    for moe, count in ((False, sum(map(len, chunks)) - n_moe), (True, n_moe)):
        if count:
            d, e = _layer_share(model=model, layout=layout, moe=moe)
            dense, experts = dense + count * d, experts + count * e
    table = model.vocab * model.hidden / layout.tp
    if stage == 0:
        dense += table + (embedding_params(model) - model.vocab * model.hidden)
    if stage == layout.pp - 1:
        dense += model.hidden * (2 if model.norm == "layernorm" and model.bias else 1)
        if not model.causal:
            dense += model.hidden**2 + 3 * model.hidden  # an encoder's head: one square product, bias and norm
        if not model.tied_embeddings or layout.pp > 1:
            dense += table
        if layout.mtp_layers:
            d, e = _layer_share(model=model, layout=layout, moe=bool(model.moe_experts))
            projection = 2 * model.hidden**2 / layout.tp + 3 * model.hidden
            dense += layout.mtp_layers * (d + projection) + (
                table if layout.pp > 1 and not model.tied_embeddings else 0
            )
            experts += layout.mtp_layers * e
    return dense, experts


def state_bytes(*, params: float, ranks: float, layout: Layout) -> tuple[float, float, float]:
    """Weights, gradients and optimizer bytes of `params` whose states `ranks` share."""
    w, g, master, moments = widths(layout)
    if layout.lora_rank:
        # Frozen weights carry neither gradients nor states.
        g, master, moments = (layout.trained_frac * x for x in (g, master, moments))
    shard = max(1.0, ranks)
    held = (master + moments) * (1.0 - layout.optimizer_offload_frac)
    return (
        params * w / (shard if layout.zero_stage >= 3 else 1),
        params * g / (shard if layout.zero_stage >= 2 else 1),
        params * held / (shard if layout.zero_stage >= 1 else 1),
    )


def widths(layout: Layout) -> tuple[float, float, float, float]:
    """Bytes of a parameter's weight, gradient, master copy and optimizer moments.

    fp32 weights need no master copy. Optimizers: `adamw` (two fp32 moments), `adamw_...` (torch AdamW on 16-bit
    weights: 16-bit moments, no master), `precision_aware` (16-bit moments beside an fp32 master, Megatron-Core),
    `muon` (one fp32 momentum), `sgd` (momentum only). fp16 gradients need an fp32 copy for the step.
    """
    w = 4.0 if layout.autocast or layout.precision in {"fp32", "tf32"} else 2.0
    g = 4.0 if layout.autocast else float(layout.gradient_bytes)
    master, moments = (0.0 if w == 4 else 4.0), 8.0
    if layout.optimizer.startswith("adamw_") and w == 2:
        master, moments = 0.0, 2.0 * w
    elif layout.optimizer in {"precision_aware", "muon"}:
        moments = 4.0
    elif layout.optimizer == "sgd":
        master, moments = 0.0, 4.0
    return layout.weight_bytes or w, g, master, moments


def expert_shards(layout: Layout) -> float:
    """Ranks that share the optimizer states of an expert: replicas of the expert inside the sharding group."""
    replicas = layout.dp * layout.cp * layout.tp / (layout.ep * layout.etp)
    return max(1.0, replicas * layout.sharded_over / (layout.dp * layout.cp))


def rank_states(*, model: ModelSpec, layout: Layout, stage: int) -> tuple[float, float, float]:
    """Weights, gradients and optimizer bytes of one rank of a stage."""
    dense, experts = stage_params(model=model, layout=layout, stage=stage)
    a = state_bytes(params=dense, ranks=layout.sharded_over, layout=layout)
    b = state_bytes(params=experts, ranks=expert_shards(layout), layout=layout)
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def wgrad_elements(*, model: ModelSpec, layout: Layout) -> float:
    """Elements of one weight of each distinct shape on the last stage: attention, dense and shared MLP, head."""
    h, tp, d = model.hidden, layout.tp, model.head_dim
    gate = 2 if model.activation == "swiglu" else 1
    shapes: set[tuple[float, float]] = {(model.vocab / tp, h)}
    if model.mla is not None:
        a = model.mla
        shapes |= {(h, a.q_rank), (h, a.kv_rank + a.qk_rope_dim), (model.heads * a.v_dim / tp, h)}
        shapes |= {
            (a.q_rank, model.heads * (a.qk_nope_dim + a.qk_rope_dim) / tp),
            (a.kv_rank, model.heads * (a.qk_nope_dim + a.v_dim) / tp),
        }
    else:
        shapes |= {(h, (model.heads + 2 * model.kv_heads) * d / tp), (model.heads * d / tp, h)}
    last = stage_layers(model=model, layout=layout, stage=layout.pp - 1)
    widths_in_use = {model.moe_shared_ffn if moe else model.ffn for chunk in last for moe in chunk}
    for wide in widths_in_use - {0}:
        shapes |= {(h, gate * wide / tp), (wide / tp, h)}
    return float(sum(a * b for a, b in shapes))
