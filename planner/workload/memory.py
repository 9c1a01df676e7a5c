"""Bytes a rank holds: states by ZeRO stage, activations in flight, logits and buffers; at load and in each step."""

from dataclasses import dataclass, replace

from planner.catalog.types import ModelSpec
from planner.workload.exchange import extra_bytes
from planner.workload.layout import Layout
from planner.workload.memory_activations import (
    layer_activation_bytes,
    logit_bytes,
    offload_in_transit_bytes,
    routed_rows,
)
from planner.workload.memory_stack import MemoryStack, stack_of
from planner.workload.memory_states import rank_states, stage_layers, stage_params, state_bytes, wgrad_elements, widths
from planner.workload.params import attention_params, gates, layer_params

LIVE_PARAMETERS = 1e9  # DeepSpeed's default for stage3_max_live_parameters


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of one rank by part. `peak_bytes` is what the allocator hands out at most after the first step.

    `steady_bytes` stays allocated between steps; `reserved_bytes` is what the allocator and the driver hold on top.
    """

    stage: int
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    buffers_bytes: float
    peak_load_bytes: float
    peak_first_step_bytes: float
    reserved_bytes: float
    steady_bytes: float = 0.0

    @property
    def peak_bytes(self) -> float:
        """Sum of the parts that live at the same time."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.buffers_bytes
        )


def warmup_chunks(*, layout: Layout, stage: int) -> int:
    """Forward passes of model chunks whose backward pass is still to come, at the peak of a stage.

    Interleaved: 2 (p - stage - 1) + (v - 1) g + 1 with g micro-batches in a group (Narayanan et al. 2021, section 2.2).
    """
    p, m, v = layout.pp, layout.micro_batches, layout.vpp
    if p == 1:
        return 1
    if layout.schedule == "gpipe":
        return m * v
    if v > 1:
        group = layout.microbatch_group or p
        return min((p - stage - 1) * 2 + (v - 1) * group + 1, m * v)
    held = p - stage
    if layout.schedule in {"zb2p", "dualpipe", "dualpipev"}:
        held = min(2 * p - 1, 2 * held)
    return min(held, m)


def chunks_held(*, layout: Layout, stage: int) -> tuple[int, ...]:
    """Micro-batches each chunk of a stage holds at the peak.

    Groups of micro-batches pass one chunk after the other; the last group may be short.
    """
    v, m = layout.vpp, layout.micro_batches
    group = min(layout.microbatch_group or layout.pp, m) if v > 1 else m
    left, held = warmup_chunks(layout=layout, stage=stage), [0] * v
    for start in range(0, m, group):
        for chunk in range(v):
            taken = min(left, group, m - start)
            held[chunk] += taken
            left -= taken
    return tuple(held)


def rank_memory(
    *, model: ModelSpec, layout: Layout, stage: int, fusions: frozenset[str], stack: MemoryStack | None = None
) -> RankMemory:
    """Memory of one rank of a pipeline stage. `stack` overrides what `fusions` says of the software."""
    stack = stack or stack_of(fusions)
    weights, gradients, optimizer = rank_states(model=model, layout=layout, stage=stage)
    kept, recomputed = _stage_kept(model=model, layout=layout, stage=stage, stack=stack)
    lasting = _lasting_buffers(model=model, layout=layout, stage=stage, stack=stack)
    # The inputs among the boundary tensors are those of the chunks in flight, counted there.
    inputs = layout.vpp * _boundary_bytes(model=model, layout=layout)
    passing = recomputed + _working(model=model, layout=layout, stack=stack)
    if stage == layout.pp - 1:
        # The loss is over before the last layer's backward pass starts; only a stack that holds on to logits pays both.
        passing += _held_logits(model=model, layout=layout, stack=stack)
        passing = max(passing, _loss_bytes(model=model, layout=layout, stack=stack))
    mask = layout.micro_batch * layout.sequence**2 / layout.cp if stack.mask and layout.pp == 1 else 0.0
    buffers = lasting - inputs + mask + passing + gathered_bytes(model=model, layout=layout, stack=stack)
    moments, step_copy = _step_bytes(layout=layout, optimizer_bytes=optimizer)
    states = weights + gradients + optimizer
    steady = states + step_copy + lasting
    buffers += step_copy if stack.step_copy_stays and layout.zero_stage < 3 else 0.0
    owned = sum(stage_params(model=model, layout=layout, stage=stage))
    buffers += extra_bytes(exchange=layout.exchange, params=owned, trained_frac=layout.trained_frac)
    peak = states + kept + buffers
    fragmenting = kept + buffers + (states if stack.states_fragment else 0.0)
    return RankMemory(
        stage=stage,
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=kept,
        buffers_bytes=buffers,
        peak_load_bytes=states - moments,
        peak_first_step_bytes=max(peak - moments, steady),
        reserved_bytes=stack.outside_bytes + stack.reserve_frac * fragmenting,
        steady_bytes=steady,
    )


