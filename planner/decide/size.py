"""The smallest and the cheapest cluster that meets the goals, what to relax if none does, and what it must bring."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from planner import SCHEMA_VERSION, __version__, catalog
from planner.decide.requirements import acceptance, storage_write_bytes_per_s
from planner.decide.run import elapsed_days, simulate_chunks
from planner.decide.search import refine, strategy_of, sweep_plans
from planner.decide.size_goals import Demand, Figures, below, relaxations
from planner.decide.size_scan import Option, Say, Scan, silent
from planner.decide.size_terms import offered
from planner.decide.sweep import knee_of, sizes, sweep
from planner.forecast import Forecast, ForecastError, forecast_strategy, machine_for, step_sigma
from planner.scenario import Scenario, Strategy
from planner.simulate.run.setup import run_plan
from planner.workload.params import total_params

REFINED = 3  # plans of the chosen size that are run by events
CONFIRMED, MOST_CONFIRMED = 2, 5  # clusters that are put to the full forecast: at least, and before giving up
REPLICATIONS = 400
LISTED = 12
KNEE_OCTAVES = (3, 4)  # doublings below and above the chosen size


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A chosen option put to the full forecast: steps by events, the run clock replicated, the bill."""

    option: Option
    forecast: Forecast
    p_deadline: float
    p_budget: float | None
    days: tuple[float, float, float]
    missed: tuple[str, ...]


def size(
    *, scenario: Scenario, strategy: str | None = None, gpus: Sequence[str] = (), seed: int = 0, say: Say = silent
) -> dict[str, Any]:
    """The answer `size` of contract 4.

    Closed form over parts, providers, sizes and tenures; then the cheapest few and the smallest by the full forecast.

    Args:
        scenario: `goals` are what is met; the cluster's number of nodes does not matter.
        strategy: keep this strategy's plan (data-parallel degree open) instead of searching one.
        gpus: parts or node types to look at; by default those on offer and the scenario's own.
        seed: of the run clock.
        say: told what is being looked at.

    Raises:
        ForecastError: an unknown part, node or strategy, or nothing on offer under the stated terms.
    """
    demand = Demand.of(scenario)
    found = offered(scenario=scenario, gpu_names=gpus)
    scan = Scan(
        scenario=scenario,
        demand=demand,
        strategy=_written(scenario=scenario, name=strategy),
        precision=_precision(scenario),
        say=say,
    )
    scan.run(found)
    for source in _leading(scan=scan):
        scan.descend(source)
    options = scan.every()
    good = [o for o in options if not demand.missed(o.figures)]
    done = _confirmed(good=good, scan=scan, demand=demand, seed=seed)
    upheld = [c for c in done.values() if not c.missed]
    cheapest = min(upheld, key=lambda c: _by_cost(c.option), default=None)
    smallest = min(upheld, key=lambda c: _by_size(c.option), default=None)
    met = cheapest is not None
    # What the full forecast found stands for what the closed form guessed.
    options = [done[o].option if o in done else o for o in options]
    shown = cheapest or _nearest(options=options, scan=scan, demand=demand, seed=seed)
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": {"planner": __version__, "profile": scenario.cluster.profile, "catalog": "2026-12-01"},
        "seed": seed,
        "feasible": met,
        "fits": bool(options),
        "goals": _goals_document(demand),
        "recommended": None if shown is None else _recommended(shown),
        "smallest": None if smallest is None else _recommended(smallest),
        "p_deadline": None if shown is None else shown.p_deadline,
        "p_budget": None if shown is None else shown.p_budget,
        "relax": [] if met else relaxations(demand=demand, options=options, describe=_described),
        "knee": None,
        "required": None,
        "acceptance": [],
        "looked_at": {"options": len(options), "meeting": len(good), "sources": len(found)},
        "options": [
            {**_described(o), "meets": not demand.missed(o.figures)} for o in _listed(options=options, demand=demand)
        ],
    }
    if shown is not None:
        document |= _bring_along(shown)
    return document


def _written(*, scenario: Scenario, name: str | None) -> Strategy | None:
    if name is None:
        return None
    found = scenario.strategies.get(name)
    if found is None:
        raise ForecastError(f"no strategy {name!r}; known: {', '.join(scenario.strategies)}")
    return None if isinstance(found, str) else found


def _precision(scenario: Scenario) -> str:
    """The matmul dtype of the written strategies, bf16 where none names one."""
    named = [s.precision for s in scenario.strategies.values() if not isinstance(s, str) and s.precision]
    return named[-1] if named else "bf16"


def _by_cost(option: Option) -> tuple[float, ...]:
    return (option.figures.cost_usd, option.gpus, option.figures.days)


def _by_size(option: Option) -> tuple[float, ...]:
    return (option.gpus, option.figures.cost_usd, option.figures.days)


