"""Layouts that cannot be placed, in words: what does not divide what."""

from typing import NamedTuple

from planner.catalog.types import ModelSpec
from planner.scenario.strategy import Strategy


class LayoutProblem(NamedTuple):
    """One impossibility: the strategy's key, why, and valid values of the key, the nearest first."""

    key: str
    reason: str
    nearest: tuple[str, ...] = ()


def layout_problems(
    *, strategy: Strategy, model: ModelSpec | None, gpus: int | None, global_batch: int | None, sequence: int | None
) -> list[LayoutProblem]:
    """Every impossibility of a strategy; checks whose other side is unknown are left out."""
    s = strategy
    out: list[tuple[str, str] | tuple[str, str, tuple[str, ...]]] = []
    tp, pp, cp, vpp = s.tp or 1, s.pp or 1, s.cp or 1, s.vpp or 1
    if model is not None:
        out += _model_problems(s=s, model=model, tp=tp, pp=pp, vpp=vpp)
    if vpp > 1 and pp == 1:
        out.append(("vpp", "model chunks need pipeline stages: pp is 1"))
    if vpp > 1 and s.schedule not in {None, "interleaved", "dualpipev"}:
        out.append(("schedule", f"schedule {s.schedule} holds one chunk a stage; vpp {vpp} needs interleaved"))
    if s.schedule == "interleaved" and vpp == 1 and pp > 1:
        out.append(("schedule", "interleaved needs vpp of at least 2"))
    if s.schedule == "dualpipev" and vpp != 2:
        out.append(("schedule", "dualpipev needs vpp 2"))
    if s.zero_stage == 3 and s.schedule in {"zb1p", "zb2p", "dualpipev"}:
        out.append(("zero_stage", f"schedule {s.schedule} splits the backward pass, which ZeRO-3 does not"))
    if s.sequence_parallel and tp == 1:
        out.append(("sequence_parallel", "sequence parallelism splits over tensor ranks: tp is 1"))
    if sequence is not None and sequence % cp:
        out.append(("cp", f"cp {cp} does not divide the sequence of {sequence} tokens"))
    elif sequence is not None and s.sequence_parallel and sequence // cp % tp:
        out.append(("sequence_parallel", f"tp {tp} does not divide the {sequence // cp} tokens of a rank"))
    out += _exchange_problems(s)
    out += _recompute_problems(s=s, model=model, pp=pp, vpp=vpp)
    if gpus is not None:
        out += _cluster_problems(s=s, gpus=gpus, global_batch=global_batch, product=tp * pp * cp)
    return [LayoutProblem(*found) for found in out]


