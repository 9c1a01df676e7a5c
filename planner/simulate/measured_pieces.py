"""A rank's layer, head, embedding and update from measured kernels, where the stack is PyTorch's own step.

The kernels are those of `workload.torch_step` at the shapes after tensor sharding, their times and the host's come from
the profile, the clock and the launch gaps from the kernel clock over the whole step of the rank. Exchanges are those of
the operator list, over the modelled network.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from planner.catalog.software import Software
from planner.catalog.types import ModelSpec
from planner.cost.operator import CAUSES, PhaseCost, Setting, joined, phase_cost
from planner.cost.profiled import ProfiledCosts, profiled_costs, scaled_s
from planner.profile.surfaces import SurfaceError
from planner.simulate.profiled_step import Part, profiled_step, step_parts
from planner.workload.layout import Layout
from planner.workload.operators import Operator
from planner.workload.torch_rank import shape_of
from planner.workload.torch_step import Kernel, StepShape, update_kernels

GROUPS = {"matmul": "compute_matmul", "attention": "compute_attention", "memory": "compute_memory_bound"}
LEAST_GAP_FRAC = 1e-3
MASTER_COPY_BYTES = 6.0  # fp32 weights read, 16-bit weights written


@dataclass(frozen=True, slots=True)
class RankShape:
    """What of a machine decides the kernels of a rank."""

    software: Software
    compiled: str
    cuda_graph: bool
    profile: str


@dataclass(frozen=True, slots=True)
class MeasuredRank:
    """A rank's step by the kernel clock, with its parts.

    Attributes:
        gap_factor: launch gaps of the whole step over those of its parts one by one.
        gap_rest_s: launch gaps where no part alone has any.
        sigma: one standard deviation of the logarithm of the step's time.
    """

    costs: ProfiledCosts
    shape: StepShape
    clock_mhz: float
    parts: tuple[Part, ...]
    gap_factor: float
    gap_rest_s: float
    sigma: float

    def device_s(self, kernels: Sequence[Kernel]) -> float:
        """Device seconds of kernels at the step's clock."""
        return sum(self._scaled_s(k) for k in kernels)

    def _scaled_s(self, kernel: Kernel) -> float:
        return scaled_s(time=self.costs.time(kernel=kernel, shape=self.shape), clock_mhz=self.clock_mhz)

    def sums_s(self, kernels: Sequence[Kernel]) -> tuple[dict[str, float], dict[str, float]]:
        """Device seconds of kernels by cause and by label."""
        causes = dict.fromkeys(CAUSES, 0.0)
        labels: dict[str, float] = {}
        for kernel in kernels:
            time, seconds = self.costs.time(kernel=kernel, shape=self.shape), self._scaled_s(kernel)
            causes[GROUPS[time.group]] += seconds
            labels[time.label] = labels.get(time.label, 0.0) + seconds
        return causes, labels

    def named(self, name: str) -> tuple[Part, ...]:
        """Parts of a name."""
        return tuple(part for part in self.parts if part.name == name)


@lru_cache(maxsize=2048)
def _measured(shape: StepShape, profile: str) -> MeasuredRank | None:
    costs = profiled_costs(profile)
    try:
        step = profiled_step(costs=costs, shape=shape)
    except SurfaceError:
        return None
    parts = step_parts(costs=costs, shape=shape)
    bare = MeasuredRank(costs, shape, step.clock_mhz, parts, 0.0, 0.0, step.sigma)
    gaps = sum(part.repeat * _gap_s(found=bare, part=part) for part in parts)
    gap_s = step.step_s - step.device_s
    factor = gap_s / gaps if gaps > LEAST_GAP_FRAC * step.step_s else 0.0
    return replace(bare, gap_factor=factor, gap_rest_s=0.0 if factor else gap_s)


def _gap_s(*, found: MeasuredRank, part: Part) -> float:
    return max(0.0, part.host_s - found.device_s(part.kernels))


def measured_rank(*, model: ModelSpec, layout: Layout, rank: RankShape) -> MeasuredRank | None:
    """The step of one rank; None where the stack is not PyTorch's own or the profile lacks what it needs."""
    shape = shape_of(
        model=model, layout=layout, software=rank.software, compiled=rank.compiled, cuda_graph=rank.cuda_graph
    )
    return None if shape is None else _measured(shape, rank.profile)


