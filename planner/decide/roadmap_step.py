"""A stack on a machine becomes a step: the simulated breakdown, then the factors that no operator list can show."""

from dataclasses import dataclass, replace
from functools import lru_cache

from planner import catalog
from planner.cost.kernels import memory_bound_s
from planner.cost.rates import hot_rate
from planner.cost.types import Network
from planner.scenario import Scenario, Strategy
from planner.simulate.assemble import StepAnswer, forecast_step
from planner.simulate.durations import Machine
from planner.workload.memory import worst_rank
from planner.workload.operators import layer_operators
from planner.workload.resolve import RECOMPUTE_ORDER, Resolved
from planner.workload.transforms import POINTWISE, Stack, effective_model, uncounted_bytes

# Spread of a forecast gain: half of it, at least 3 % of the step; a test counts measured gains inside P10-P90.
SIGMA_FLOOR, SIGMA_OF_GAIN = 0.03, 0.5


def gain_sigma(log_gain: float) -> float:
    """One standard deviation of the logarithm of a speed-up."""
    return max(SIGMA_FLOOR, SIGMA_OF_GAIN * abs(log_gain))


@dataclass(frozen=True, slots=True)
class StackStep:
    """One step of a stack.

    Attributes:
        answer: the simulated step before factors.
        step_s: seconds of a step after them.
        parts_s: breakdown after them, adding up to `step_s`.
        effective_s: seconds for the work of one step before: step times tokens and steps-to-target factors.
    """

    answer: StepAnswer
    step_s: float
    parts_s: tuple[tuple[str, float], ...]
    effective_s: float

    def part(self, *names: str) -> float:
        """Seconds of the named parts together."""
        return sum(value for name, value in self.parts_s if name in names)


@lru_cache(maxsize=8192)
def stack_step(*, stack: Stack, network: Network, engine: str = "fast") -> StackStep:
    """Simulate a stack on a network.

    Raises:
        ValueError: a layout or schedule that cannot be simulated.
    """
    machine = Machine(
        gpu=stack.gpu,
        network=network,
        software=stack.software,
        cuda_graph=stack.cuda_graph,
        ep_overlap=stack.ep_overlap,
        p2p_overlap=stack.p2p_overlap,
    )
    model = effective_model(stack)
    answer = forecast_step(model=model, layout=stack.layout, machine=machine, engine=engine)
    parts = dict(answer.breakdown_s)
    if stack.layout.recompute == "full" and stack.recompute_layers_frac < 1:
        without = forecast_step(
            model=model, layout=replace(stack.layout, recompute="none"), machine=machine, engine=engine
        )
        f = stack.recompute_layers_frac
        parts = {k: f * v + (1 - f) * dict(without.breakdown_s)[k] for k, v in parts.items()}
    nbytes = uncounted_bytes(stack)
    if nbytes:
        parts["compute_memory_bound"] += memory_bound_s(gpu=stack.gpu, nbytes=nbytes).seconds
    for share, factor in stack.scales:
        for name in parts if share == "total" else (share,):
            parts[name] *= factor
    step = sum(parts.values())
    return StackStep(answer, step, tuple(parts.items()), step * stack.tokens_factor * stack.steps_factor)


def base_stack(*, scenario: Scenario, strategy: Strategy, resolved: Resolved) -> Stack:
    """The stack of a resolved strategy."""
    mode = strategy.framework.mode if strategy.framework is not None else "eager"
    node = catalog.node(scenario.cluster.node)
    return Stack(
        model=scenario.model_spec,
        layout=resolved.layout,
        software=resolved.software,
        gpu=node.gpu,
        nodes=scenario.cluster.nodes,
        compiled={"compile": "whole", "regional": "regional"}.get(mode, ""),
        cuda_graph=resolved.cuda_graph,
        applied=tuple(strategy.optimisations),
    )


def memory_bytes(stack: Stack) -> float:
    """Bytes of the fullest rank, what driver and allocator hold included."""
    rank = worst_rank(model=stack.model, layout=stack.layout, fusions=stack.software.fusions)
    return rank.peak_bytes + rank.reserved_bytes


def fits(stack: Stack) -> bool:
    """Whether the fullest rank fits its GPU."""
    return memory_bytes(stack) <= catalog.gpu(stack.gpu).mem_bytes


def least_recompute(stack: Stack) -> Stack:
    """The stack with the least recompute that fits; unchanged where none fits or partial recompute was chosen."""
    if stack.recompute_layers_frac < 1:
        return stack
    for mode in RECOMPUTE_ORDER:
        trial = stack.with_layout(recompute=mode)
        if fits(trial):
            return trial
    return stack


def avoidable_frac(*, stack: Stack, step: StackStep) -> dict[str, float]:
    """Shares of the step between achieved and attainable: `compute` and `memory`.

    Products and attention against the sustained rate of a large product, memory-bound work against the traffic of a
    fused list.
    """
    flops = step.answer.hardware_flops_per_s_per_gpu * step.answer.step_s
    attainable = flops / hot_rate(gpu=stack.gpu, dtype=stack.layout.precision).plateau_flops
    matmul = step.part("compute_matmul", "compute_attention")
    fused = stack.with_software(fusions=stack.software.fusions | POINTWISE | {"cross_entropy"})
    memory = step.part("compute_memory_bound")
    return {
        "compute": max(0.0, matmul - attainable) / step.step_s,
        "memory": max(0.0, memory - _fused_memory_s(stack=fused, like=step)) / step.step_s,
    }


def ceilings(*, stack: Stack, step: StackStep) -> dict[str, float]:
    """Shares of the step that each kind of work could win at most.

    glue: the GPU idles for its host. operator: achieved against attainable rate. parallel: exposed communication and
    bubble. What algorithms could win no trace tells; only a pilot run does.
    """
    exposed = sum(v for k, v in step.parts_s if k.startswith("exposed_"))
    idle = step.part("launch_gap", "straggler") + max(0.0, step.part("other"))
    return {
        "glue": idle / step.step_s,
        "operator": sum(avoidable_frac(stack=stack, step=step).values()),
        "parallel": (exposed + step.part("bubble")) / step.step_s,
    }


def _fused_memory_s(*, stack: Stack, like: StackStep) -> float:
    """Memory-bound seconds of a fused stack, estimated by traffic from those of the unfused one."""
    ops = layer_operators(
        model=stack.model, layout=stack.layout, moe=bool(stack.model.moe_experts), fusions=stack.software.fusions
    )
    nbytes = sum(op.nbytes for op in ops if op.kind == "memory")
    per_step = stack.model.layers * stack.layout.micro_batches / stack.layout.pp
    seconds = memory_bound_s(gpu=stack.gpu, nbytes=nbytes * per_step).seconds
    return min(like.part("compute_memory_bound"), seconds)