def _leading(*, scan: Scan) -> list[Any]:
    """The sources of the cheapest and of the smallest option that meet the goals."""
    good = [o for o in scan.every() if not scan.demand.missed(o.figures)]
    leaders = [min(good, key=k).source for k in (_by_cost, _by_size)] if good else []
    return list(dict.fromkeys(leaders))


def _confirmed(*, good: Sequence[Option], scan: Scan, demand: Demand, seed: int) -> dict[Option, Confirmed]:
    """The cheapest few and the smallest that meet the goals in closed form, each put to the full forecast.

    Of either kind looks at CONFIRMED options, and further until one upholds the goals or MOST_CONFIRMED are through.
    """
    done: dict[Option, Confirmed] = {}
    for order in (_by_cost, _by_size):
        looked = 0
        for option in sorted(good, key=order):
            held = {(c.option.source, c.option.nodes) for c in done.values() if not c.missed}
            if looked >= (CONFIRMED if held else MOST_CONFIRMED):
                break
            # Dearer terms of a cluster that holds are no answer.
            if option not in done and (option.source, option.nodes) in held:
                continue
            looked += 1
            if option not in done:
                done[option] = confirm(option=option, demand=demand, precision=scan.precision, scan=scan, seed=seed)
    return done


def _nearest(*, options: Sequence[Option], scan: Scan, demand: Demand, seed: int) -> Confirmed | None:
    """What comes closest where no option meets the goals: the smallest largest overrun."""
    if not options:
        return None

    def overrun(option: Option) -> tuple[float, float]:
        needed = demand.needed(option.figures)
        worst = max((needed[g] / (demand.limit(g) or 1e-9) for g in demand.missed(option.figures)), default=0.0)
        return worst, option.figures.cost_usd

    return confirm(option=min(options, key=overrun), demand=demand, precision=scan.precision, scan=scan, seed=seed)


def confirm(*, option: Option, demand: Demand, precision: str, scan: Scan, seed: int) -> Confirmed:
    """The full forecast of an option: its plan searched anew and run by events, its run replicated with its spares."""
    scan.say(f"confirming {option.nodes} x {option.source.node} ({option.source.provider or 'market'})")
    strategy, forecast = _best_plan(option=option, precision=precision, searched=scan.fixed is None)
    one = forecast_scenario(option=option, strategy=strategy)
    figures = Figures.of(forecast.document, scenario=one)
    plan = run_plan(
        scenario=one,
        strategy=strategy,
        layout=forecast.resolved.layout,
        step_s=forecast.answer.effective_s,
        optimisations=forecast.answer.applied,
    )
    chunks = simulate_chunks(plan=plan, replications=REPLICATIONS, seed=seed)
    sigma = step_sigma(scenario=one, answer=forecast.answer)
    days = elapsed_days(chunks=chunks, step_sigma=sigma, seed=seed)
    p10, p50, p90 = (float(q) for q in np.quantile(days, (0.1, 0.5, 0.9)))
    p_deadline = float((days <= demand.deadline_days).mean())
    p_budget = None
    if demand.budget_usd is not None:
        p_budget = below(median=figures.cost_usd, sigma=figures.cost_sigma, limit=demand.budget_usd)
    figures = _simulated(figures=figures, days=days, probability=demand.probability)
    settled = replace(option, strategy=strategy, step_s=forecast.answer.step_s, figures=figures)
    return Confirmed(settled, forecast, p_deadline, p_budget, (p10, p50, p90), demand.missed(figures))


def _simulated(*, figures: Figures, days: Any, probability: float) -> Figures:
    """The figures with the replicated runs' median, and the spread that gives their quantile at the probability."""
    median, reached = (float(q) for q in np.quantile(days, (0.5, probability)))
    z = NormalDist().inv_cdf(probability)
    sigma = math.log(reached / median) / z if abs(z) > 0.05 else figures.days_sigma
    return replace(figures, days=median, days_sigma=sigma)


def forecast_scenario(*, option: Option, strategy: Strategy) -> Scenario:
    """An option's scenario with one plan."""
    return option.scenario.model_copy(update={"strategies": {"plan": strategy}})


def _best_plan(*, option: Option, precision: str, searched: bool) -> tuple[Strategy, Forecast]:
    """The fastest by events of the option's own plan and of those that the whole search finds on its size."""
    own = forecast_strategy(
        scenario=forecast_scenario(option=option, strategy=option.strategy), name="plan", engine="events"
    )
    best = (option.strategy, own)
    if not searched:
        return best
    try:
        sweep_ = sweep_plans(scenario=option.scenario, precision=precision)
        refined = refine(scenario=option.scenario, sweep=sweep_, count=REFINED)
    except ForecastError:
        return best
    for candidate, forecast in refined:
        if not best[1].resolved.fits or forecast.answer.step_s < best[1].answer.step_s:
            best = (strategy_of(candidate, scenario=option.scenario), forecast)
    return best


