"""Many replications of a strategy's run: the fan of finish dates, losses, interruptions and wasted hours."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import SCHEMA_VERSION
from planner.decide.goals import misses
from planner.forecast import Forecast, forecast_strategy
from planner.scenario import Scenario, Strategy
from planner.simulate.run.fleet import BINS, RunSamples, simulate_runs
from planner.simulate.run.plan import COUNTED, LOSSES, RunPlan
from planner.simulate.run.setup import run_plan

DAY_S = 86_400.0
# Replications of one generator; fixed, so that the answer does not depend on the number of cores.
CHUNK = 500
QUANTILES = (0.1, 0.5, 0.9)


def simulate_chunks(*, plan: RunPlan, replications: int, seed: int, cores: int | None = None) -> list[RunSamples]:
    """`simulate_runs` in chunks of CHUNK replications over processes; the same answer on any number of cores."""
    sizes = [min(CHUNK, replications - i) for i in range(0, replications, CHUNK)]
    seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(len(sizes))]
    workers = min(len(sizes), cores or os.cpu_count() or 1)
    # A short run is through before a second process has started.
    if workers == 1 or plan.failures_per_s * plan.work_s * replications < 2e4:
        return [_one(plan, n, s) for n, s in zip(sizes, seeds, strict=True)]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(_one, [plan] * len(sizes), sizes, seeds))


def _one(plan: RunPlan, replications: int, seed: int) -> RunSamples:
    return simulate_runs(plan=plan, replications=replications, seed=seed)


def run_document(
    *, scenario: Scenario, name: str, replications: int = 1000, seed: int = 0, cores: int | None = None
) -> dict[str, Any]:
    """Answer `run` of contract 4.

    Args:
        scenario: with every strategy resolved.
        name: the strategy.
        replications: how many runs.
        seed: the same seed gives the same answer.
        cores: processes; None = all.

    Raises:
        ForecastError: the strategy cannot be forecast.
    """
    forecast = forecast_strategy(scenario=scenario, name=name)
    if not forecast.document["feasible"]:
        return {"schema_version": SCHEMA_VERSION, "name": name, "feasible": False, "memory": forecast.document}
    plan = plan_of(scenario=scenario, name=name, forecast=forecast)
    chunks = simulate_chunks(plan=plan, replications=replications, seed=seed, cores=cores)
    step = forecast.document["step_s"]
    sigma = float(np.log(step["p90"] / step["p50"]) / 1.2815515655446004)
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": forecast.document["scenario_hash"],
        "versions": forecast.document["versions"],
        "seed": seed,
        "name": name,
        "feasible": True,
        "replications": replications,
        **summary(plan=plan, chunks=chunks, step_sigma=sigma, seed=seed),
        "goals": _goals(scenario=scenario, forecast=forecast, chunks=chunks, sigma=sigma, seed=seed),
        "closed_form": {k: forecast.document[k] for k in ("days", "goodput", "interruptions")},
    }


def plan_of(*, scenario: Scenario, name: str, forecast: Forecast) -> RunPlan:
    """The run of a forecast strategy."""
    strategy = scenario.strategies[name]
    if not isinstance(strategy, Strategy):
        raise TypeError(f"strategy {name} is not resolved")
    return run_plan(
        scenario=scenario,
        strategy=strategy,
        layout=forecast.resolved.layout,
        step_s=forecast.answer.effective_s,
        optimisations=forecast.answer.applied,
    )


def elapsed_days(*, chunks: Sequence[RunSamples], step_sigma: float, seed: int) -> NDArray[np.float64]:
    """Days of every replication, each with its own draw of the step's uncertainty (log-normal)."""
    days = np.concatenate([c.elapsed_s for c in chunks]) / DAY_S
    factors = np.exp(step_sigma * np.random.default_rng([seed, 7]).standard_normal(days.size))
    return np.asarray(days * factors)