def _phase(
    *,
    found: MeasuredRank,
    kernels: Sequence[Kernel],
    host_s: float,
    operators: Sequence[Operator],
    phase: str,
    layout: Layout,
    setting: Setting,
) -> PhaseCost:
    """One phase: kernels as measured, exchanges and useful FLOPs off the operator list."""
    exchanges = tuple(op for op in operators if op.kind == "collective")
    wire = phase_cost(operators=exchanges, phase=phase, layout=layout, setting=setting)
    causes, labels = found.sums_s(kernels)
    causes |= {"tp": wire.tp_link_s, "cp": wire.cp_link_s, "ep": wire.ep_link_s}
    for label, seconds in wire.labels:
        labels[label] = labels.get(label, 0.0) + seconds
    host_s += wire.host_s if not found.shape.graph else 0.0
    flops = sum(op.flops for op in operators if op.phase == phase)
    return joined(sums=causes, setting=setting, host_s=host_s, flops=flops, labels=labels, gap_factor=found.gap_factor)


def _phases(
    *,
    found: MeasuredRank,
    forward: tuple[Sequence[Kernel], float],
    backward: tuple[Sequence[Kernel], float],
    operators: Sequence[Operator],
    layout: Layout,
    setting: Setting,
) -> tuple[PhaseCost, PhaseCost, PhaseCost]:
    """Forward, recompute and backward of a piece; what is computed again runs inside the backward kernels."""
    none: tuple[Sequence[Kernel], float] = ((), 0.0)
    phases = zip(("forward", "recompute", "backward"), (forward, none, backward), strict=True)
    first, again, back = (
        _phase(
            found=found,
            kernels=kernels,
            host_s=host_s,
            operators=operators,
            phase=phase,
            layout=layout,
            setting=setting,
        )
        for phase, (kernels, host_s) in phases
    )
    return first, again, back


def measured_layer(
    *, found: MeasuredRank, operators: Sequence[Operator], layout: Layout, setting: Setting
) -> tuple[PhaseCost, PhaseCost, PhaseCost]:
    """One decoder layer."""
    forward, backward = found.named("forward")[0], found.named("backward")[0]
    return _phases(
        found=found,
        forward=(forward.kernels, forward.host_s),
        backward=(backward.kernels, backward.host_s),
        operators=operators,
        layout=layout,
        setting=setting,
    )


def measured_head(
    *, found: MeasuredRank, operators: Sequence[Operator], layout: Layout, setting: Setting
) -> tuple[PhaseCost, PhaseCost, PhaseCost]:
    """Final norm, output projection and loss; the loss stands with its gradient in the forward pass."""
    head = found.named("head")[0]
    cut = next(i for i, k in enumerate(head.kernels) if k.kind == "loss") + 1
    share = cut / len(head.kernels)
    return _phases(
        found=found,
        forward=(head.kernels[:cut], share * head.host_s),
        backward=(head.kernels[cut:], (1 - share) * head.host_s),
        operators=operators,
        layout=layout,
        setting=setting,
    )


def measured_embedding(
    *, found: MeasuredRank, operators: Sequence[Operator], layout: Layout, setting: Setting
) -> tuple[PhaseCost, PhaseCost, PhaseCost]:
    """Look-up and its gradient, with the addition of each further micro-batch's gradients to those kept."""
    first, last = found.named("embedding")[:2]
    forward, _, backward = _phases(
        found=found,
        forward=(first.kernels, first.host_s),
        backward=(last.kernels, last.host_s),
        operators=operators,
        layout=layout,
        setting=setting,
    )
    kept = found.named("accumulate")
    if not kept:
        return forward, PhaseCost(), backward
    # Of m micro-batches all but the first add; a mean over them keeps pieces equal.
    share = 1 - 1 / layout.micro_batches
    added = share * found.device_s(kept[0].kernels)
    backward = replace(
        backward,
        compute_memory_bound_s=backward.compute_memory_bound_s + added,
        host_s=backward.host_s + share * kept[0].host_s,
    )
    return forward, PhaseCost(), backward


def measured_update_s(*, found: MeasuredRank, owned: float, optimizer: str) -> float:
    """Update of `owned` parameters, with the launch gaps that belong to no micro-batch."""
    plain = update_kernels(found.shape)[0]
    kernels = [replace(plain, elements=owned)]
    if optimizer == "adamw" and found.shape.precision == "bf16":
        # 16-bit weights with fp32 masters: the update of the fp32 copy, and its cast.
        kernels = [replace(kernels[0], dtype="amp"), Kernel("pointwise", nbytes=MASTER_COPY_BYTES * owned)]
    gap_s = found.gap_factor * _gap_s(found=found, part=found.named("update")[0])
    return found.device_s(kernels) + gap_s + found.gap_rest_s