def _step_bytes(*, layout: Layout, optimizer_bytes: float) -> tuple[float, float]:
    """Moments, which exist from the first step on, and the fp32 copy of 16-bit gradients that the step makes."""
    _, gradient, master, moments = widths(layout)
    share = optimizer_bytes / (master + moments)
    return moments * share, 4.0 * share if gradient == 2 and layout.precision == "fp16" else 0.0


def _stage_kept(*, model: ModelSpec, layout: Layout, stage: int, stack: MemoryStack) -> tuple[float, float]:
    """Kept activations of all micro-batches in flight on a stage, and what recomputing a piece brings back."""
    fusions: frozenset[str] = frozenset()
    none = replace(layout, recompute="none")
    one = {
        moe: (
            layer_activation_bytes(model=model, layout=layout, moe=moe, fusions=fusions, stack=stack),
            layer_activation_bytes(model=model, layout=none, moe=moe, fusions=fusions, stack=stack),
        )
        for moe in ({False, True} if model.moe_experts else {False})
    }
    held = chunks_held(layout=layout, stage=stage)
    total = extra = 0.0
    for layers, count in zip(stage_layers(model=model, layout=layout, stage=stage), held, strict=True):
        chunk, working = _chunk_kept(layers=layers, layout=layout, one=one)
        total += chunk * count
        extra = max(extra, working if count else 0.0)
    if stage == layout.pp - 1 and layout.mtp_layers:
        total += layout.mtp_layers * one[bool(model.moe_experts)][1]
    if stage == 0 and stack.dropout:
        outside = layout.tp if layout.sequence_parallel else 1
        total += held[0] * layout.tokens * model.hidden / outside
    transit = offload_in_transit_bytes(model=model, layout=layout, moe=bool(model.moe_experts), stack=stack)
    return total, extra + transit


def _chunk_kept(
    *, layers: tuple[bool, ...], layout: Layout, one: dict[bool, tuple[float, float]]
) -> tuple[float, float]:
    """Kept bytes of one micro-batch in one chunk, and what recomputing adds while it runs."""
    if layout.recompute != "full":
        return sum(one[moe][0] for moe in layers), 0.0
    n = layout.recompute_layers
    if layout.recompute_method == "block" and n:
        done, whole = layers[:n], layers[n:]
        kept = sum(one[moe][0] for moe in done) + sum(one[moe][1] for moe in whole)
        return kept, max((one[moe][1] for moe in done), default=0.0)
    group = max(1, n if layout.recompute_method == "uniform" else 1)
    kept = sum(one[moe][0] for moe in layers[::group])
    return kept, max((sum(one[m][1] for m in layers[i : i + group]) for i in range(0, len(layers), group)), default=0.0)


def _boundary_bytes(*, model: ModelSpec, layout: Layout) -> float:
    """The tensor that passes from one pipeline stage to the next, none without a pipeline."""
    outside = layout.tp if layout.sequence_parallel else 1
    return layout.tokens * model.hidden * layout.compute_bytes / outside if layout.pp > 1 else 0.0