def _recompute_problems(*, s: Strategy, model: ModelSpec | None, pp: int, vpp: int) -> list[tuple[str, str]]:
    out = []
    if s.recompute_modules and s.recompute not in {None, "selective"}:
        out.append(("recompute_modules", f"modules belong to selective recompute, not to {s.recompute}"))
    if s.recompute_layers and (s.recompute not in {None, "full"} or s.recompute_modules):
        asked = s.recompute if s.recompute not in {None, "full"} else "modules"
        out.append(("recompute_layers", f"layers belong to full recompute, not to {asked}"))
    if model is None:
        return out
    chunk = -(-model.layers // (pp * vpp))
    if s.recompute_layers and s.recompute_layers > chunk:
        out.append(("recompute_layers", f"{s.recompute_layers} layers of a chunk that holds {chunk}; at most {chunk}"))
    absent = [(name, _absent(module=name, model=model)) for name in s.recompute_modules]
    return out + [("recompute_modules", f"{name}: {why}") for name, why in absent if why]


def _absent(*, module: str, model: ModelSpec) -> str:
    """Why a model has nothing to recompute in a module; empty when it has."""
    if module in {"moe", "moe_act"} and not model.moe_experts:
        return "the model has no experts"
    if module == "shared_experts" and not model.moe_shared_ffn:
        return "the model has no shared experts"
    if module == "mla_up_proj" and model.mla is None:
        return "the model has no latent attention"
    if module == "mlp" and model.moe_experts and not model.moe_dense_layers and model.moe_every == 1:
        return "every layer holds experts; name moe or moe_act"
    return ""


def _exchange_problems(s: Strategy) -> list[tuple[str, str]]:
    asked, zero = s.gradient_compression, s.zero_stage
    if asked is None:
        return []
    out = []
    if asked.kind in {"onebit", "lowrank"} and (zero or 0) >= 2:
        out.append(f"{asked.kind} needs whole gradients on every rank, which ZeRO-{zero} does not keep")
    if asked.every_steps > 1 and (zero or 0) >= 1:
        out.append(f"every_steps > 1 needs whole optimizer states on every rank, not ZeRO-{zero}")
    if asked.staleness_steps and (zero or 0) >= 3:
        out.append("staleness_steps needs weights on every rank, not ZeRO-3")
    if asked.staleness_steps and asked.every_steps > 1:
        out.append("give every_steps or staleness_steps, not both")
    if (asked.weights != "none" or asked.secondary) and zero not in {None, 3}:
        out.append(f"quantised weights and a second copy belong to ZeRO-3, not ZeRO-{zero}")
    return [("gradient_compression", text) for text in out]


def _model_problems(*, s: Strategy, model: ModelSpec, tp: int, pp: int, vpp: int) -> list[tuple[str, str]]:
    out = []
    if model.heads % tp:
        valid = [d for d in range(1, model.heads + 1) if model.heads % d == 0]
        near = min(valid, key=lambda d: abs(d - tp))
        out.append(("tp", f"tp {tp} does not divide the {model.heads} attention heads; nearest that does: {near}"))
    if pp > model.layers:
        out.append(("pp", f"{pp} stages for {model.layers} layers"))
    elif pp * vpp > model.layers + 2:
        out.append(("vpp", f"pp {pp} x vpp {vpp} = {pp * vpp} chunks for {model.layers} layers"))
    elif vpp > 1 and model.layers % (pp * vpp) and (model.layers + 2) % (pp * vpp) and not _places_freely(s):
        # Megatron placed equal chunks only; embedding and head may stand for a layer each (Llama 3, arXiv 2407.21783).
        valid = [v for v in range(1, model.layers // pp + 1) if not model.layers % (pp * v)]
        hint = f"; nearest that does: {min(valid, key=lambda v: abs(v - vpp))}" if valid else ""
        out.append(("vpp", f"vpp {vpp} does not divide {model.layers} layers over {pp} stages evenly{hint}"))
    ep = s.ep or 1
    if ep > 1 and not model.moe_experts:
        out.append(("ep", "the model has no experts"))
    elif ep > 1 and model.moe_experts % ep:
        out.append(("ep", f"ep {ep} does not divide the {model.moe_experts} experts"))
    return out


def _places_freely(s: Strategy) -> bool:
    """Megatron-Core lays out uneven chunks from 0.13 of 2025; the code behind DualPipe does too (arXiv 2412.19437)."""
    release = s.framework.release if s.framework is not None and s.framework.release else 0
    return s.schedule == "dualpipev" or int(release) >= 2025


def _cluster_problems(*, s: Strategy, gpus: int, global_batch: int | None, product: int) -> list[LayoutProblem]:
    if gpus % product:
        return [LayoutProblem("tp", f"tp x pp x cp = {product} does not divide the {gpus} GPUs")]
    dp = s.dp or gpus // product
    if dp * product != gpus:
        return [LayoutProblem("dp", f"tp x pp x cp x dp = {dp * product}, but the cluster has {gpus} GPUs")]
    ep = s.ep or 1
    # Experts spread over the tensor, context and data ranks of one stage.
    spread = (s.tp or 1) * (s.cp or 1) * dp
    out = []
    if ep > 1 and spread % (ep * (s.etp or 1)):
        out.append(LayoutProblem("ep", f"ep {ep} x etp {s.etp or 1} does not divide the {spread} ranks of a stage"))
    if global_batch is None:
        return out
    return out + _batch_problems(s=s, dp=dp, global_batch=global_batch)


def _nearest_divisors(*, of: int, to: int, count: int = 3) -> tuple[str, ...]:
    valid = [d for d in range(1, of + 1) if of % d == 0]
    return tuple(str(d) for d in sorted(valid, key=lambda d: (abs(d - to), d))[:count])


def _batch_problems(*, s: Strategy, dp: int, global_batch: int) -> list[LayoutProblem]:
    if global_batch % dp:
        reason = f"the global batch of {global_batch} sequences does not divide over {dp} data-parallel ranks"
        below, above = global_batch // dp * dp, (global_batch // dp + 1) * dp
        fit = " or ".join(str(b) for b in (below, above) if b)
        reason += f"; a global batch that does: {fit}"
        fewer = next((f for f in (2, 4, 8, 16, 32, 64) if dp % f == 0 and global_batch % (dp // f) == 0), None)
        if fewer:
            reason += f"; or split the model over {fewer} times more ranks (tp, pp or cp)"
        return [LayoutProblem("dp", reason)]
    local, micro = global_batch // dp, s.micro_batch_sequences
    if micro and local % micro:
        below, above = local // micro * micro * dp, (local // micro + 1) * micro * dp
        fit = " or ".join(str(b) for b in (below, above) if b)
        reason = (
            f"{micro} does not divide the {local} sequences of a data-parallel rank "
            f"(global batch {global_batch} / dp {dp}); a global batch that does: {fit}"
        )
        return [LayoutProblem("micro_batch_sequences", reason, _nearest_divisors(of=local, to=micro))]
    # Under a pipeline an open micro-batch is one sequence.
    count, stages = local // (micro or 1), s.pp or 1
    if s.schedule == "dualpipev" and count < 2 * stages:
        reason = f"dualpipev needs at least {2 * stages} micro-batches, and there are {count}"
        return [LayoutProblem("schedule", reason)]
    return []
