"""A stack on a machine becomes a step: the simulated breakdown, then the factors that no operator list can show."""

from dataclasses import dataclass, replace
from functools import lru_cache

from planner import catalog
from planner.cost.kernels import memory_bound_s
from planner.cost.types import Network
from planner.scenario import Scenario
from planner.simulate.assemble import StepAnswer, forecast_step
from planner.simulate.durations import Machine
from planner.workload.resolve import RECOMPUTE_ORDER, Resolved
from planner.workload.torch_rank import fullest_rank
from planner.workload.transforms import Stack, effective_model, uncounted_bytes


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


def machine_of_stack(*, stack: Stack, network: Network) -> Machine:
    """The machine that runs a stack."""
    return Machine(
        gpu=stack.gpu,
        network=network,
        software=stack.software,
        cuda_graph=stack.cuda_graph,
        ep_overlap=stack.ep_overlap,
        p2p_overlap=stack.p2p_overlap,
        compiled=stack.compiled,
        profile=stack.profile,
    )


@lru_cache(maxsize=8192)
def stack_step(*, stack: Stack, network: Network, engine: str = "fast") -> StackStep:
    """Simulate a stack on a network.

    Raises:
        ValueError: a layout or schedule that cannot be simulated.
    """
    machine = machine_of_stack(stack=stack, network=network)
    model = effective_model(stack)
    answer = forecast_step(model=model, layout=stack.layout, machine=machine, engine=engine, memory_model=stack.model)
    parts = dict(answer.breakdown_s)
    if stack.layout.recompute == "full" and stack.recompute_layers_frac < 1:
        without = forecast_step(
            model=model, layout=replace(stack.layout, recompute="none"), machine=machine, engine=engine
        )
        f = stack.recompute_layers_frac
        parts = {k: f * v + (1 - f) * dict(without.breakdown_s)[k] for k, v in parts.items()}
    # A profile's list of kernels leaves nothing out.
    nbytes = uncounted_bytes(stack) if not stack.profile else 0.0
    if nbytes:
        parts["compute_memory_bound"] += memory_bound_s(gpu=stack.gpu, nbytes=nbytes).seconds
    for share, factor in stack.scales:
        for name in parts if share == "total" else (share,):
            parts[name] *= factor
    step = sum(parts.values())
    return StackStep(answer, step, tuple(parts.items()), step * stack.tokens_factor * stack.steps_factor)


def base_stack(*, scenario: Scenario, resolved: Resolved) -> Stack:
    """The stack of a resolved strategy, before its optimisations."""
    node = catalog.node(scenario.cluster.node)
    return Stack(
        model=scenario.model_spec,
        layout=resolved.layout,
        software=resolved.software,
        gpu=node.gpu,
        nodes=scenario.cluster.nodes,
        compiled=resolved.compiled,
        cuda_graph=resolved.cuda_graph,
        p2p_overlap=resolved.p2p_overlap,
        ep_overlap=resolved.ep_overlap,
        profile=scenario.cluster.profile or "",
    )


def memory_bytes(stack: Stack) -> float:
    """Bytes of the fullest rank, what driver and allocator hold included."""
    rank = fullest_rank(
        model=stack.model,
        layout=stack.layout,
        software=stack.software,
        compiled=stack.compiled,
        cuda_graph=stack.cuda_graph,
    )
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
