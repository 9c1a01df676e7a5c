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
}


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


def _whole(config: Mapping[str, Any], keys: tuple[str, ...], default: int | None = None) -> int:
    for key in keys:
        value = config.get(key)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{key} must be a positive whole number, got {value!r}")
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
    gpt = family in {"gpt2", "gpt_neox"}
    mla = None
    if family == "deepseek_v3":
        mla = MlaSpec(
            *(
                _whole(config, (k,))
                for k in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
            )
        )
    elif config.get("head_dim") is None and hidden % heads:
        raise ValueError(f"{heads} heads do not divide hidden {hidden}")
    experts = 0
    if family in {"mixtral", "qwen3_moe", "deepseek_v3"}:
        experts = _whole(config, ("num_local_experts", "num_experts", "n_routed_experts"))
    ffn = _whole(config, ALIASES["ffn"], default=4 * hidden)
    moe_ffn = _whole(config, ("moe_intermediate_size",), default=ffn) if experts else 0
    return ModelSpec(
        name=name,
        layers=_whole(config, ALIASES["layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=_whole(config, ("num_key_value_heads",), default=heads),
        head_dim=_whole(config, ("head_dim",), default=mla.v_dim if mla else hidden // heads),
        ffn=ffn,
        vocab=_whole(config, ALIASES["vocab"]),
        max_sequence=_whole(config, ALIASES["max_sequence"], default=2048),
        activation="gelu" if gpt else "swiglu",
        norm="layernorm" if gpt else "rmsnorm",
        position="learned" if family == "gpt2" else "rotary",
        tied_embeddings=bool(config.get("tie_word_embeddings", family == "gpt2")),
        bias=gpt,
        qkv_bias=True if family == "qwen2" else None,
        qk_norm=family.startswith("qwen3"),
        moe_experts=experts,
        moe_topk=_whole(config, ("num_experts_per_tok",), default=2) if experts else 0,
        moe_ffn=moe_ffn,
        moe_shared_ffn=moe_ffn * int(config.get("n_shared_experts") or 0) if experts else 0,
        moe_dense_layers=int(config.get("first_k_dense_replace") or 0) if experts else 0,
        mla=mla,
        source="Hugging Face config.json",
    )
