"""Scaling: one strategy over many cluster sizes, weak or strong, with the knee and the cause at each point."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from planner import SCHEMA_VERSION, __version__, catalog
from planner.forecast import ForecastError, step_on
from planner.scenario import Scenario, Strategy
from planner.simulate.assemble import StepAnswer

Kind = Literal["weak", "strong"]
KINDS: tuple[Kind, ...] = ("strong", "weak")
KNEE_EFFICIENCY = 0.8
CAUSES = {
    "bubble": "bubble",
    "exposed_tp": "exposed TP",
    "exposed_pp": "exposed PP",
    "exposed_dp": "exposed DP",
    "exposed_cp": "exposed CP",
    "exposed_ep": "exposed EP",
    "launch_gap": "launch",
    "optimizer": "optimizer",
    "straggler": "stragglers",
    "other": "other",
}


@dataclass(frozen=True, slots=True)
class Point:
    """One cluster size; `efficiency` is tokens/s/GPU over that of the smallest size that works."""

    gpus: int
    step_s: float
    tokens_per_s: float
    efficiency: float
    cause: str
    fits: bool


def sizes(*, first: int, last: int, per_node: int) -> list[int]:
    """Doublings from `first` to `last`, whole nodes above one node."""
    out, size = [], max(1, first)
    while size <= last:
        if size <= per_node or size % per_node == 0:
            out.append(size)
        size *= 2
    return out


def _resized(strategy: Strategy, *, gpus: int) -> Strategy:
    """The strategy with the data-parallel degree left open, so that it takes what is left of another size."""
    update: dict[str, Any] = {"dp": None}
    fixed = (strategy.tp or 1) * (strategy.pp or 1) * (strategy.cp or 1)
    if gpus % fixed:
        raise ForecastError(f"tp x pp x cp = {fixed} does not divide {gpus} GPUs")
    return strategy.model_copy(update=update)


def _shares(answer: StepAnswer) -> dict[str, float]:
    parts = dict(answer.breakdown_s)
    return {k: parts[k] / answer.step_s for k in CAUSES}


def _cause(*, now: StepAnswer, reference: StepAnswer, batch_limited: bool) -> str:
    """The part of the step whose share grew most since the smallest size."""
    if batch_limited:
        return "batch limit"
    before, after = _shares(reference), _shares(now)
    grown = max(CAUSES, key=lambda k: after[k] - before[k])
    if after[grown] - before[grown] < 0.005:
        return "none"
    return CAUSES[grown]


def sweep(*, scenario: Scenario, strategy: Strategy, gpus: Sequence[int], kind: Kind = "strong") -> list[Point]:
    """Every size that the strategy can be placed on, smallest first.

    Weak keeps the sequences a GPU, strong the global batch (sizes that the batch cannot feed are the batch limit).

    Raises:
        ForecastError: no size works.
    """
    training, found = scenario.training, []
    reference: tuple[int, StepAnswer] | None = None
    for size in gpus:
        batch = training.global_batch_sequences
        if kind == "weak":
            batch = max(1, round(batch * size / scenario.gpus))
        try:
            resolved, answer = step_on(
                scenario=scenario, strategy=_resized(strategy, gpus=size), gpus=size, global_batch=batch, engine="fast"
            )
        except (ForecastError, ValueError):  # this size cannot be laid out, or its nodes have no network
            continue
        if reference is None and resolved.fits:
            reference = (size, answer)
        if reference is None:
            found.append(Point(size, answer.step_s, answer.tokens_per_s, 0.0, "memory", fits=False))
            continue
        per_gpu = answer.tokens_per_s / size
        efficiency = per_gpu / (reference[1].tokens_per_s / reference[0])
        fed = resolved.layout.dp * resolved.layout.micro_batch
        limited = kind == "strong" and batch < 2 * fed and resolved.layout.micro_batches == 1
        cause = _cause(now=answer, reference=reference[1], batch_limited=limited and efficiency < KNEE_EFFICIENCY)
        found.append(Point(size, answer.step_s, answer.tokens_per_s, efficiency, cause, fits=resolved.fits))
    if not found:
        raise ForecastError(f"the strategy can be placed on none of {', '.join(map(str, gpus))} GPUs")
    return found


def knee_of(points: Sequence[Point]) -> dict[str, Any] | None:
    """The last size at KNEE_EFFICIENCY or better, and what pulls the next one below it; None where none is below."""
    working = [p for p in points if p.fits]
    below = next((p for p in working if p.efficiency < KNEE_EFFICIENCY), None)
    if below is None:
        return None
    above = [p for p in working if p.gpus < below.gpus]
    return {"gpus": above[-1].gpus if above else below.gpus, "efficiency": KNEE_EFFICIENCY, "cause": below.cause}


def sweep_document(*, scenario: Scenario, name: str, gpus: Sequence[int]) -> dict[str, Any]:
    """The answer of contract 4, strong in `points`, weak in `weak`.

    Raises:
        ForecastError: an unknown or `auto` strategy, or no size works.
    """
    strategy = scenario.strategies.get(name)
    if strategy is None or isinstance(strategy, str):
        raise ForecastError(f"strategy {name!r} is not written out; known: {', '.join(scenario.strategies)}")
    curves = {k: sweep(scenario=scenario, strategy=strategy, gpus=gpus, kind=k) for k in KINDS}
    rows = {
        kind: [
            {
                "gpus": p.gpus,
                "step_s": p.step_s,
                "scaling_efficiency": p.efficiency,
                "cause": p.cause,
                "tokens_per_s": p.tokens_per_s,
                "fits": p.fits,
            }
            for p in points
        ]
        for kind, points in curves.items()
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": {"planner": __version__, "profile": scenario.cluster.profile, "catalog": "2026-12-01"},
        "seed": 0,
        "strategy": name,
        "points": rows["strong"],
        "knee": knee_of(curves["strong"]),
        "weak": rows["weak"],
        "weak_knee": knee_of(curves["weak"]),
    }


def default_sizes(scenario: Scenario) -> list[int]:
    """From one GPU to 16,384, in doublings."""
    per_node = catalog.node(scenario.cluster.node).gpus_per_node
    return sizes(first=1, last=16_384, per_node=per_node)
