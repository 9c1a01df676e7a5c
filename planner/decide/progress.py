"""A run that is going against its plan: what differs, what its log teaches, when it now ends and what it now costs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import SCHEMA_VERSION
from planner.catalog.reliability import FAILURE_CAUSES
from planner.decide.progress_actual import Actual, Planned, actual_run, planned_run
from planner.decide.progress_compare import Z80, comparison, refit_document
from planner.decide.progress_gaps import what_is_not_told
from planner.decide.progress_rows import is_runs_table, step_ratios
from planner.decide.run import DAY_S, simulate_chunks, summary
from planner.decide.spread import ONE_CORE, Where
from planner.profile.progress_log import UNEXPECTED, read_progress
from planner.scenario import Scenario
from planner.simulate.run.refit import (
    FEWEST_STOPS,
    Refit,
    cause_posterior,
    failure_factor,
    failure_sigma,
    recovery_factor,
    rest_of,
    step_factor,
)

# Draws of the recovery factor, equally likely; each simulates its share of the replications.
STRATA = 8
QUANTILES = (0.1, 0.5, 0.9)


def refit_of(*, actual: Actual, planned: Planned) -> Refit:
    """The plan's factors after the log."""
    plan, stops = planned.clock, actual.stops
    events = sum(stops[c] for c in UNEXPECTED) if stops else 0
    return Refit(
        step=step_factor(ratios=actual.step_ratios, hours=actual.step_hours, prior_sigma=planned.sigma),
        failures=failure_factor(events=events, expected=actual.expected_failures, prior_sigma=failure_sigma(plan)),
        recovery=recovery_factor(events=actual.recoveries, hours=actual.recovery_h, planned_s=plan.recovery_s),
        shares=cause_posterior(plan=plan, counts=[stops[c] if stops else 0 for c in FAILURE_CAUSES]),
        pause_frac=actual.pause_frac,
        windows=_windows(actual),
        preemptions=_preemptions(actual),
        lost_each_s=actual.lost_each_s,
    )


def _windows(actual: Actual) -> tuple[float, float] | None:
    """Mean seconds from one planned stop to the next, and of one."""
    seen, hours = (actual.stops or {}).get("planned", 0), actual.stopped_h["planned_h"]
    if hours is None or seen < FEWEST_STOPS:
        return None
    return max(3600.0, (actual.hours - hours) * 3600 / seen), hours * 3600 / seen


def _preemptions(actual: Actual) -> tuple[float, float] | None:
    """Preemptions a second while there are nodes, and the mean wait."""
    seen, hours = (actual.stops or {}).get("preemption", 0), actual.stopped_h["preempted_h"]
    if hours is None or seen < FEWEST_STOPS or actual.hours <= hours:
        return None
    return seen / ((actual.hours - hours) * 3600), hours * 3600 / seen


@dataclass(frozen=True, slots=True)
class Rest:
    """Draws of what is left, by replication."""

    days: NDArray[np.float64]
    gpu_hours: NDArray[np.float64]
    usd: NDArray[np.float64]
    summary: Mapping[str, Any] | None


def simulate_rest(
    *, planned: Planned, actual: Actual, refit: Refit, replications: int, seed: int, where: Where = ONE_CORE
) -> Rest:
    """The run that is left, many times; recovery is drawn by strata, the step and the price by replication."""
    done_s = min(planned.plan.work_s, max(0.0, actual.steps * planned.step_s))
    if planned.plan.work_s - done_s <= 1e-9 * planned.plan.work_s:
        nothing = np.zeros(1)
        return Rest(nothing, nothing, nothing, None)
    parts = min(STRATA, replications)
    seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(parts)]
    # Without a count of stops the plan's own rate stands, be it zero.
    clock = planned.plan if actual.stops is None else planned.clock
    chunks, plan = [], clock
    spread = refit.recovery.sigma
    for i, child in enumerate(seeds):
        plan = rest_of(
            plan=clock,
            refit=refit,
            done_s=done_s,
            elapsed_s=actual.elapsed_s,
            recovery=refit.recovery.posterior[1] * math.exp(spread * NormalDist().inv_cdf((i + 0.5) / parts)),
        )
        share = replications // parts + (i < replications % parts)
        chunks += simulate_chunks(plan=plan, replications=share, seed=child, where=where)
    rng = np.random.default_rng([seed, 11])
    elapsed = np.concatenate([c.elapsed_s for c in chunks])
    factor = np.exp(refit.step.sigma * rng.standard_normal(elapsed.size))
    gpu_hours = np.concatenate([c.node_s for c in chunks]) * plan.gpus_per_node / 3600 * factor
    price = actual.price_usd
    spread = 0.0 if price is not None else planned.usd_sigma
    paid = price if price is not None else planned.usd_per_gpu_hour
    usd = gpu_hours * paid * np.exp(spread * rng.standard_normal(elapsed.size))
    found = summary(plan=plan, chunks=chunks, step_sigma=refit.step.sigma, seed=seed)
    return Rest(elapsed / DAY_S * factor, gpu_hours, usd, found)


