"""Search over every plan of a scenario: closed form for millions, events and the bill for the best few."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from planner import catalog
from planner.cost.rates import base_dtype
from planner.decide.score import Scored, Scorer, best_of
from planner.decide.search_front import Front
from planner.decide.space import Axes, Place, axes_of, places, schedules_of
from planner.forecast import Forecast, ForecastError, forecast_strategy, machine_for, resolve
from planner.scenario import Scenario, Strategy
from planner.simulate.durations import Machine
from planner.workload.layout import Layout

KEEP_PER_PLACEMENT = 4
REFINED = 20
INNER = (
    "zero_stage", "dp_overlap", "pp_overlap", "micro_batch", "recompute", "sequence_parallel", "precision",
    "tp_overlap", "mode",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan with its closed-form seconds and bytes."""

    layout: Layout
    dp_overlap: bool
    pp_overlap: bool
    tp_overlap: bool
    mode: str
    step_s: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a pass over the space found."""

    axes: Axes
    plans_invalid: int
    plans_out_of_memory: int
    plans_scored: int
    seconds: float
    interrupted: bool
    best: tuple[Candidate, ...]
    front: tuple[Candidate, ...] = ()
    capacity_bytes: float = math.inf


def _strategy_for_machine(scenario: Scenario) -> Strategy:
    """The software that plans run on: that of the first written hybrid strategy, of any strategy, or Megatron of 2024.

    Sharding-only software of a plain strategy would not run most plans.
    """
    written = [s for s in scenario.strategies.values() if not isinstance(s, str) and s.framework is not None]
    for strategy in sorted(written, key=lambda s: (s.pp or 1) == 1 and (s.tp or 1) == 1):
        return Strategy(framework=strategy.framework, tp=1)
    return Strategy.model_validate({"framework": {"name": "megatron", "release": 2024}})


def search_machine(scenario: Scenario) -> Machine:
    """The machine of a searched plan."""
    resolved = resolve(scenario=scenario, strategy=_strategy_for_machine(scenario), global_batch=scenario.gpus)
    return machine_for(scenario=scenario, resolved=resolved, gpus=scenario.gpus)


def sweep_plans(
    *,
    scenario: Scenario,
    precision: str | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    limit: int | None = None,
    narrow: Callable[[Axes], Axes] | None = None,
) -> Sweep:
    """Score every plan; an interruption keeps what is done.

    Args:
        scenario: model, cluster and batch.
        precision: dtype of the products, None tries what the part has.
        progress: called with (placements done, plans seen, seconds).
        limit: stop after this many placements.
        narrow: leaves values of the axes out.
    """
    machine, training = search_machine(scenario), scenario.training
    gpu = catalog.gpu(machine.gpu)
    axes = axes_of(
        model=scenario.model_spec,
        gpu=gpu,
        gpus=scenario.gpus,
        domain_gpus=machine.network.scaleup_domain_gpus,
        global_batch=training.global_batch_sequences,
        sequence=training.sequence_length,
        precision=precision,
    )
    if "flash" in machine.software.fusions and "op_selective" not in machine.software.fusions:
        # A fused attention kernel recomputes its scores anyway: selective is no plan of its own.
        axes = replace(axes, recompute=tuple(r for r in axes.recompute if r != "selective"))
    if narrow is not None:
        axes = narrow(axes)
    began = time.perf_counter()
    scorer = Scorer(model=scenario.model_spec, machine=machine, axes=axes)
    front: Front[Candidate] = Front(capacity_bytes=gpu.mem_bytes)
    found: list[Candidate] = []
    seen = out_of_memory = 0
    interrupted = False
    try:
        for index, place in enumerate(
            places(
                axes=axes,
                model=scenario.model_spec,
                gpus=scenario.gpus,
                global_batch=training.global_batch_sequences,
                sequence=training.sequence_length,
            )
        ):
            if limit is not None and index >= limit:
                break
            if not any(
                schedules_of(axes=axes, layout=replace(place.layout, micro_batch=n)) for n in place.micro_batches
            ):
                continue
            scored = scorer.score(place.layout, place.micro_batches, capacity_bytes=gpu.mem_bytes)
            lost, best = best_of(scored, capacity_bytes=gpu.mem_bytes, keep=KEEP_PER_PLACEMENT)
            make = partial(candidate_at, axes=axes, place=place, scored=scored)
            if best:
                front.add(scored, make)
            found += [make(at) for _, _, at in best]
            seen += scored.plans
            out_of_memory += lost
            if progress is not None and index % 50 == 0:
                progress(index, seen, time.perf_counter() - began)
    except KeyboardInterrupt:
        interrupted = True
    found.sort(key=lambda c: (c.step_s, c.memory_bytes, _sort_key(c)))
    return Sweep(
        axes=axes,
        plans_invalid=axes.plans - seen,
        plans_out_of_memory=out_of_memory,
        plans_scored=seen - out_of_memory,
        seconds=time.perf_counter() - began,
        interrupted=interrupted,
        best=tuple(found),
        front=tuple(x.plan for x in front.plans()),
        capacity_bytes=gpu.mem_bytes,
    )


def _sort_key(c: Candidate) -> tuple[Any, ...]:
    lay = c.layout
    return (lay.tp, lay.pp, lay.vpp, lay.cp, lay.ep, lay.micro_batch, lay.zero_stage, lay.recompute, lay.precision)


def candidate_at(index: Any, *, axes: Axes, place: Place, scored: Scored) -> Candidate:
    """The plan at an index of a scored placement."""
    schedule, *rest = index
    chosen = {name: getattr(axes, name)[int(i)] for name, i in zip(INNER, rest, strict=True) if name != "micro_batch"}
    placed = replace(
        place.layout,
        schedule=scored.schedules[int(schedule)],
        micro_batch=place.micro_batches[int(rest[INNER.index("micro_batch")])],
        zero_stage=chosen["zero_stage"],
        recompute=chosen["recompute"],
        sequence_parallel=chosen["sequence_parallel"],
        precision=chosen["precision"],
    )
    switches = {k: chosen[k] for k in ("dp_overlap", "pp_overlap", "tp_overlap", "mode")}
    step_s, memory = float(scored.step_s[index]), float(scored.memory_bytes[index])
    return Candidate(layout=placed, **switches, step_s=step_s, memory_bytes=memory)


def strategy_of(candidate: Candidate, *, scenario: Scenario) -> Strategy:
    """A candidate in the scenario's own keys."""
    lay = candidate.layout
    keys: dict[str, Any] = {
        "tp": lay.tp,
        "pp": lay.pp,
        "vpp": lay.vpp,
        "dp": lay.dp,
        "cp": lay.cp,
        "ep": lay.ep,
        "etp": lay.etp,
        "sequence_parallel": lay.sequence_parallel,
        "zero_stage": lay.zero_stage,
        "micro_batch_sequences": lay.micro_batch,
        "schedule": lay.schedule,
        "recompute": lay.recompute,
        "precision": lay.precision,
        "overlap": {"dp": candidate.dp_overlap, "pp": candidate.pp_overlap, "tp": candidate.tp_overlap},
    }
    framework = _strategy_for_machine(scenario).framework
    if framework is not None:
        keys["framework"] = framework.model_dump() | {"mode": candidate.mode}
    return Strategy.model_validate(keys)


