"""Search over every plan of a scenario: closed form for millions, events and the bill for the best few."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from typing import Any

from planner import catalog
from planner.catalog.types import ModelSpec
from planner.cost.rates import base_dtype
from planner.decide.score import Scored, Scorer, best_of
from planner.decide.search_front import Front, OnFront
from planner.decide.space import Axes, Place, axes_of, places, schedules_of
from planner.decide.spread import ONE_CORE, Job, Stopped, Table, Where, fingerprint, spread
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
# Columns of a plan, and of a file of results.
PLAN_KINDS = {
    **dict.fromkeys(("tp", "pp", "vpp", "dp", "cp", "ep", "etp", "micro_batch", "global_batch", "sequence"), "int"),
    **dict.fromkeys(("schedule", "recompute", "precision", "mode"), "str"),
    "zero_stage": "int",
    **dict.fromkeys(("sequence_parallel", "dp_overlap", "pp_overlap", "tp_overlap"), "bool"),
    **dict.fromkeys(("step_s", "memory_bytes"), "float"),
}
KINDS = {**PLAN_KINDS, "on_front": "bool", "plans": "int", "plans_out_of_memory": "int"}
PLACE_S, FORECAST_S = 4e-3, 0.08  # seconds for the plans of a placement and for a forecast by events, roughly


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
    limit: int | None = None,
    narrow: Callable[[Axes], Axes] | None = None,
    where: Where = ONE_CORE,
) -> Sweep:
    """Score every plan; an interruption keeps what is done.

    Args:
        scenario: model, cluster and batch.
        precision: dtype of the products, None tries what the part has.
        limit: stop after this many placements.
        narrow: leaves values of the axes out.
        where: on which workers, into which file.

    Raises:
        SpreadError: the workers or the file of `where` cannot be used.
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
    every = places(
        axes=axes,
        model=scenario.model_spec,
        gpus=scenario.gpus,
        global_batch=training.global_batch_sequences,
        sequence=training.sequence_length,
    )
    blocks = _blocks(axes=axes, every=list(islice(every, limit)))
    began = time.perf_counter()

    job = Job(
        function=scored_block,
        tasks={key: (scenario.model_spec, machine, axes, gpu.mem_bytes, block) for key, block in blocks.items()},
        kinds=KINDS,
        identity={"job": "search", "scenario": scenario.hash(), "inputs": fingerprint(machine, axes, limit)},
        expected_s=PLACE_S * sum(map(len, blocks.values())),
    )
    interrupted = False
    try:
        tables: Mapping[str, Table] = spread(job=job, where=where)
    except Stopped as stop:
        tables, interrupted = stop.done, True
        if where.out is not None:
            where.say(f"\n{stop.kept}\n")
    _scorer.cache_clear()
    found, front = _merged([tables[k] for k in blocks if k in tables], capacity_bytes=gpu.mem_bytes)
    seen = sum(t["plans"][0] for t in tables.values())
    out_of_memory = sum(t["plans_out_of_memory"][0] for t in tables.values())
    return Sweep(
        axes=axes,
        plans_invalid=axes.plans - seen,
        plans_out_of_memory=out_of_memory,
        plans_scored=seen - out_of_memory,
        seconds=time.perf_counter() - began,
        interrupted=interrupted,
        best=tuple(found),
        front=tuple(front),
        capacity_bytes=gpu.mem_bytes,
    )


def _blocks(*, axes: Axes, every: Sequence[Place]) -> dict[str, list[Place]]:
    """Placements by tensor and context ranks, which share the shapes of a layer; the largest block first."""
    blocks: dict[str, list[Place]] = {}
    for place in every:
        if any(schedules_of(axes=axes, layout=replace(place.layout, micro_batch=n)) for n in place.micro_batches):
            blocks.setdefault(f"tp{place.layout.tp}-cp{place.layout.cp}", []).append(place)
    return dict(sorted(blocks.items(), key=lambda kv: -len(kv[1])))


@lru_cache(maxsize=1)
def _scorer(*, model: ModelSpec, machine: Machine, axes: Axes) -> Scorer:
    """One for all blocks that a process scores: its pieces are shared between blocks too."""
    return Scorer(model=model, machine=machine, axes=axes)


