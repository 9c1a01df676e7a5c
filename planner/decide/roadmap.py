"""What to optimise next in this scenario, in which order, at what price, and when to stop or turn to other work."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np

from planner import SCHEMA_VERSION, __version__
from planner.cost.types import Network
from planner.decide.checklist import checklist
from planner.decide.roadmap_search import (
    TEST_GPU_HOURS,
    Candidate,
    Economy,
    Plan,
    choose,
    elsewhere,
    glue_first,
    leave_one_out,
    replay,
)
from planner.decide.roadmap_step import avoidable_frac, ceilings, gain_sigma
from planner.decide.stopping import GainLaw, History, cutoff, fit_law, outlook, read_history, switch_after
from planner.forecast import Forecast, ForecastError, forecast_strategy, machine_for
from planner.scenario import Scenario, Strategy
from planner.simulate.stack_step import StackStep, fits, stack_step
from planner.workload.transforms import CHANGES

OTHER_NODES = ("hgx-a100", "hgx-h100", "hgx-b200")
DRAWS, SEED, Z80 = 20_000, 0, 1.2815515655446004
WEEKS_PER_YEAR = 52.0
MATURE_MFU, LEAST_AVOIDABLE_FRAC = 0.45, 0.05
ENGINEERS_ON_A_STEP = 2.0
FAR_BEYOND_INCREMENTAL = 1.5  # logarithms of target over that of all incremental steps together


@dataclass(frozen=True, slots=True)
class Roadmap:
    """The road and the document of contract 4."""

    plan: Plan
    document: Mapping[str, Any]


def bottleneck(*, step: StackStep, avoidable: Mapping[str, float], goodput: float, mfu: float) -> str:
    """What holds the run most: the largest avoidable share of elapsed time.

    Where next to nothing is avoidable, the largest share itself; a GPU that is used well then points to the algorithm.

    Returns:
        host, memory, compute, wire, bubble, failures or algorithm.
    """
    exposed = tuple(k for k, _ in step.parts_s if k.startswith("exposed_"))
    lost = {
        "host": step.part("launch_gap", "straggler", "other") / step.step_s,
        "memory": avoidable["memory"],
        "compute": avoidable["compute"],
        "wire": step.part(*exposed) / step.step_s,
        "bubble": step.part("bubble") / step.step_s,
    }
    elapsed = {k: goodput * v for k, v in lost.items()} | {"failures": 1 - goodput}
    name = max(elapsed, key=lambda k: elapsed[k])
    if elapsed[name] >= LEAST_AVOIDABLE_FRAC:
        return name
    if step.part("compute_memory_bound", "optimizer") > step.part("compute_matmul", "compute_attention"):
        return "memory"
    return "algorithm" if mfu > MATURE_MFU else "compute"


def _run_factors(*, scenario: Scenario, name: str, before: Forecast) -> tuple[tuple[str, float], ...]:
    """Elapsed time after over before of asynchronous checkpoints and of elastic restarts, by the run clock."""
    out = []
    for key, change in (
        ("async_ckpt_eval", {"checkpoint_asynchronous": True}),
        ("elastic", {"automatic_restart_frac": 0.9}),
    ):
        better = scenario.model_copy(update={"run": scenario.run.model_copy(update=change)})
        after = forecast_strategy(scenario=better, name=name, engine="fast")
        out.append((key, min(1.0, after.document["days"]["p50"] / before.document["days"]["p50"])))
    return tuple(out)


def _gains(log_gain: float) -> dict[str, float]:
    """P10, P50 and P90 of a simulated gain as a share of the time before."""
    sigma = gain_sigma(log_gain)
    low, high = log_gain - Z80 * sigma, log_gain + Z80 * sigma
    return {"p10": -math.expm1(-low), "p50": -math.expm1(-log_gain), "p90": -math.expm1(-high)}


def reach_probability(*, steps: tuple[Candidate, ...], target: float, seed: int = SEED) -> float:
    """Probability that steps, each working out or not and spread around its simulated gain, reach a speed-up."""
    if not steps:
        return float(target <= 1)
    rng = np.random.default_rng(seed)
    gains = np.array([s.log_gain for s in steps])
    sigma = np.array([gain_sigma(g) for g in gains])
    works = rng.random((DRAWS, len(steps))) < np.array([s.chance for s in steps])
    drawn = gains + sigma * rng.standard_normal((DRAWS, len(steps)))
    return float(np.mean((works * drawn).sum(axis=1) >= math.log(target)))


def _confidence(step: Candidate) -> str:
    """high: simulated and seen in measured cases; medium: one of both; low: a usual factor of the catalogue alone."""
    measured = step.entry.basis == "measured"
    if step.entry.modelled_by in {"layout", "software", "model", "machine", "run"}:
        return "high" if measured else "medium"
    return "medium" if measured and step.entry.key in CHANGES else "low"


def _step_document(
    *, step: Candidate, at_weeks: float, economy: Economy, plan: Plan, network: Network, start: date, full: bool
) -> dict[str, Any]:
    weekly = economy.spend_usd / (WEEKS_PER_YEAR * economy.years) * step.expected_usd_frac
    payback = at_weeks + step.cost_usd / weekly if weekly > 0 else math.inf
    pays = step.pays(economy)
    within = payback <= WEEKS_PER_YEAR * economy.years + at_weeks
    return {
        "key": step.entry.key,
        "name": step.entry.name,
        "class": step.entry.cls,
        "side": step.entry.side,
        "cut": step.entry.cut,
        "gain_frac": _gains(step.log_gain),
        "gain_alone_frac": -math.expm1(-plan.alone[step.entry.key]) if step.entry.key in plan.alone else None,
        "effort_weeks": dict(zip(("low", "mid", "high"), step.effort_weeks, strict=True)),
        "maintenance_weeks_per_year": step.entry.upkeep_mid_weeks_per_year,
        "gpu_hours": step.gpu_hours,
        "cost_usd": step.cost_usd,
        "expected_saving_usd": step.expected_usd_frac * economy.spend_usd,
        "pays": pays,
        "payback_date": (start + timedelta(weeks=payback)).isoformat() if within else None,
        "p_success": step.chance,
        "risk": f"{step.entry.risk}, {step.entry.risk_scope}",
        "lock_in": step.entry.lock_in,
        "reversibility": step.entry.reversibility,
        "quality_may_change": step.entry.quality_may_change,
        "confidence": _confidence(step),
        "mechanism": [f"{axis} {sign}" for axis, sign in step.entry.mechanism],
        "elsewhere_gain_frac": elsewhere(key=step.entry.key, stack=plan.base, network=network, nodes=OTHER_NODES)
        if full
        else {},
        "checks": [
            {"topic": c.topic, "action": c.action, "passes_when": c.passes_when}
            for c in checklist(key=step.entry.key, stack=step.after)
        ]
        if full
        else [],
    }


def _waterfall(*, plan: Plan, network: Network, open_recompute: bool) -> dict[str, Any]:
    """Steps one on top of the other, each left out of the whole, and what the single gains do not explain."""
    keys = [s.entry.key for s in plan.steps]
    before_s = stack_step(stack=plan.base, network=network).step_s
    bars, now = [], before_s
    for index, step in enumerate(plan.steps):
        total = replay(keys=keys[: index + 1], plan=plan, network=network, open_recompute=open_recompute)
        after = before_s * math.exp(-total)
        bars.append({"key": step.entry.key, "before_s": now, "after_s": after, "gain_frac": 1 - after / now})
        now = after
    possible = [k for k in keys if k in plan.alone]
    together = replay(keys=possible, plan=plan, network=network, open_recompute=open_recompute)
    singles = sum(replay(keys=[k], plan=plan, network=network, open_recompute=open_recompute) for k in possible)
    lost = leave_one_out(plan=plan, network=network, open_recompute=open_recompute)
    return {
        "sequence": bars,
        "before_s": before_s,
        "after_s": now,
        "speedup": before_s / now,
        "leave_one_out_frac": {k: -math.expm1(-v) for k, v in lost.items()},
        "interaction_rest_frac": math.expm1(together - singles),
        "only_behind_others": [k for k in keys if k not in plan.alone],
    }


def _cutoff(*, plan: Plan, paying: int, economy: Economy, law: GainLaw, team_usd_per_week: float) -> dict[str, Any]:
    """The first step that does not pay; where every known one does, the next of an unknown kind (fitted history)."""
    later = [*plan.steps[paying:], *plan.rest]
    if later:
        following = later[0]
        gain, cost = following.expected_usd_frac * economy.spend_usd, following.cost_usd
        source = following.entry.key
    else:
        rule = cutoff(law=law, spend_usd=economy.spend_usd, usd_per_week=team_usd_per_week)
        gain, cost, source = rule.next_gain_usd, rule.next_cost_usd, "next improvement of the fitted history"
    return {
        "stop": gain <= cost,
        "after_steps": paying,
        "next": source,
        "next_gain_usd": gain,
        "next_cost_usd": cost,
        "spend_break_even_usd": cost / (gain / economy.spend_usd) if gain > 0 and economy.spend_usd > 0 else None,
    }


def _history_document(*, history: History, law: GainLaw, economy: Economy, usd_per_week: float) -> dict[str, Any]:
    """What a fitted improvement history says of work of an unknown kind."""
    ahead = outlook(law=law, ahead=10)
    quantiles = ("p10", "p50", "p90")
    out: dict[str, Any] = {
        "source": history.source,
        "improvements": law.n,
        "c": law.c,
        "mean_gain_frac": -math.expm1(-law.mean_gain),
        "sigma_log": law.sigma_log,
        "successes_per_week": law.per_week,
        "immature": law.immature,
        "next": {
            "improvements": ahead.n,
            "time_s": dict(zip(quantiles, ahead.time_s, strict=True)),
            "gain_frac": dict(zip(quantiles, ahead.gain_frac, strict=True)),
            "weeks": dict(zip(quantiles, ahead.weeks, strict=True)) if ahead.weeks else None,
        },
        "cutoff": None,
    }
    if law.per_week:
        rule = cutoff(law=law, spend_usd=economy.spend_usd, usd_per_week=usd_per_week)
        out["cutoff"] = {
            "stop": rule.stop,
            "next_gain_usd": rule.next_gain_usd,
            "next_cost_usd": rule.next_cost_usd,
            "spend_break_even_usd": rule.spend_break_even_usd,
            "usd_per_tenth_second": rule.usd_per_tenth_second,
        }
    return out


def _switch(*, plan: Plan, structural: Plan) -> dict[str, Any]:
    """After which step a structural attempt buys more per money than the next incremental one."""
    if not structural.steps:
        return {"after_steps": None, "to": None, "why": "no structural step gains anything here"}
    lead = structural.steps[0]
    road = [(s.chance * s.log_gain, s.cost_usd) for s in plan.steps if s.entry.cut == "A"]
    found = switch_after(incremental=road, structural_gain=lead.chance * lead.log_gain, structural_usd=lead.cost_usd)
    per = 1e5 * lead.chance * lead.log_gain / max(lead.cost_usd, 1.0)
    where = "after every incremental step" if found is None else f"after {found} incremental steps"
    return {
        "after_steps": len(road) if found is None else found,
        "to": lead.entry.key,
        "why": f"{where}, {lead.entry.key} buys more: {per:.2f} log points per 1,000 USD, chance included",
    }


def _plans(
    *, scenario: Scenario, stack: Any, network: Network, economy: Economy, open_recompute: bool
) -> tuple[Plan, Plan, dict[str, Any]]:
    """The road, the structural alternatives, and what the target says."""
    common = {"base": stack, "network": network, "team": scenario.team, "economy": economy}
    incremental = choose(**common, open_recompute=open_recompute)
    structural = choose(**common, cuts=frozenset({"B"}), open_recompute=open_recompute, max_steps=3)
    target = scenario.goals.target_speedup
    if target is None:
        return incremental, structural, {"speedup": None, "p_incremental": None, "structural_needed": None}
    p = reach_probability(steps=incremental.steps, target=target)
    needed = p < scenario.goals.probability
    within = sum(s.log_gain for s in incremental.steps)
    far = math.log(target) > FAR_BEYOND_INCREMENTAL * within
    road = choose(
        **common,
        cuts=frozenset({"A", "B"}) if needed else frozenset({"A"}),
        target_log=math.log(target),
        by_size=far,
        open_recompute=open_recompute,
        max_steps=20,
    )
    return (
        road,
        structural,
        {
            "speedup": target,
            "p_incremental": p,
            "structural_needed": needed,
            "led_by": "structural" if far else "incremental",
            "p_road": reach_probability(steps=road.steps, target=target),
        },
    )


def roadmap(
    *,
    scenario: Scenario,
    name: str | None = None,
    history: History | None = None,
    start: date | None = None,
) -> Roadmap:
    """The road from one strategy of a scenario (the first by default).

    Args:
        scenario: what is trained on what, by whom.
        name: strategy to start from.
        history: improvement history for the stopping rule; the packaged one by default.
        start: first day of the work; today by default.

    Raises:
        ForecastError: an unknown or unresolved strategy, or one that cannot be placed.
    """
    name = name or next(iter(scenario.strategies))
    strategy = scenario.strategies.get(name)
    if not isinstance(strategy, Strategy):
        raise ForecastError(f"strategy {name!r} is not a strategy with named degrees")
    forecast = forecast_strategy(scenario=scenario, name=name, engine="fast")
    doc = forecast.document
    stack = forecast.stack
    network = machine_for(scenario=scenario, resolved=forecast.resolved, gpus=scenario.gpus).network
    programme = scenario.programme
    economy = Economy(
        spend_usd=doc["programme_usd"] - doc["cost_usd"]["people"],
        run_gpu_hours=doc["gpu_hours"],
        usd_per_gpu_hour=doc["price"]["usd_per_gpu_hour"],
        usd_per_person_week=scenario.pricing.usd_per_person_week,
        years=programme.years,
        run_factors=_run_factors(scenario=scenario, name=name, before=forecast),
    )
    open_recompute = strategy.recompute is None
    plan, structural, target = _plans(
        scenario=scenario, stack=stack, network=network, economy=economy, open_recompute=open_recompute
    )
    step = stack_step(stack=stack, network=network)
    limits = ceilings(stack=stack, step=step)
    seen = history or read_history()
    law = fit_law(seen)
    people = max(1, scenario.team.application + scenario.team.systems + scenario.team.algorithm)
    usd_per_week = people * economy.usd_per_person_week + TEST_GPU_HOURS * economy.usd_per_gpu_hour
    steps, at = [], 0.0
    for s in plan.steps:
        at += s.effort_weeks[1] / min(ENGINEERS_ON_A_STEP, people)
        steps.append(
            _step_document(
                step=s, at_weeks=at, economy=economy, plan=plan, network=network, start=start or date.today(), full=True
            )
        )
    paying = next((i for i, s in enumerate(plan.steps) if not s.pays(economy)), len(plan.steps))
    document = {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": doc["versions"] | {"planner": __version__},
        "seed": SEED,
        "strategy": name,
        "feasible": fits(plan.steps[-1].after if plan.steps else stack),
        "bottleneck": bottleneck(
            step=step, avoidable=avoidable_frac(stack=stack, step=step), goodput=doc["goodput"], mfu=doc["mfu"]
        ),
        "ceilings": limits | {"structural": None},
        "glue_first": glue_first(stack=stack, network=network),
        "spend_usd": economy.spend_usd,
        "steps": steps,
        "waterfall": _waterfall(plan=plan, network=network, open_recompute=open_recompute),
        "cutoff": _cutoff(plan=plan, paying=paying, economy=economy, law=law, team_usd_per_week=usd_per_week),
        "history": _history_document(history=seen, law=law, economy=economy, usd_per_week=usd_per_week),
        "switch_when": _switch(plan=plan, structural=structural),
        "structural": [
            {"key": s.entry.key, "gain_frac": _gains(s.log_gain), "p_success": s.chance, "cost_usd": s.cost_usd}
            for s in structural.steps
        ],
        "target": target,
        "refused": dict(plan.refused),
    }
    return Roadmap(plan, document)
