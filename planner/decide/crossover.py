"""From launch-bound to kernel-bound: one strategy over micro-batch sizes, and what each kind of work is worth at each.

A step holds one micro-batch a rank (4 a stage under a pipeline). Every gain is the difference of two simulated steps:
with a profile both are made of its measured kernels and host times. What a strategy already has is taken away instead
of added.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from planner import SCHEMA_VERSION, __version__
from planner.cost.types import Network
from planner.forecast import ForecastError, machine_for, step_on
from planner.scenario import Scenario, Strategy
from planner.simulate.assemble import StepAnswer
from planner.simulate.stack_step import base_stack, fits, stack_step
from planner.workload.effects import words_of
from planner.workload.transforms import Stack, apply, unmet, without

MICRO_BATCHES_A_STAGE = 4
LAUNCH_BOUND_FRAC = 0.15  # of the step, kernels idle for their host: the same limit as `planner validate --steps`
# What is in the stack already when this condition does not hold.
HELD = {
    "torch_compile": "pointwise:eager",
    "fused_pointwise": "pointwise:eager",
    "flash_attn": "attention:unfused",
    "fused_ce": "loss:eager",
    "fused_optimizer": "optimizer:unfused",
}
Bound = Literal["launch", "kernel"]


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of work: its name, its optimisation, and what has to be there before it."""

    name: str
    key: str
    behind: tuple[str, ...] = ()


WORKS = (
    Work("compile", "torch_compile"),
    Work("CUDA graph", "cuda_graphs"),
    Work("fused kernels", "fused_pointwise"),
    Work("fused loss", "fused_ce"),
    Work("fused optimizer", "fused_optimizer"),
    Work("flash attention", "flash_attn"),
    Work("padding", "shape_padding"),
    Work("cast removal", "cast_removal"),
    Work("fp8", "fp8_tensorwise", ("cast_removal", "torch_compile")),
)


@dataclass(frozen=True, slots=True)
class Worth:
    """What one kind of work is worth: share of the step that it saves.

    Attributes:
        held: the strategy has it; the gain is what losing it would cost, over the step without it.
        note: why there is no gain to tell.
    """

    work: Work
    gain_frac: float | None
    held: bool
    note: str


@dataclass(frozen=True, slots=True)
class Point:
    """One micro-batch size."""

    micro_batch: int
    answer: StepAnswer
    worth: tuple[Worth, ...]
    fits: bool
    recompute: str

    @property
    def bound(self) -> Bound:
        """Who holds the step: the host that launches, or the kernels."""
        return "launch" if self.answer.launch_frac >= LAUNCH_BOUND_FRAC else "kernel"


def doublings(*, first: int, last: int) -> list[int]:
    """Sizes from `first` on, doubling, up to `last`."""
    out, size = [], first
    while size <= last:
        out.append(size)
        size *= 2
    return out


def worth_of(*, work: Work, stack: Stack, network: Network) -> Worth:
    """Simulate one kind of work on a stack, or take it away where the stack has it."""
    for key in work.behind:
        if not unmet(key=key, stack=stack):
            stack = apply(key=key, stack=stack)
    missing = unmet(key=work.key, stack=stack)
    held = bool(missing) and set(missing) <= {HELD.get(work.key, "")}
    held = held or (work.key == "cuda_graphs" and stack.cuda_graph)
    if held:
        before, after = without(key=work.key, stack=stack), stack
        if before == after:
            return Worth(work, None, True, "held, and the stack cannot be run without it")
    elif missing:
        return Worth(work, None, False, "; ".join(words_of(m) for m in missing))
    else:
        before, after = stack, apply(key=work.key, stack=stack)
    if not fits(after):
        return Worth(work, None, held, "does not fit with it")
    old, new = (stack_step(stack=s, network=network).effective_s for s in (before, after))
    return Worth(work, 1 - new / old, held, "" if fits(before) else "without it the step does not fit")