def scored_block(
    model: ModelSpec, machine: Machine, axes: Axes, capacity_bytes: float, block: Sequence[Place]
) -> Table:
    """The fastest plans of each placement that fit and the front of the block, one a row.

    The first row has the block's counts, and no plan where none fits.
    """
    scorer = _scorer(model=model, machine=machine, axes=axes)
    front: Front[Candidate] = Front(capacity_bytes=capacity_bytes)
    found: list[Candidate] = []
    plans = out_of_memory = 0
    for place in block:
        scored = scorer.score(place.layout, place.micro_batches, capacity_bytes=capacity_bytes)
        lost, best = best_of(scored, capacity_bytes=capacity_bytes, keep=KEEP_PER_PLACEMENT)
        make = partial(candidate_at, axes=axes, place=place, scored=scored)
        if best:
            front.add(scored, make)
        found += [make(at) for _, _, at in best]
        plans += scored.plans
        out_of_memory += lost
    on_front = [x.plan for x in front.plans()]
    rows = [(c, False) for c in found] + [(c, True) for c in on_front]
    table: dict[str, list[Any]] = {k: [_value(c, k) for c, _ in rows] or [None] for k in PLAN_KINDS}
    rest = [None] * (max(1, len(rows)) - 1)
    return {
        **table,
        "on_front": [on for _, on in rows] or [None],
        "plans": [plans, *rest],
        "plans_out_of_memory": [out_of_memory, *rest],
    }


def _value(candidate: Candidate, key: str) -> Any:
    return getattr(candidate if hasattr(candidate, key) else candidate.layout, key)


def _merged(tables: Sequence[Table], *, capacity_bytes: float) -> tuple[list[Candidate], list[Candidate]]:
    """The fastest plans of all blocks in order, and the front of their fronts."""
    front: Front[Candidate] = Front(capacity_bytes=capacity_bytes)
    found: list[Candidate] = []
    for table in tables:
        for i, on_front in enumerate(table["on_front"]):
            if on_front is None:
                continue
            keys = {k: table[k][i] for k in PLAN_KINDS}
            of = {k: keys.pop(k) for k in ("dp_overlap", "pp_overlap", "tp_overlap", "mode", "step_s", "memory_bytes")}
            candidate = Candidate(layout=Layout(**keys), **of)
            if on_front:
                front.put(OnFront(candidate.step_s, candidate.memory_bytes, candidate))
            else:
                found.append(candidate)
    found.sort(key=lambda c: (c.step_s, c.memory_bytes, _sort_key(c)))
    return found, [x.plan for x in front.plans()]


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
    *, scenario: Scenario, sweep: Sweep, count: int = REFINED, engine: str = "events", where: Where = ONE_CORE
) -> list[tuple[Candidate, Forecast]]:
    """The best few forecast by events, run clock and bill, ordered by their event time; those that fit."""
    chosen = distinct(sweep, count)
    job = Job(
        function=forecast_plan,
        tasks={f"{i:03d}": (scenario, strategy_of(c, scenario=scenario), engine) for i, c in enumerate(chosen)},
        kinds={},
        identity={},
        expected_s=FORECAST_S * len(chosen),
    )
    tables = spread(job=job, where=replace(where, out=None)).values()
    found = [(c, t["forecast"][0]) for c, t in zip(chosen, tables, strict=True)]
    fitting = [(c, f) for c, f in found if f is not None and f.resolved.fits]
    return sorted(fitting, key=lambda pair: pair[1].answer.step_s)


def forecast_plan(scenario: Scenario, strategy: Strategy, engine: str) -> Table:
    """The whole forecast of a plan, None where it cannot be made."""
    one = scenario.model_copy(update={"strategies": {"plan": strategy}})
    try:
        return {"forecast": [forecast_strategy(scenario=one, name="plan", engine=engine)]}
    except ForecastError:
        return {"forecast": [None]}


def resolve_auto(scenario: Scenario, *, where: Where = ONE_CORE) -> Scenario:
    """The scenario with every `auto` replaced by its best plan; nothing of the search is stored.

    Raises:
        ForecastError: no plan fits.
    """
    names = [n for n, s in scenario.strategies.items() if isinstance(s, str)]
    if not names:
        return scenario
    where = replace(where, out=None)
    sweep = sweep_plans(scenario=scenario, precision="bf16", where=where)
    if sweep.interrupted:
        raise KeyboardInterrupt
    refined = refine(scenario=scenario, sweep=sweep, count=6, where=where)
    if not refined:
        raise ForecastError(f"`auto`: none of {sweep.axes.plans} plans fits memory on {scenario.gpus} GPUs")
    best = strategy_of(refined[0][0], scenario=scenario)
    return scenario.model_copy(update={"strategies": {**scenario.strategies, **dict.fromkeys(names, best)}})
