"""Shapes from a Hugging Face `config.json`; unknown families are refused by name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.catalog.types import MlaSpec, ModelSpec

MAX_BYTES = 1 << 20
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gpt2", "gpt_neox", "mixtral", "qwen3_moe", "deepseek_v3")
ALIASES = {
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "vocab": ("vocab_size",),
    "ffn": ("intermediate_size", "n_inner"),
    "max_sequence": ("max_position_embeddings", "n_positions", "n_ctx"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "topk": ("num_experts_per_tok",),
    "moe_ffn": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "dense_layers": ("first_k_dense_replace",),
    "sliding_window": ("sliding_window",),
}
MOE_FAMILIES = ("mixtral", "qwen3_moe", "deepseek_v3")
MLA_KEYS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
# No published width, vocabulary or context is near it; a larger number is a typing error or an attack.
LARGEST = 1_000_000_000


def model_from_file(path: str) -> ModelSpec:
    """Read a `config.json`.

    Raises:
        ValueError: too large, not JSON, an unknown family or an impossible number.
        OSError: the file cannot be read.
    """
    place = Path(path)
    if place.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} is larger than {MAX_BYTES} bytes")
    try:
        data = json.loads(place.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, Mapping):
        raise ValueError(f"{path} holds no object")
    return model_from_config(data, name=place.parent.name or place.stem)


def _whole(config: Mapping[str, Any], keys: tuple[str, ...], default: int | None = None, *, least: int = 1) -> int:
    for key in keys:
        value = config.get(key)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
                raise ValueError(f"{key} must be a whole number from {least} to {LARGEST}, got {value!r}")
            return value
    if default is None:
        raise ValueError(f"config lacks {' or '.join(keys)}")
    return default


def model_from_config(config: Mapping[str, Any], *, name: str) -> ModelSpec:
    """The shape that a `config.json` describes.

    Raises:
        ValueError: an unknown family (the message lists the known ones) or an impossible number.
    """
    family = str(config.get("model_type") or "")
    if family not in FAMILIES:
        raise ValueError(f"model family {family!r} is not known; known: {', '.join(FAMILIES)}")
    hidden, heads = _whole(config, ALIASES["hidden"]), _whole(config, ALIASES["heads"])
    layers = _whole(config, ALIASES["layers"])
    gpt = family in {"gpt2", "gpt_neox"}
    mla = MlaSpec(*(_whole(config, (k,)) for k in MLA_KEYS)) if family == "deepseek_v3" else None
    ffn = _whole(config, ALIASES["ffn"], default=4 * hidden if family == "gpt2" else None)
    tied = config.get("tie_word_embeddings")
    return ModelSpec(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        head_dim=_head_dim(config=config, hidden=hidden, heads=heads, mla=mla),
        ffn=ffn,
        kv_heads=_kv_heads(config=config, heads=heads),
        vocab=_whole(config, ALIASES["vocab"]),
        max_sequence=_whole(config, ALIASES["max_sequence"], default=2048),
        activation="gelu" if gpt else "swiglu",
        norm="layernorm" if gpt else "rmsnorm",
        position="learned" if family == "gpt2" else "rotary",
        tied_embeddings=family == "gpt2" if tied is None else bool(tied),
        bias=gpt,
        qkv_bias=True if family == "qwen2" or (family in {"llama", "qwen3"} and config.get("attention_bias")) else None,
        qk_norm=family.startswith("qwen3"),
        mla=mla,
        sliding_window=_window(config=config, family=family),
        source="Hugging Face config.json",
        **_experts(config=config, family=family, ffn=ffn, layers=layers),
    )


def _head_dim(*, config: Mapping[str, Any], hidden: int, heads: int, mla: MlaSpec | None) -> int:
    if mla is not None:
        # Newer exports write the rotary width as head_dim; the value width is what the output projection sees.
        return mla.v_dim
    if config.get("head_dim") is None and hidden % heads:
        raise ValueError(f"{heads} heads do not divide hidden {hidden}, and head_dim is not given")
    return _whole(config, ALIASES["head_dim"], default=hidden // heads)


def _kv_heads(*, config: Mapping[str, Any], heads: int) -> int:
    count = _whole(config, ALIASES["kv_heads"], default=heads)
    if heads % count:
        raise ValueError(f"{count} key and value heads do not divide {heads} heads")
    return count


def _window(*, config: Mapping[str, Any], family: str) -> int:
    # Qwen configs carry a window that use_sliding_window = false switches off.
    if family not in {"mistral", "mixtral"} and not config.get("use_sliding_window"):
        return 0
    return _whole(config, ALIASES["sliding_window"], default=0)


def _experts(*, config: Mapping[str, Any], family: str, ffn: int, layers: int) -> dict[str, Any]:
    if family not in MOE_FAMILIES:
        return {}
    experts, topk = (
        _whole(config, ALIASES["experts"]),
        _whole(config, ALIASES["topk"], default=2 if family == "mixtral" else None),
    )
    if topk > experts:
        raise ValueError(f"num_experts_per_tok {topk} of {experts} experts")
    dense = _whole(config, ALIASES["dense_layers"], default=0, least=0)
    if dense > layers:
        raise ValueError(f"first_k_dense_replace {dense} of {layers} layers")
    if config.get("mlp_only_layers"):
        raise ValueError("mlp_only_layers is not supported: only leading dense layers are")
    # Mixtral writes the width of an expert as intermediate_size.
    width = _whole(config, ALIASES["moe_ffn"], default=ffn if family == "mixtral" else None)
    return {
        "moe_experts": experts,
        "moe_topk": topk,
        "moe_ffn": width,
        "moe_shared_ffn": width * _whole(config, ALIASES["shared_experts"], default=0, least=0),
        "moe_dense_layers": dense,
        "moe_every": _whole(config, ("decoder_sparse_step", "moe_layer_freq"), default=1),
    }