def crossover(*, scenario: Scenario, strategy: Strategy, micro_batches: Sequence[int]) -> list[Point]:
    """Every micro-batch size, smallest first.

    Raises:
        ForecastError: the strategy cannot be placed.
    """
    stages = strategy.pp or 1
    ranks = (strategy.tp or 1) * stages * (strategy.cp or 1)
    if scenario.gpus % ranks:
        raise ForecastError(f"tp x pp x cp = {ranks} does not divide {scenario.gpus} GPUs")
    copies = scenario.gpus // ranks * (MICRO_BATCHES_A_STAGE * stages if stages > 1 else 1)
    out = []
    for size in micro_batches:
        one = strategy.model_copy(update={"micro_batch_sequences": size, "dp": None})
        resolved, answer = step_on(
            scenario=scenario, strategy=one, gpus=scenario.gpus, global_batch=size * copies, engine="fast"
        )
        stack = answer.optimised.stack if answer.optimised else base_stack(scenario=scenario, resolved=resolved)
        network = machine_for(scenario=scenario, resolved=resolved, gpus=scenario.gpus).network
        stack = replace(stack, applied=())
        worth = tuple(worth_of(work=work, stack=stack, network=network) for work in WORKS) if resolved.fits else ()
        out.append(Point(size, answer, worth, resolved.fits, resolved.layout.recompute))
    return out


def turn_of(points: Sequence[Point]) -> dict[str, Any] | None:
    """The first micro-batch from which on the kernels hold the step; None where the host or nothing else ever does."""
    working = [p for p in points if p.fits]
    last = next((i for i in reversed(range(len(working))) if working[i].bound == "launch"), None)
    if last is None or last + 1 == len(working):
        return None
    after = working[last + 1]
    return {
        "micro_batch_sequences": after.micro_batch,
        "launch_bound_until": working[last].micro_batch,
        "launch_frac": after.answer.launch_frac,
        "cause": "kernel",
    }


def crossover_document(*, scenario: Scenario, name: str, micro_batches: Sequence[int]) -> dict[str, Any]:
    """The sweep of contract 4 over micro-batches: `points` and `knee`, where the step turns kernel-bound.

    `scaling_efficiency` of a point is its tokens per second over those of the best size.

    Raises:
        ForecastError: an unknown or `auto` strategy, or one that cannot be placed.
    """
    strategy = scenario.strategies.get(name)
    if strategy is None or isinstance(strategy, str):
        raise ForecastError(f"strategy {name!r} is not written out; known: {', '.join(scenario.strategies)}")
    points = crossover(scenario=scenario, strategy=strategy, micro_batches=micro_batches)
    best = max((p.answer.tokens_per_s for p in points if p.fits), default=0.0)
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": {"planner": __version__, "profile": scenario.cluster.profile, "catalog": "2026-12-01"},
        "seed": 0,
        "strategy": name,
        "axis": "micro_batch_sequences",
        "works": [{"name": w.name, "key": w.key, "behind": list(w.behind)} for w in WORKS],
        "points": [_point_document(point=p, gpus=scenario.gpus, best=best) for p in points],
        "knee": turn_of(points),
    }


def _point_document(*, point: Point, gpus: int, best: float) -> dict[str, Any]:
    answer = point.answer
    return {
        "gpus": gpus,
        "micro_batch_sequences": point.micro_batch,
        "step_s": answer.step_s,
        "tokens_per_s": answer.tokens_per_s,
        "scaling_efficiency": answer.tokens_per_s / best if best else 0.0,
        "mfu": answer.model_flops_per_s_per_gpu / answer.peak_flops,
        "launch_frac": answer.launch_frac,
        "cause": point.bound,
        "fits": point.fits,
        "recompute": point.recompute,
        "label_share": dict(answer.label_share),
        "worth": {w.work.name: {"gain_frac": w.gain_frac, "held": w.held, "note": w.note} for w in point.worth},
    }
