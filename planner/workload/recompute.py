"""Recompute by module: what each frees, and what runs again before the backward pass.

Names are Megatron-Core's `--recompute-modules` (activation recomputation of its user guide). A module that ends a block
keeps its input; one whose output alone is thrown away (norms, activations, latent up-projections) runs that one again.
"""

# Kept tensors (`memory_activations.Kept.module`) that a module no longer keeps.
FREED: dict[str, tuple[str, ...]] = {
    "core_attn": ("core_attn",),
    "layernorm": ("layernorm",),
    "mla_up_proj": ("qkv",),
    "mlp": ("mlp",),
    "moe_act": ("moe_act",),
    "moe": ("moe_fc1", "moe_act", "dispatch", "shared_experts"),
    "shared_experts": ("shared_experts",),
}
SHARED = ("tp_shared_ag", "tp_shared_rs", "shared_up", "shared_activation", "shared_down")
# Forward operators that run again.
AGAIN: dict[str, tuple[str, ...]] = {
    "core_attn": ("scores", "context", "softmax", "attention"),
    "layernorm": ("norm_attention", "norm_mlp"),
    "mla_up_proj": ("q_up", "kv_up"),
    "mlp": ("tp_mlp_ag", "tp_mlp_rs", "up", "activation", "down"),
    "moe_act": ("activation",),
    "moe": (
        *("router", "route", "permute", "ep_dispatch", "ep_combine", "etp_gather", "etp_scatter"),
        *("expert_up", "activation", "expert_down", *SHARED),
    ),
    "shared_experts": SHARED,
}


def freed_by(modules: tuple[str, ...]) -> frozenset[str]:
    """Kept modules that a set of recomputed ones throws away."""
    return frozenset(kept for name in modules for kept in FREED[name])


def again_of(modules: tuple[str, ...], *, moe: bool) -> frozenset[str]:
    """Forward operators that run again in a layer with or without experts."""
    # An expert layer has no dense MLP, a dense one no experts.
    there = {"moe", "moe_act", "shared_experts"} if not moe else {"mlp"}
    return frozenset(op for name in modules if name not in there for op in AGAIN[name])
