"""Tensors a layer keeps for its backward pass, operator by operator, and what the loss keeps.

Counts follow Korthikanti et al. 2022 (arXiv 2205.05198, table 2) for dense layers; expert layers follow the order of
work of Megatron-Core's dispatchers (arXiv 2504.14960, section 3). Flash attention keeps no scores.
"""

from dataclasses import dataclass

from planner.catalog.types import ModelSpec
from planner.workload.layout import Layout
from planner.workload.memory_stack import MemoryStack, stack_of
from planner.workload.memory_states import FP8
from planner.workload.params import attention_dims, gates
from planner.workload.recompute import freed_by

LSE_BYTES = 4.0  # log-sum-exp of a row of scores, fp32


@dataclass(frozen=True, slots=True)
class Kept:
    """One kept tensor: operator, the recompute or offload module that frees it, bytes."""

    name: str
    module: str
    nbytes: float


def layer_kept(*, model: ModelSpec, layout: Layout, moe: bool, stack: MemoryStack) -> tuple[Kept, ...]:
    """Everything one layer keeps of one micro-batch without recompute, bytes."""
    t, h, w = layout.tokens, model.hidden, float(layout.compute_bytes)
    outside = layout.tp if layout.sequence_parallel else 1
    residual = t * h * w / outside
    product = t * h * product_bytes(layout) / outside
    wide = 1.5 if layout.autocast else 1.0  # the residual stream and norm inputs stay fp32
    mask = t * h / outside if stack.dropout else 0.0
    mlp = (
        _expert_kept(model=model, layout=layout, stack=stack)
        if moe
        else _mlp_kept(model=model, layout=layout, stack=stack)
    )
    return (
        Kept("input", "input", wide * stack.norm_copies * residual),
        Kept("norm1", "layernorm", product),
        *_attention_kept(model=model, layout=layout, stack=stack),
        Kept("residual_mask1", "", mask),
        Kept("residual", "residual", wide * stack.norm_copies * residual),
        Kept("norm2", "layernorm", product),
        *mlp,
        Kept("residual_mask2", "", mask),
    )


def product_bytes(layout: Layout) -> float:
    """Bytes of an element that a product keeps of its input: 8-bit products keep the quantised copy alone."""
    if layout.precision == "nvfp4":
        return 0.5625  # 4 bits and an 8-bit scale per 16
    if layout.precision in FP8:
        return 1.0 + (1.0 / 32.0 if layout.precision == "mxfp8" else 0.0)
    return float(layout.compute_bytes)


def _attention_kept(*, model: ModelSpec, layout: Layout, stack: MemoryStack) -> tuple[Kept, ...]:
    t, w, tp = layout.tokens, float(layout.compute_bytes), layout.tp
    qk, v = attention_dims(model)
    heads, kv = model.heads / tp, max(model.kv_heads / tp, 1.0)
    out = t * heads * v * w
    kept = [Kept("qkv", "qkv", t * w * (heads * qk + kv * (qk + v))), Kept("attention_out", "attn_out", out)]
    if model.qk_norm:
        kept.append(Kept("qk_norm", "layernorm", t * w * qk * (heads + kv)))
    if layout.precision in FP8:
        # Attention keeps its 16-bit output, the next product its own 8-bit copy.
        kept.append(Kept("attention_out_8bit", "attn_out", t * heads * v * product_bytes(layout)))
    if model.mla is not None:
        # Down-projections are kept before and after their norm, whole on every tensor-parallel rank.
        a, outside = model.mla, layout.tp if layout.sequence_parallel else 1
        down = t * w * (2 * (a.q_rank + a.kv_rank) + a.qk_rope_dim) / outside
        kept.append(Kept("latent", "mla", down))
    if stack.scores_kept:
        scores = layout.micro_batch * heads * layout.sequence**2 / layout.cp
        # Softmax output; with dropout its mask and its result too.
        softmax = stack.softmax_bytes or w
        kept.append(Kept("scores", "core_attn", scores * (softmax + w + 1 if stack.dropout else softmax)))
    else:
        kept.append(Kept("lse", "core_attn", t * heads * LSE_BYTES))
        if stack.attention == "copied" and layout.micro_batch > 1:
            # With one sequence both layouts are the same bytes.
            kept.append(Kept("attention_out_copy", "attn_out", out))
    return tuple(kept)


def _mlp_kept(*, model: ModelSpec, layout: Layout, stack: MemoryStack) -> tuple[Kept, ...]:
    wide = layout.tokens * model.ffn / layout.tp
    return (
        Kept("fc1", "mlp", wide * layout.compute_bytes * (gates(model) - 1)),
        Kept("act", "mlp", wide * product_bytes(layout) if stack.activation_kept else 0.0),
    )