def distinct(sweep: Sweep, count: int) -> list[Candidate]:
    """The fastest candidate of each placement, so that the few that are refined differ."""
    out: list[Candidate] = []
    seen: set[Any] = set()
    for c in sweep.best:
        key = (
            c.layout.tp,
            c.layout.pp,
            c.layout.vpp,
            c.layout.cp,
            c.layout.ep,
            c.layout.etp,
            base_dtype(c.layout.precision),
        )
        if key not in seen:
            seen.add(key)
            out.append(c)
        if len(out) >= count:
            break
    return out


def refine(
    *, scenario: Scenario, sweep: Sweep, count: int = REFINED, engine: str = "events"
) -> list[tuple[Candidate, Forecast]]:
    """The best few forecast by events, run clock and bill, ordered by their event time; those that fit."""
    out = []
    for candidate in distinct(sweep, count):
        one = scenario.model_copy(update={"strategies": {"plan": strategy_of(candidate, scenario=scenario)}})
        try:
            forecast = forecast_strategy(scenario=one, name="plan", engine=engine)
        except ForecastError:
            continue
        if forecast.resolved.fits:
            out.append((candidate, forecast))
    return sorted(out, key=lambda pair: pair[1].answer.step_s)


def resolve_auto(scenario: Scenario) -> Scenario:
    """The scenario with every `auto` replaced by its best plan.

    Raises:
        ForecastError: no plan fits.
    """
    names = [n for n, s in scenario.strategies.items() if isinstance(s, str)]
    if not names:
        return scenario
    sweep = sweep_plans(scenario=scenario, precision="bf16")
    refined = refine(scenario=scenario, sweep=sweep, count=6)
    if not refined:
        raise ForecastError(f"`auto`: none of {sweep.axes.plans} plans fits memory on {scenario.gpus} GPUs")
    best = strategy_of(refined[0][0], scenario=scenario)
    return scenario.model_copy(update={"strategies": {**scenario.strategies, **dict.fromkeys(names, best)}})
