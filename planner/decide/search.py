"""Search over every plan of a scenario: closed form for millions, events and the bill for the best few."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner import SCHEMA_VERSION, __version__, catalog
from planner.decide.score import Scorer, best_of
from planner.decide.space import Axes, axes_of, placements, schedules_of
from planner.forecast import Forecast, ForecastError, forecast_strategy, machine_for, resolve
from planner.scenario import Scenario, Strategy
from planner.simulate.durations import Machine
from planner.workload.layout import Layout

KEEP_PER_PLACEMENT = 4
REFINED = 20
REPORTED = 10
LONGEST = 16_777_216  # tokens of a sequence
INNER = (
    "zero_stage", "dp_overlap", "pp_overlap", "recompute", "sequence_parallel", "precision", "tp_overlap", "mode",
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


def _strategy_for_machine(scenario: Scenario) -> Strategy:
    """The software that plans run on: that of the first written strategy with a framework, else Megatron of today."""
    for strategy in scenario.strategies.values():
        if not isinstance(strategy, str) and strategy.framework is not None:
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
    found: list[Candidate] = []
    seen = out_of_memory = 0
    interrupted = False
    try:
        for index, layout in enumerate(
            placements(
                axes=axes,
                model=scenario.model_spec,
                gpus=scenario.gpus,
                global_batch=training.global_batch_sequences,
                sequence=training.sequence_length,
            )
        ):
            if limit is not None and index >= limit:
                break
            if not schedules_of(axes=axes, layout=layout):
                continue
            scored = scorer.score(layout)
            lost, best = best_of(scored, capacity_bytes=gpu.mem_bytes, keep=KEEP_PER_PLACEMENT)
            seen += int(np.count_nonzero(np.isfinite(scored.step_s)))
            out_of_memory += lost
            found += [
                _candidate(axes=axes, layout=layout, schedules=scored.schedules, scored=(step, size), index=at)
                for step, size, at in best
            ]
            if progress is not None and index % 200 == 0:
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
    )


def _sort_key(c: Candidate) -> tuple[Any, ...]:
    lay = c.layout
    return (lay.tp, lay.pp, lay.vpp, lay.cp, lay.ep, lay.micro_batch, lay.zero_stage, lay.recompute, lay.precision)


def _candidate(
    *, axes: Axes, layout: Layout, schedules: tuple[str, ...], scored: tuple[float, float], index: Any
) -> Candidate:
    schedule, *rest = index
    chosen = {name: getattr(axes, name)[int(i)] for name, i in zip(INNER, rest, strict=True)}
    placed = replace(
        layout,
        schedule=schedules[int(schedule)],
        zero_stage=chosen["zero_stage"],
        recompute=chosen["recompute"],
        sequence_parallel=chosen["sequence_parallel"],
        precision=chosen["precision"],
    )
    switches = {k: chosen[k] for k in ("dp_overlap", "pp_overlap", "tp_overlap", "mode")}
    return Candidate(layout=placed, **switches, step_s=scored[0], memory_bytes=scored[1])


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
        key = (c.layout.tp, c.layout.pp, c.layout.vpp, c.layout.cp, c.layout.ep, c.layout.precision)
        if key not in seen:
            seen.add(key)
            out.append(c)
        if len(out) >= count:
            break
    return out


def refine(*, scenario: Scenario, sweep: Sweep, count: int = REFINED) -> list[tuple[Candidate, Forecast]]:
    """The best few forecast by events, run clock and bill, ordered by their event time; those that fit."""
    out = []
    for candidate in distinct(sweep, count):
        one = scenario.model_copy(update={"strategies": {"plan": strategy_of(candidate, scenario=scenario)}})
        try:
            forecast = forecast_strategy(scenario=one, name="plan", engine="events")
        except ForecastError:
            continue
        if forecast.resolved.fits:
            out.append((candidate, forecast))
    return sorted(out, key=lambda pair: pair[1].answer.step_s)


def _limited_by(document: Mapping[str, Any]) -> str:
    parts = {k: v for k, v in document["breakdown_s"].items() if k not in {"compute_matmul", "compute_attention"}}
    return str(max(parts, key=lambda k: float(parts[k])))


def _why(document: Mapping[str, Any], other: Mapping[str, Any] | None) -> str:
    """The parts of the step that are smaller than in the next plan of the list."""
    if other is None:
        return "the last one listed"
    moves = sorted((document["breakdown_s"][k] - other["breakdown_s"][k], k) for k in document["breakdown_s"])
    saved = [f"{k} {1e3 * d:.0f} ms" for d, k in moves[:2] if d < -1e-6]
    return "less " + " and ".join(saved) + " than the next" if saved else "as fast as the next"


def pareto(points: list[tuple[float, float, int]]) -> list[int]:
    """Indices that nobody beats in both: smaller step, more memory left."""
    best, out = float("inf"), []
    for _, memory, index in sorted(points):
        if memory < best - 1e-9:
            best = memory
            out.append(index)
    return out


def search(
    *, scenario: Scenario, precision: str | None = None, progress: Callable[[int, int, float], None] | None = None
) -> dict[str, Any]:
    """The answer of contract 4."""
    sweep = sweep_plans(scenario=scenario, precision=precision, progress=progress)
    refined = refine(scenario=scenario, sweep=sweep)
    docs = [f.document for _, f in refined]
    rows = []
    for i, (candidate, forecast) in enumerate(refined[:REPORTED]):
        doc = forecast.document
        rows.append(
            {
                "plan": doc["strategy"],
                "step_s": doc["step_s"]["p50"],
                "closed_form_step_s": candidate.step_s,
                "days": doc["days"]["p50"],
                "cost_usd": doc["cost_usd_total"]["p50"],
                "memory_peak_gb": doc["memory_gb"]["peak"],
                "why": _why(doc, docs[i + 1] if i + 1 < len(docs) else None),
                "limited_by": _limited_by(doc),
            }
        )
    points = [(c.step_s, c.memory_bytes, i) for i, c in enumerate(sweep.best)]
    front = [sweep.best[i] for i in pareto(points)][:30]
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": {"planner": __version__, "profile": None, "catalog": "2026-12-01"},
        "seed": 0,
        "axes": {name: list(getattr(sweep.axes, name)) for name in Axes.__slots__},
        "plans_total": sweep.axes.plans,
        "plans_invalid": sweep.plans_invalid,
        "plans_out_of_memory": sweep.plans_out_of_memory,
        "plans_scored": sweep.plans_scored,
        "seconds": sweep.seconds,
        "interrupted": sweep.interrupted,
        "best": rows,
        "pareto": [
            {
                "plan": strategy_of(c, scenario=scenario).model_dump(exclude_none=True),
                "step_s": c.step_s,
                "memory_peak_gb": c.memory_bytes / 1e9,
            }
            for c in front
        ],
    }


def longest_sequence(*, scenario: Scenario, precision: str | None = None) -> dict[str, Any]:
    """The search at the longest sequence (doubling from the scenario's) for which any plan fits; tokens a step kept.

    The answer is that of `search` with `sequence_length` beside it.
    """
    best: dict[str, Any] | None = None
    training = scenario.training
    length, batch = training.sequence_length, training.global_batch_sequences
    while length <= LONGEST:
        one = scenario.model_copy(
            update={
                "training": training.model_copy(
                    update={"sequence_length": length, "global_batch_sequences": max(1, batch)}
                )
            }
        )
        document = search(scenario=one, precision=precision)
        if not document["best"]:
            break
        best = document | {"sequence_length": length}
        length, batch = 2 * length, batch // 2
        if document["interrupted"]:
            break
    return best or search(scenario=scenario, precision=precision) | {"sequence_length": None}


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


def say_progress(done: int, plans: int, seconds: float) -> None:
    """One line on stderr that overwrites itself."""
    rate = plans / seconds if seconds > 0 else 0.0
    sys.stderr.write(f"\r{done} placements, {plans:,} plans, {rate:,.0f} a second")
    sys.stderr.flush()
