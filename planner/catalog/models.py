"""Model presets from `data/models.csv`; parameter counts are checked against the published ones by a test."""

from functools import lru_cache

from planner.catalog.errors import CatalogError
from planner.catalog.tables import aliases_of, index, name_key, number, rows
from planner.catalog.types import MlaSpec, ModelSpec


@lru_cache(maxsize=1)
def models() -> dict[str, ModelSpec]:
    """All presets by lower-case name."""
    out = {}
    for r in rows("models.csv"):
        mla = MlaSpec(*(int(x) for x in r["mla"].split("/"))) if r["mla"] else None
        hidden, heads = int(number(r, "hidden")), int(number(r, "heads"))
        family = r["family"]
        gated = family in {"llama", "qwen2", "qwen3", "deepseek"}
        out[r["name"].lower()] = ModelSpec(
            name=r["name"].lower(),
            layers=int(number(r, "layers")),
            hidden=hidden,
            heads=heads,
            kv_heads=int(number(r, "kv_heads", default=heads)),
            head_dim=int(number(r, "head_dim", default=hidden // heads)),
            ffn=int(number(r, "ffn", default=4 * hidden)),
            vocab=int(number(r, "vocab")),
            max_sequence=int(number(r, "max_sequence")),
            activation="swiglu" if gated else "gelu",
            norm="rmsnorm" if gated else "layernorm",
            position={"gpt": "learned", "bert": "learned", "bloom": "alibi", "mpt": "alibi"}.get(family, "rotary"),
            tied_embeddings=r["tied"] == "yes",
            bias=family in {"gpt", "bert", "bloom", "neox"},
            qkv_bias=True if family == "qwen2" else None,
            qk_norm=family == "qwen3",
            causal=family != "bert",
            moe_experts=int(number(r, "experts")),
            moe_topk=int(number(r, "topk")),
            moe_ffn=int(number(r, "moe_ffn")),
            moe_shared_ffn=int(number(r, "shared_ffn")),
            moe_dense_layers=int(number(r, "dense_layers")),
            mla=mla,
            source=r["source"],
        )
    return out


def published_params() -> dict[str, float]:
    """Parameter count that each preset's source prints, in units."""
    return {r["name"].lower(): number(r, "params_b") * 1e9 for r in rows("models.csv") if r["params_b"]}


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    return index((r["name"].lower(), aliases_of(r)) for r in rows("models.csv"))


@lru_cache(maxsize=512)
def model(name: str) -> ModelSpec:
    """A preset by name or alias; a Hugging Face owner in front (`meta-llama/Llama-2-7b`) is accepted.

    Raises:
        CatalogError: an unknown name, with the nearest ones.
    """
    owner, slash, rest = name.strip().partition("/")
    found = _names().get(name_key(rest if slash and owner else name))
    if found is None:
        known = [x for r in rows("models.csv") for x in (r["name"].lower(), *aliases_of(r))]
        raise CatalogError(kind="model", name=name, known=known)
    return models()[found]