def routed_rows(*, model: ModelSpec, layout: Layout, stack: MemoryStack) -> float:
    """Token copies that the experts of one rank see in a micro-batch."""
    local = layout.tokens / (layout.tp if layout.sequence_parallel else 1)
    return local * layout.etp * model.moe_topk * stack.expert_load


def _expert_kept(*, model: ModelSpec, layout: Layout, stack: MemoryStack) -> tuple[Kept, ...]:
    t, h, w, tp = layout.tokens, model.hidden, float(layout.compute_bytes), layout.tp
    local = t / (tp if layout.sequence_parallel else 1)
    rows = routed_rows(model=model, layout=layout, stack=stack)
    product = product_bytes(layout)
    wide, shared = rows * model.moe_ffn / layout.etp, t * model.moe_shared_ffn / tp
    kept = [
        Kept("router", "router", local * model.moe_experts * 8.0),
        Kept("expert_in", "dispatch", rows * h * product),
        Kept("fc1", "moe_fc1", wide * w * (gates(model) - 1)),
        Kept("act", "moe_act", wide * product),
        Kept("shared_fc1", "shared_experts", shared * w * (gates(model) - 1)),
        Kept("shared_act", "shared_experts", shared * product),
    ]
    if stack.combine_saved:
        kept.append(Kept("expert_out", "dispatch", rows * h * w))
    if stack.dispatcher == "allgather":
        kept.append(Kept("gathered", "dispatch", local * layout.ep * layout.etp * h * w))
    return tuple(kept)


def layer_activation_bytes(
    *, model: ModelSpec, layout: Layout, moe: bool, fusions: frozenset[str], stack: MemoryStack | None = None
) -> float:
    """Bytes one layer keeps for its backward pass, one micro-batch, after recompute and offload."""
    stack = stack or stack_of(fusions)
    if layout.recompute == "full":
        if "input" in layout.offload_modules:
            return 0.0
        return layout.tokens * model.hidden * layout.compute_bytes / (layout.tp if layout.sequence_parallel else 1)
    if layout.recompute == "selective" and stack.op_selective and not layout.recompute_modules:
        return _op_selective(model=model, layout=layout, moe=moe, stack=stack)
    freed = set(layout.offload_modules)
    names: set[str] = set()
    if layout.recompute == "selective":
        dropped = freed_by(layout.recompute_modules or ("core_attn",))
        names |= {"scores"} if "core_attn" in dropped else set()  # the log-sum-exp of a flash kernel stays
        freed |= dropped - {"core_attn"}
    kept = layer_kept(model=model, layout=layout, moe=moe, stack=stack)
    return sum(k.nbytes for k in kept if k.name not in names and k.module not in freed)


def offload_in_transit_bytes(*, model: ModelSpec, layout: Layout, moe: bool, stack: MemoryStack) -> float:
    """What two layers hold on the device while one of them is copied to the host or back and the other computes."""
    moved = set(layout.offload_modules)
    if not moved:
        return 0.0
    return 2 * sum(k.nbytes for k in layer_kept(model=model, layout=layout, moe=moe, stack=stack) if k.module in moved)


def _op_selective(*, model: ModelSpec, layout: Layout, moe: bool, stack: MemoryStack) -> float:
    # torchtitan keeps the layer's input, attention's result and every second product: Q, V, gate and MLP result.
    t, w, tp, h = layout.tokens, layout.compute_bytes, layout.tp, model.hidden
    qk, v = attention_dims(model)
    heads, kv = model.heads / tp, max(model.kv_heads / tp, 1.0)
    outside = tp if layout.sequence_parallel else 1
    base = t * w * (2 * h / outside + heads * qk + kv * v + heads * v + (0 if moe else model.ffn / tp))
    if not moe:
        return base
    return base + sum(k.nbytes for k in _expert_kept(model=model, layout=layout, stack=stack))


def logit_bytes(*, stack: MemoryStack) -> tuple[float, float]:
    """Bytes a logit takes at the peak of the loss, and those it keeps until its backward pass.

    fused: 16-bit logits beside one fp32 copy that softmax overwrites (Megatron vocab-parallel cross-entropy); compiled:
    a second fp32 copy; in_place: the gradient overwrites 16-bit logits (llm.c); kernel: a 16-bit copy that becomes the
    gradient (Transformer Engine, flash-attention); eager: fp32 copy and log-softmax.
    """
    kinds = {
        "fused": (6.0, 4.0),
        "compiled": (10.0, 4.0),
        "in_place": (2.0, 2.0),
        "kernel": (4.0, 2.0),
        "eager": (10.0, 4.0),
    }
    return kinds[stack.loss]
