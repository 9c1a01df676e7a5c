"""Parameters of a model, in total and by rank, and the model FLOPs of a token."""

from dataclasses import dataclass

from planner.catalog.types import ModelSpec


@dataclass(frozen=True, slots=True)
class LayerParams:
    """Parameters of one decoder layer: what tensor parallelism splits, what it repeats, what experts hold."""

    attention: float
    mlp: float
    experts: float
    experts_active: float
    replicated: float

    @property
    def total(self) -> float:
        """All parameters of the layer."""
        return self.attention + self.mlp + self.experts + self.replicated

    @property
    def active(self) -> float:
        """Parameters a token passes through."""
        return self.attention + self.mlp + self.experts_active + self.replicated


def gates(model: ModelSpec) -> int:
    """Matrices of an MLP: three when gated, two otherwise."""
    return 3 if model.activation == "swiglu" else 2


def is_moe_layer(*, model: ModelSpec, index: int) -> bool:
    """Whether layer `index` holds experts."""
    if not model.moe_experts or index < model.moe_dense_layers:
        return False
    return (index - model.moe_dense_layers) % model.moe_every == model.moe_every - 1


def moe_layers(model: ModelSpec) -> int:
    """Number of layers that hold experts."""
    return sum(is_moe_layer(model=model, index=i) for i in range(model.layers))


def attention_params(model: ModelSpec) -> tuple[float, float]:
    """Weights and biases of the attention projections (MLA: DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
    h, d = model.hidden, model.head_dim
    if model.mla is not None:
        a = model.mla
        q = (
            h * a.q_rank + a.q_rank * model.heads * (a.qk_nope_dim + a.qk_rope_dim)
            if a.q_rank
            else (h * model.heads * (a.qk_nope_dim + a.qk_rope_dim))
        )
        kv = h * (a.kv_rank + a.qk_rope_dim) + a.kv_rank * model.heads * (a.qk_nope_dim + a.v_dim)
        return q + kv + model.heads * a.v_dim * h, a.q_rank + a.kv_rank
    q_width, kv_width = model.heads * d, model.kv_heads * d
    weights = h * (q_width + 2 * kv_width) + q_width * h
    qkv_bias = model.bias if model.qkv_bias is None else model.qkv_bias
    biases = (q_width + 2 * kv_width if qkv_bias else 0) + (h if model.bias else 0)
    return weights + biases, 2 * d if model.qk_norm else 0


def layer_params(*, model: ModelSpec, moe: bool) -> LayerParams:
    """Parameters of one layer, dense or with experts."""
    h, n = model.hidden, gates(model)
    attention, extra = attention_params(model)
    norms = 2 * h * (2 if model.norm == "layernorm" and model.bias else 1)
    if not moe:
        bias = (model.ffn * (n - 1) + h) if model.bias else 0
        return LayerParams(attention, n * h * model.ffn + bias, 0.0, 0.0, norms + extra)
    expert = n * h * model.moe_ffn
    shared = n * h * model.moe_shared_ffn
    router = h * model.moe_experts
    return LayerParams(attention, shared, model.moe_experts * expert, model.moe_topk * expert, norms + extra + router)


def embedding_params(model: ModelSpec) -> float:
    """Input embedding with learned positions."""
    positions = model.max_sequence * model.hidden if model.position == "learned" else 0
    return model.vocab * model.hidden + positions


def total_params(model: ModelSpec) -> float:
    """All parameters, as a checkpoint counts them."""
    n_moe = moe_layers(model)
    layers = (model.layers - n_moe) * layer_params(model=model, moe=False).total
    if n_moe:
        layers += n_moe * layer_params(model=model, moe=True).total
    final_norm = model.hidden * (2 if model.norm == "layernorm" and model.bias else 1)
    head = 0 if model.tied_embeddings else model.vocab * model.hidden
    return layers + embedding_params(model) + head + final_norm


def active_params_without_embedding(model: ModelSpec) -> float:
    """Parameters a token multiplies with: layers and head, without the input embedding."""
    n_moe = moe_layers(model)
    layers = (model.layers - n_moe) * layer_params(model=model, moe=False).active
    if n_moe:
        layers += n_moe * layer_params(model=model, moe=True).active
    return layers + model.vocab * model.hidden


def attention_flops_per_token(*, model: ModelSpec, sequence: int, causal: bool) -> float:
    """Forward and backward FLOPs of scores and weighted sum, per token: 12 L heads d s, halved when causal."""
    qk, v = attention_dims(model)
    span = min(sequence, model.sliding_window) if model.sliding_window else sequence
    full = 6.0 * model.layers * model.heads * (qk + v) * span
    return full / 2 if causal and span == sequence else full


def attention_dims(model: ModelSpec) -> tuple[int, int]:
    """Width of a query-key head and of a value head."""
    if model.mla is not None:
        return model.mla.qk_nope_dim + model.mla.qk_rope_dim, model.mla.v_dim
    return model.head_dim, model.head_dim


def model_flops_per_token(*, model: ModelSpec, sequence: int, causal: bool = True) -> float:
    """6 N_active without input embedding plus attention (PaLM, arXiv 2204.02311, appendix B; causal-halved)."""
    attention = attention_flops_per_token(model=model, sequence=sequence, causal=causal and model.causal)
    return 6.0 * active_params_without_embedding(model) + attention