def summary(*, plan: RunPlan, chunks: Sequence[RunSamples], step_sigma: float, seed: int) -> dict[str, Any]:
    """Quantiles and means over replications."""
    elapsed = np.concatenate([c.elapsed_s for c in chunks])
    productive = np.concatenate([c.productive_s for c in chunks])
    losses = np.concatenate([c.losses_s for c in chunks])
    counts = np.concatenate([c.counts for c in chunks])
    node_s = np.concatenate([c.node_s for c in chunks])
    finished = np.concatenate([c.finished for c in chunks])
    goodput = productive / elapsed
    total = elapsed.sum()
    failures = counts[:, : COUNTED.index("planned")].sum(axis=1)
    gpu_hours = node_s * plan.gpus_per_node / 3600
    useful = productive * plan.nodes * plan.gpus_per_node / 3600
    return {
        "days": _quantiles(elapsed_days(chunks=chunks, step_sigma=step_sigma, seed=seed)),
        "days_without_step_uncertainty": _quantiles(elapsed / DAY_S),
        "fan": _fan(elapsed_days(chunks=chunks, step_sigma=step_sigma, seed=seed)),
        "finished_frac": float(finished.mean()),
        "interruptions": {
            **_quantiles(failures),
            "mean": float(failures.mean()),
            "by_cause": {c: float(counts[:, i].mean()) for i, c in enumerate(COUNTED)},
        },
        "goodput": {**_quantiles(goodput), "mean": float(productive.sum() / total)},
        "losses_frac": {c: float(losses[:, i].sum() / total) for i, c in enumerate(LOSSES)},
        "gpu_hours": _quantiles(gpu_hours),
        "wasted_gpu_hours": _quantiles(gpu_hours - useful),
        "recovery_s": plan.recovery_s,
        "checkpoint_interval_s": plan.interval_s if np.isfinite(plan.interval_s) else None,
        "utilization_over_time": _utilization(chunks),
        "on_demand_days": float(np.concatenate([c.on_demand_s for c in chunks]).mean() / DAY_S),
    }


def _quantiles(values: NDArray[np.float64]) -> dict[str, float]:
    found = np.quantile(values, QUANTILES)
    return {f"p{round(100 * q)}": float(v) for q, v in zip(QUANTILES, found, strict=True)}


def _fan(days: NDArray[np.float64]) -> list[dict[str, float]]:
    """Chance of being through by a day."""
    shares = np.linspace(0.01, 0.99, 50)
    return [{"days": float(d), "probability": float(p)} for d, p in zip(np.quantile(days, shares), shares, strict=True)]


def _utilization(chunks: Sequence[RunSamples]) -> list[dict[str, float]]:
    weights = [c.elapsed_s.size for c in chunks]
    mean = np.average([c.utilization for c in chunks], axis=0, weights=weights)
    width = chunks[0].bin_s / DAY_S
    return [{"day": (i + 0.5) * width, "productive_frac": float(mean[i])} for i in range(BINS) if mean[i] > 0]


def _goals(
    *, scenario: Scenario, forecast: Forecast, chunks: Sequence[RunSamples], sigma: float, seed: int
) -> Mapping[str, Any]:
    deadline = scenario.goals.deadline_days
    days = elapsed_days(chunks=chunks, step_sigma=sigma, seed=seed)
    late = None if deadline is None else float((days > deadline).mean())
    missed = misses(scenario=scenario, document={**forecast.document, "p_late": late})
    return {
        "deadline_days": deadline,
        "p_late": late,
        "days_at_probability": float(np.quantile(days, scenario.goals.probability)),
        "missed": {goal: words for goal, (_, words) in missed.items()},
    }


def checkpoint_curve(*, plan: RunPlan, factors: Sequence[float] = (0.25, 0.5, 1, 2, 4, 8)) -> list[dict[str, float]]:
    """Goodput in closed form at multiples of the plan's checkpoint interval."""
    from planner.simulate.run.closed_form import expected_run

    if not np.isfinite(plan.interval_s):
        return []
    out = []
    for factor in factors:
        found = expected_run(plan=replace(plan, interval_s=plan.interval_s * factor))
        out.append({"interval_s": plan.interval_s * factor, "goodput": found.goodput})
    return out