def progress_document(
    *, scenario: Scenario, name: str, log: Path, replications: int = 1000, seed: int = 0, where: Where = ONE_CORE
) -> dict[str, Any]:
    """Answer `run` of contract 4 for a run that is going, with plan against actual, refit and the new end.

    Args:
        scenario: as it was planned, every strategy resolved.
        name: the strategy that runs.
        log: CSV of the run so far (`planner.profile.progress_log`).
        replications: how many rests of the run are simulated.
        seed: the same seed gives the same answer.
        where: the workers of the replications.

    Raises:
        ForecastError: the strategy cannot be forecast.
        ProgressError: mistakes of the log.
        OSError: the log cannot be read.
    """
    planned = planned_run(scenario=scenario, name=name)
    actual = read_actual(scenario=scenario, planned=planned, log=log)
    refit = refit_of(actual=actual, planned=planned)
    rest = simulate_rest(planned=planned, actual=actual, refit=refit, replications=replications, seed=seed, where=where)
    document = planned.forecast.document
    tokens_per_step = scenario.training.tokens / planned.steps
    spent = actual.cost_usd
    if spent is None:
        spent = actual.gpu_hours * (actual.price_usd or planned.usd_per_gpu_hour)
    days = actual.elapsed_s / DAY_S + rest.days
    usd = spent + planned.engineering_usd + rest.usd
    left = {} if rest.summary is None else rest.summary
    start = actual.periods[0].start if actual.periods else None
    end = actual.periods[-1].end if actual.periods else None
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": document["scenario_hash"],
        "versions": document["versions"],
        "seed": seed,
        "name": name,
        "feasible": document["feasible"],
        "replications": replications,
        "log": _log(log=log, actual=actual, planned=planned, tokens_per_step=tokens_per_step),
        "plan_against_actual": comparison(planned=planned, actual=actual, tokens_per_step=tokens_per_step),
        "refit": refit_document(planned=planned, actual=actual, refit=refit),
        "not_told": what_is_not_told(actual=actual, refit=refit, gpus=scenario.gpus),
        "days_left": _quantiles(rest.days),
        "finish_date": _dates(start=end, days=_quantiles(rest.days)),
        "planned": {
            "days": _planned_days(planned),
            "finish_date": _dates(start=start, days=_planned_days(planned)),
            "cost_usd_total": document["cost_usd_total"],
        },
        "cost_usd_total": _quantiles(usd),
        "cost_usd_spent": spent + planned.engineering_usd,
        **left,
        **{"days": _quantiles(days), "gpu_hours": _quantiles(actual.gpu_hours + rest.gpu_hours)},
        "goals": _goals(scenario=scenario, days=days, usd=usd),
    }


def read_actual(*, scenario: Scenario, planned: Planned, log: Path) -> Actual:
    """The log, whichever of the two tables it is.

    Raises:
        ProgressError: mistakes of the log.
        OSError: the log cannot be read.
    """
    if is_runs_table(log):
        ratios = step_ratios(path=log, planned=planned)
        return actual_run(periods=(), planned=planned, gpus=scenario.gpus, step_ratios=ratios)
    training = scenario.training
    periods = read_progress(log, tokens_per_step=training.global_batch_sequences * training.sequence_length)
    return actual_run(periods=periods, planned=planned, gpus=scenario.gpus)


def _log(*, log: Path, actual: Actual, planned: Planned, tokens_per_step: float) -> dict[str, Any]:
    periods = actual.periods
    return {
        "file": str(log),
        "periods": len(periods) or len(actual.step_ratios),
        "from": periods[0].start.isoformat() if periods else None,
        "to": periods[-1].end.isoformat() if periods else None,
        "days": actual.elapsed_s / DAY_S,
        "gap_h": actual.gap_h,
        "steps": actual.steps,
        "tokens": actual.steps * tokens_per_step,
        "done_frac": actual.steps / planned.steps,
    }


def _dates(*, start: datetime | None, days: Mapping[str, float]) -> dict[str, str] | None:
    if start is None:
        return None
    return {q: (start + timedelta(days=v)).isoformat(timespec="minutes") for q, v in days.items()}


def _planned_days(planned: Planned) -> dict[str, float]:
    sigma = math.hypot(planned.sigma, (1 - planned.expected.goodput) * planned.plan.rate_sigma)
    spread = Z80 * sigma
    return {q: planned.days * math.exp(z * spread) for q, z in (("p10", -1), ("p50", 0), ("p90", 1))}


def _quantiles(values: NDArray[np.float64]) -> dict[str, float]:
    found = np.quantile(values, QUANTILES)
    return {f"p{round(100 * q)}": float(v) for q, v in zip(QUANTILES, found, strict=True)}


def _goals(*, scenario: Scenario, days: NDArray[np.float64], usd: NDArray[np.float64]) -> dict[str, Any]:
    goals = scenario.goals
    return {
        "deadline_days": goals.deadline_days,
        "p_late": None if goals.deadline_days is None else float((days > goals.deadline_days).mean()),
        "budget_usd": goals.budget_usd,
        "p_over_budget": None if goals.budget_usd is None else float((usd > goals.budget_usd).mean()),
        "probability": goals.probability,
        "days_at_probability": float(np.quantile(days, goals.probability)),
    }
