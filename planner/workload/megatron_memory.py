"""Bytes that PyTorch's allocator hands out on one rank of a Megatron-Core run: states, what autograd keeps, logits.

Sources: states arXiv 1910.02054 and Megatron-Core's distributed optimizer; activations arXiv 2205.05198 table 2, with
Transformer Engine's kernels (norm joined with the product behind it: input and normalised input are kept). The few
constants (workspaces, small tensors, boundary tensors) were read off packaged rows: steady memory above states.
"""

from dataclasses import dataclass

from planner.catalog.types import ModelSpec
from planner.workload.layout import Layout
from planner.workload.params import attention_dims, gates, is_moe_layer, layer_params

# cuBLAS and Transformer Engine workspaces of 32 MiB: two on Ampere, three later; grouped products on Hopper and later
# use one a stream, four more. What else stays at the end of a step (batch, masks, a split product) shrinks with tp.
WORKSPACE_BYTES = 32 * 2**20
SMALL_BYTES = 20e6
SMALL_LOCAL_BYTES = 80e6  # Megatron's own layers: mask and 16-bit copies
LOGIT_BYTES = 6.0  # 16-bit logits and their fp32 copy, which becomes the gradient
BOUNDARY_TENSORS = 2  # boundary activations that an interleaved schedule keeps to the end of the step, a chunk


@dataclass(frozen=True, slots=True)
class MegatronSetting:
    """What decides memory beside model and layout.

    Attributes:
        vpp_group: micro-batches that an interleaved schedule runs through a chunk before the next (default pp).
        flash: attention keeps no scores.
        dropout: hidden and attention dropout are on.
        transformer_engine: Transformer Engine layers, else Megatron's own.
        weight_grad_fusion: gradients are added in the product's epilogue; a 16-bit stand-in a weight shape stays.
        weight_bytes: of one stored parameter, fp8 copies included.
        logit_bytes: alive for one logit at the loss.
        routed_frac: tokens a rank's experts get over their even share.
    """

    vpp_group: int = 0
    flash: bool = True
    dropout: bool = False
    transformer_engine: bool = True
    weight_grad_fusion: bool = False
    stands_in: bool = False
    weight_bytes: float = 2.0
    gradient_bytes: float = 4.0
    optimizer_bytes: float = 12.0
    logit_bytes: float = LOGIT_BYTES
    routed_frac: float = 1.0
    optimizer_instances: int = 1
    ampere: bool = False
    grouped: bool = False


@dataclass(frozen=True, slots=True)
class MegatronMemory:
    """Allocator bytes of a rank: `steady` at the end of a step, `peak` within one."""

    params: float
    states_bytes: float
    steady_bytes: float
    activations_bytes: float
    logits_bytes: float

    @property
    def peak_bytes(self) -> float:
        """At the loss of the last micro-batch in flight."""
        return self.steady_bytes + self.activations_bytes + self.logits_bytes


def last_rank_params(*, model: ModelSpec, layout: Layout) -> tuple[float, float]:
    """(dense, expert) parameters of the last pipeline rank; a tied head has a copy there when pp > 1."""
    layers = model.layers // layout.pp
    indices = [model.layers - 1 - i for i in range(layers)]
    dense = experts = 0.0
    for index in indices:
        p = layer_params(model=model, moe=is_moe_layer(model=model, index=index))
        dense += (p.attention + p.mlp) / layout.tp + p.replicated
        experts += p.experts / (layout.ep * layout.etp)
    table = model.vocab * model.hidden / layout.tp
    dense += table
    if layout.pp == 1:
        dense += model.max_sequence * model.hidden if model.position == "learned" else 0.0
        dense += 0.0 if model.tied_embeddings else table
    return dense + model.hidden * (2 if model.norm == "layernorm" else 1), experts


def _state_bytes(*, params: float, ranks: float, layout: Layout, setting: MegatronSetting) -> float:
    if layout.zero_stage >= 3:
        return params * (setting.weight_bytes + setting.gradient_bytes + setting.optimizer_bytes) / ranks
    shared = setting.optimizer_bytes / (ranks if layout.zero_stage else 1.0)
    return params * (setting.weight_bytes + setting.gradient_bytes + shared)


