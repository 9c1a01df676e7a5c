"""The optimisations that a strategy names, applied one on top of the other: conditions first, then simulation.

The roadmap and a forecast call the same `changed`, so that a step of the road gains what a forecast with and without it
says.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from planner.catalog.optimisations import optimisation
from planner.catalog.types import ModelSpec
from planner.cost.types import Network
from planner.simulate.assemble import StepAnswer, forecast_step
from planner.simulate.stack_step import fits, least_recompute, machine_of_stack, stack_step
from planner.workload.effects import Effect, Optimised, by_words, note_of, words_of
from planner.workload.params import model_flops_per_token
from planner.workload.transforms import NotApplicableError, Stack, apply, effective_model, unmet

MEMORY_COSTS = frozenset({"full_ac", "selective_ac", "zero_stage", "lowbit_optim", "offload"})
MEMORY = "compute_memory_bound"
TRANSFER_FRAC = 0.5  # of the logarithm of a structural gain, surviving a ten-fold size gap


def best_layout(*, stack: Stack, network: Network) -> Stack:
    """Fastest of the plain layouts that fit: tensor ranks in a node, pipelines that divide the layers."""
    lay, model = stack.layout, stack.model
    best, best_s = stack, math.inf
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8, 16):
            gpus = lay.gpus
            if gpus % (tp * pp * lay.cp) or model.layers % pp or model.heads % tp or tp > network.gpus_per_node:
                continue
            dp = gpus // (tp * pp * lay.cp)
            if lay.global_batch % dp or (lay.ep > 1 and dp % lay.ep):
                continue
            per = model.layers // pp
            for zero, micro in ((1, 1), (1, 2), (3, 1), (3, 2)):
                if (lay.global_batch // dp) % micro or (zero == 3 and pp > 1):
                    continue
                trial = least_recompute(
                    stack.with_layout(
                        tp=tp,
                        pp=pp,
                        dp=dp,
                        vpp=1,
                        schedule="1f1b",
                        zero_stage=zero,
                        micro_batch=micro,
                        sequence_parallel=tp > 1,
                    )
                )
                if per < 1 or not fits(trial):
                    continue
                seconds = stack_step(stack=trial, network=network).step_s
                if seconds < best_s:
                    best, best_s = trial, seconds
    return best


def changed(*, key: str, stack: Stack, network: Network, open_recompute: bool, must_fit: bool = True) -> Stack:
    """The stack after one step, with the recompute that memory then needs.

    Raises:
        NotApplicableError: conditions that do not hold, or memory that does not suffice where it must.
    """
    entry = optimisation(key)
    variant = "zb2p" if key == "zero_bubble" else ""
    after = apply(key=key, stack=stack, variant=variant)
    if entry.modelled_by == "pilot":
        after = replace(after, steps_factor=stack.steps_factor * entry.factor_typical**TRANSFER_FRAC)
    if key == "layout_search":
        after = replace(best_layout(stack=stack, network=network), applied=after.applied)
    if open_recompute and key not in MEMORY_COSTS:
        after = least_recompute(after)
    if key == "zero_bubble" and not fits(after):
        after = apply(key=key, stack=stack, variant="zb1p")
    if must_fit and not fits(after):
        raise NotApplicableError(f"{key}: does not fit")
    return after


def optimise(
    *, stack: Stack, keys: Sequence[str], network: Network, open_recompute: bool, ratio: float = 1.0
) -> Optimised:
    """Apply optimisations in the order written; one whose conditions another meets waits for that other.

    A plan that does not fit afterwards is left so: the forecast says by how much. Of two that exclude each other the
    first written acts.

    Args:
        stack: before the optimisations.
        keys: optimisations in the order written.
        network: cluster.
        open_recompute: the strategy leaves recompute to memory.
        ratio: seconds of a forecast step over those of the stack's, for the times that are shown.

    Raises:
        CatalogError: an unknown key.
    """

    def effective_s(of: Stack) -> float:
        return ratio * stack_step(stack=of, network=network).effective_s

    waiting, effects, refused = list(dict.fromkeys(keys)), [], []
    while waiting:
        key = next((k for k in waiting if not unmet(key=k, stack=stack)), None)
        if key is None:
            break
        waiting.remove(key)
        before_s = effective_s(stack)
        try:
            after = changed(key=key, stack=stack, network=network, open_recompute=open_recompute, must_fit=False)
            after_s = effective_s(after)
        except ValueError as error:
            refused.append(Effect(key, False, before_s, before_s, "", str(error).removeprefix(f"{key}: ")))
            continue
        stack = after
        note = note_of(entry=optimisation(key), gain_frac=1 - after_s / before_s)
        effects.append(Effect(key, True, before_s, after_s, by_words(key), note))
    now_s = effective_s(stack)
    for key in waiting:
        why = "; ".join(words_of(condition) for condition in unmet(key=key, stack=stack))
        refused.append(Effect(key, False, now_s, now_s, "", why))
    return Optimised(stack, (*effects, *refused))


def optimised_step(
    *,
    model: ModelSpec,
    stack: Stack,
    keys: Sequence[str],
    network: Network,
    open_recompute: bool,
    engine: str = "fast",
) -> StepAnswer:
    """One step of a stack with optimisations.

    The step without them is that of `forecast_step`, and the gain is that of two simulated stacks, as on the roadmap.
    A stack counts memory-bound traffic that a forecast leaves out (`transforms.uncounted_bytes`): its breakdown is
    brought to the forecast's by the ratio of memory-bound time without them, and what is left by one factor.

    Args:
        model: the model as written; useful FLOPs are its own, not those of padding.
        stack: before the optimisations.
        keys: optimisations in the order written.
        network: cluster.
        open_recompute: the strategy leaves recompute to memory.
        engine: fast or events, for the step that is answered.

    Raises:
        CatalogError: an unknown key.
        ValueError: a layout or schedule that cannot be simulated.
    """
    machine = machine_of_stack(stack=stack, network=network)
    plain = forecast_step(model=effective_model(stack), layout=stack.layout, machine=machine)
    before = stack_step(stack=stack, network=network)
    ratio = plain.step_s / before.step_s
    found = optimise(stack=stack, keys=keys, network=network, open_recompute=open_recompute, ratio=ratio)
    after = stack_step(stack=found.stack, network=network, engine=engine)
    parts, step_s = dict(after.parts_s), ratio * after.step_s
    parts[MEMORY] *= dict(plain.breakdown_s)[MEMORY] / before.part(MEMORY)
    rest = step_s / math.fsum(parts.values())
    parts = {k: v * rest for k, v in parts.items()}
    layout, answer = found.stack.layout, after.answer
    per_gpu = layout.global_batch * layout.sequence / step_s / layout.gpus
    useful = replace(found.stack.model, vocab=model.vocab)
    flops, full = (model_flops_per_token(model=useful, sequence=layout.sequence, causal=c) for c in (True, False))
    compute = ("compute_matmul", "compute_attention", MEMORY, "optimizer")
    return replace(
        answer,
        step_s=step_s,
        breakdown_s=tuple(parts.items()),
        compute_busy_frac=sum(parts[k] for k in compute) / step_s,
        hbm_busy_frac=(parts[MEMORY] + parts["optimizer"]) / step_s,
        tokens_per_s=per_gpu * layout.gpus,
        model_flops_per_s_per_gpu=flops * per_gpu,
        full_attention_flops_per_s_per_gpu=full * per_gpu,
        hardware_flops_per_s_per_gpu=answer.hardware_flops_per_s_per_gpu * answer.step_s / step_s,
        launch_frac=parts["launch_gap"] / step_s,
        optimised=found,
    )