def _described(option: Option) -> dict[str, Any]:
    f = option.figures
    return {
        "gpu": option.source.gpu,
        "node": option.source.node,
        "nodes": option.nodes,
        "gpus": option.gpus,
        "provider": option.source.provider or ("own" if option.tenure == "own" else "market"),
        "tenure": option.tenure,
        "days": f.days,
        "cost_usd": f.cost_usd,
        "power_kw": f.facility_kw,
        "usd_per_million_tokens": f.usd_per_million_tokens,
    }


def _recommended(found: Confirmed) -> dict[str, Any]:
    option, document = found.option, found.forecast.document
    cluster, pricing = option.scenario.cluster, option.scenario.pricing
    node = catalog.node(cluster.node)
    fabric = cluster.fabric
    p10, p50, p90 = found.days
    return {
        **_described(option),
        "fabric": {
            "kind": (fabric.kind if fabric else None) or node.fabric,
            "node_gb_per_s": ((fabric.node_bytes_per_s if fabric else None) or node.scaleout_bytes_per_s) / 1e9,
            "oversubscription": fabric.oversubscription if fabric else 1.0,
            "switches": document["facility"]["switches"],
            "links": document["facility"]["links"],
        },
        "plan": document["strategy"],
        "spares": option.spares if option.tenure == "own" else 0,
        "step_s": document["step_s"],
        "days": {"p10": p10, "p50": p50, "p90": p90},
        "cost_usd": document["cost_usd_total"],
        "goodput": document["goodput"],
        "mfu": document["mfu"],
        "price": document["price"],
        "used_frac": pricing.own.utilization_frac if option.tenure == "own" else pricing.commitment_used_frac,
        "missed": list(found.missed),
        "warnings": document["warnings"],
    }


def _goals_document(demand: Demand) -> dict[str, Any]:
    stated = {g: demand.limit(g) for g in ("deadline_days", "budget_usd", "power_kw", "rack_kw", "max_interruptions")}
    return stated | {
        "probability": demand.probability,
        "missing": list(demand.missing),
        "assumed": dict(demand.assumed),
    }


def _listed(*, options: Sequence[Option], demand: Demand) -> list[Option]:
    """The cheapest option of each source, those that meet the goals first."""
    best: dict[Any, Option] = {}
    for option in sorted(options, key=lambda o: (len(demand.missed(o.figures)), _by_cost(o))):
        best.setdefault(option.source, option)
    return list(best.values())[:LISTED]


def _stops_work(*, scenario: Scenario, strategy: Strategy) -> bool:
    """Whether training waits while a checkpoint is written."""
    if scenario.run.checkpoint_asynchronous is not None:
        return not scenario.run.checkpoint_asynchronous
    return strategy.preset == "stack" and not strategy.engineering_weeks


def _can_scale(*, option: Option, gpus: int) -> bool:
    """Whether the plan's own micro-batch divides what a rank gets on another size."""
    plan, batch = option.strategy, option.scenario.training.global_batch_sequences
    ranks, rest = divmod(gpus, (plan.tp or 1) * (plan.pp or 1) * (plan.cp or 1))
    return not rest and ranks > 0 and batch % (ranks * (plan.micro_batch_sequences or 1)) == 0


def _bring_along(found: Confirmed) -> dict[str, Any]:
    """Knee, requirements and acceptance figures of the chosen cluster."""
    option, document = found.option, found.forecast.document
    one, node = option.scenario, catalog.node(option.scenario.cluster.node)
    resolved = found.forecast.resolved
    run = run_plan(
        scenario=one,
        strategy=option.strategy,
        layout=resolved.layout,
        step_s=found.forecast.answer.effective_s,
        optimisations=found.forecast.answer.applied,
    )
    rate, acceptable_s = storage_write_bytes_per_s(
        plan=run,
        params=total_params(one.model_spec),
        bytes_per_param=one.run.checkpoint_bytes_per_param,
        stops_work=_stops_work(scenario=one, strategy=option.strategy),
    )
    low, high = KNEE_OCTAVES
    first = max(1, option.gpus >> low)
    every = sizes(first=first, last=option.gpus << high, per_node=node.gpus_per_node)
    span = [g for g in every if _can_scale(option=option, gpus=g)]
    try:
        knee = knee_of(sweep(scenario=one, strategy=option.strategy, gpus=span, kind="strong"))
    except ForecastError:
        knee = None
    machine = machine_for(scenario=one, resolved=resolved, gpus=one.gpus)
    return {
        "knee": knee,
        "required": {
            "power_kw": document["facility"]["facility_kw"],
            "racks": document["facility"]["racks"],
            "storage_write_gb_per_s": rate / 1e9,
            "checkpoint_write_s": acceptable_s,
            "spare_nodes": option.spares,
        },
        "acceptance": acceptance(
            network=machine.network,
            gpu=node.gpu,
            gpus=one.gpus,
            dtype=resolved.layout.precision,
            step_s=document["step_s"],
        ),
    }