def layer_kept_bytes(*, model: ModelSpec, layout: Layout, moe: bool, setting: MegatronSetting) -> float:
    """Bytes one layer keeps for its backward pass, one micro-batch, in 16 bits."""
    t, h, tp = layout.tokens, model.hidden, layout.tp
    outside = tp if layout.sequence_parallel else 1
    qk, v = attention_dims(model)
    heads, kv = model.heads / tp, max(model.kv_heads / tp, 1.0)
    kept = 8.0 * t * h / outside  # input and output of both norms
    kept += 2.0 * t * (heads * qk + kv * (qk + v) + heads * v)
    if model.mla is not None:
        kept += 2.0 * t * (2 * model.mla.q_rank + 2 * model.mla.kv_rank + model.mla.qk_rope_dim) / outside
    if setting.dropout:
        kept += 2.0 * t * h / outside
    if setting.flash:
        kept += 4.0 * t * heads
    else:
        per_score = 5.0 if setting.dropout else 2.0
        kept += per_score * layout.micro_batch * heads * layout.sequence**2 / layout.cp
    return kept + _mlp_kept(model=model, layout=layout, moe=moe, setting=setting)


def _mlp_kept(*, model: ModelSpec, layout: Layout, moe: bool, setting: MegatronSetting) -> float:
    t, tp, g = layout.tokens, layout.tp, gates(model)
    if not moe:
        return 2.0 * t * model.ffn * g / tp
    local = t / tp if layout.sequence_parallel else t
    routed = local * model.moe_topk * setting.routed_frac * layout.etp
    # Sorted rows, expert outputs before they are weighted, the router's fp32 input.
    kept = 2.0 * routed * (2 * model.hidden + model.moe_ffn / layout.etp * g) + 4.0 * local * model.hidden
    kept += 2.0 * t * model.moe_shared_ffn * g / tp
    return kept + 12.0 * local * model.moe_experts


def _in_flight_layers(*, model: ModelSpec, layout: Layout, setting: MegatronSetting) -> float:
    """Layers whose activations the last stage holds at its peak."""
    layers = model.layers / layout.pp
    if layout.pp == 1 or layout.vpp == 1:
        return layers
    group = setting.vpp_group or layout.pp
    chunks = min((layout.vpp - 1) * group + 1, layout.micro_batches * layout.vpp)
    return layers / layout.vpp * chunks


def _stand_in_bytes(*, model: ModelSpec, layout: Layout) -> float:
    """A 16-bit gradient per distinct weight shape that stays resident with weight-gradient fusion."""
    h, tp, g = model.hidden, layout.tp, gates(model)
    qkv = (model.heads + 2 * model.kv_heads) * model.head_dim * h / tp
    shapes = [qkv, model.heads * model.head_dim * h / tp, (g - 1) * model.ffn * h / tp, model.ffn * h / tp]
    return 2.0 * (sum(set(shapes)) + model.vocab * h / tp)


def last_rank_memory(*, model: ModelSpec, layout: Layout, setting: MegatronSetting) -> MegatronMemory:
    """Allocator bytes of the last rank of a Megatron-Core run."""
    dense, experts = last_rank_params(model=model, layout=layout)
    expert_ranks = max(1.0, layout.dp * layout.cp * layout.tp / (layout.ep * layout.etp))
    shared = layout.dp * layout.cp / setting.optimizer_instances
    states = _state_bytes(params=dense, ranks=shared, layout=layout, setting=setting)
    expert_shared = max(1.0, expert_ranks / setting.optimizer_instances)
    states += _state_bytes(params=experts, ranks=expert_shared, layout=layout, setting=setting)
    workspaces = 2 if setting.ampere or not setting.transformer_engine else 3
    workspaces += 4 if setting.grouped and not setting.ampere else 0
    small = SMALL_BYTES if setting.transformer_engine else SMALL_LOCAL_BYTES
    workspace = workspaces * WORKSPACE_BYTES + small / layout.tp
    outside = layout.tp if layout.sequence_parallel else 1
    boundary = 2.0 * layout.tokens * model.hidden / outside
    steady = states + workspace
    if layout.pp > 1 and layout.vpp > 1:
        steady += BOUNDARY_TENSORS * (layout.vpp - 1) * boundary
    if setting.stands_in:
        steady += _stand_in_bytes(model=model, layout=layout)
    count = model.layers // layout.pp
    kept = [
        layer_kept_bytes(
            model=model, layout=layout, moe=is_moe_layer(model=model, index=model.layers - 1 - i), setting=setting
        )
        for i in range(count)
    ]
    activations = sum(kept) / count * _in_flight_layers(model=model, layout=layout, setting=setting)
    activations += 2 * boundary
    logits = setting.logit_bytes * layout.tokens * model.vocab / layout.tp
    return MegatronMemory(dense + experts, states, steady, activations, logits)