def _lasting_buffers(*, model: ModelSpec, layout: Layout, stage: int, stack: MemoryStack) -> float:
    """What stays allocated between steps beside the states: workspaces, boundary tensors, work buffers."""
    t, w = layout.tokens, float(layout.compute_bytes)
    outside = layout.tp if layout.sequence_parallel else 1
    total = stack.workspace_bytes
    if stack.fp8_copies_bytes:
        total += stack.fp8_copies_bytes * sum(stage_params(model=model, layout=layout, stage=stage))
    if layout.pp > 1:
        # A chunk's last input and the gradient that came back for its output are still referenced.
        total += 2 * layout.vpp * _boundary_bytes(model=model, layout=layout)
        total += layout.micro_batch * layout.sequence**2 / layout.cp if stack.mask else 0.0
    if stage == layout.pp - 1 and outside > 1:
        total += t * model.hidden * w  # gathered input of the head
    if stack.attention == "buffered":
        total += layout.micro_batch * model.heads / layout.tp * layout.sequence**2 / layout.cp * w
    if stack.bucket_elements:
        # One bucket to reduce gradients and, below ZeRO-3, one to gather weights; neither larger than the stage.
        params = sum(stage_params(model=model, layout=layout, stage=stage))
        total += (1 if layout.zero_stage >= 3 else 2) * w * min(stack.bucket_elements, params)
    if stack.cached_wgrad and stage == layout.pp - 1:
        total += w * wgrad_elements(model=model, layout=layout)
    return total


def _loss_bytes(*, model: ModelSpec, layout: Layout, stack: MemoryStack) -> float:
    """Logits of the head and of every multi-token-prediction layer, final norm, head products that wait."""
    t, w = layout.tokens, float(layout.compute_bytes)
    outside = layout.tp if layout.sequence_parallel else 1
    logits = t * model.vocab / layout.tp
    peak, kept = logit_bytes(stack=stack)
    total = logits * (peak + kept * layout.mtp_layers) + 2 * t * model.hidden * w / outside
    if not model.causal:
        total += 4 * t * model.hidden * w / outside  # an encoder's head: product, activation and norm before the logits
    if stack.deferred_wgrad:
        waiting = min(stack.deferred_wgrad, layout.micro_batches - 1)
        total += waiting * (logits + t * model.hidden) * w
    return total


def _held_logits(*, model: ModelSpec, layout: Layout, stack: MemoryStack) -> float:
    return (
        layout.tokens * model.vocab / layout.tp * layout.compute_bytes if stack.logits_held and layout.pp > 1 else 0.0
    )


def _working(*, model: ModelSpec, layout: Layout, stack: MemoryStack) -> float:
    """Gradients alive while the backward pass of one layer runs: residual and both sides of the MLP."""
    t, w = layout.tokens, float(layout.compute_bytes)
    if model.moe_experts:
        rows = routed_rows(model=model, layout=layout, stack=stack)
        inner = rows * (model.hidden + model.moe_ffn / layout.etp * gates(model))
    else:
        inner = t * model.ffn / layout.tp * gates(model)
    return w * (2 * t * model.hidden + inner)


def gathered_bytes(*, model: ModelSpec, layout: Layout, stack: MemoryStack) -> float:
    """Gathered units of ZeRO-3 or FSDP: one in use, one prefetched, and one unreduced gradient of the largest."""
    if layout.zero_stage < 3:
        return 0.0
    p = layer_params(model=model, moe=bool(model.moe_experts))
    layer = (p.attention + p.mlp) / layout.tp + p.experts / (layout.ep * layout.etp)
    head = model.vocab * model.hidden / layout.tp
    unit = max(layer, head)
    if stack.gather_by_parameter:
        # DeepSpeed: stage3_max_live_parameters bounds what is gathered; gradients pass through the reduce bucket.
        return 2 * min(2 * unit, LIVE_PARAMETERS)
    return 2 * unit * 2 + unit * layout.gradient_bytes


def worst_rank(
    *, model: ModelSpec, layout: Layout, fusions: frozenset[str], stack: MemoryStack | None = None
) -> RankMemory:
    """The fullest stage; only a few can be, so first, second and last are looked at along with every uneven one."""
    stages = range(layout.pp) if layout.pp <= 8 else (0, 1, layout.pp - 2, layout.pp - 1)
    ranks = [rank_memory(model=model, layout=layout, stage=s, fusions=fusions, stack=stack) for s in stages]
    return max(ranks, key=lambda r: r.peak_bytes + r.reserved_bytes)


__all__ = [
    "RankMemory",
    "attention_params",
    "layer_activation_bytes",
    "rank_memory",
    "stage_params",
    "state_bytes",
    "worst_rank",
]
