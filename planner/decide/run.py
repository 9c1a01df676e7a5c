"""Many replications of a strategy's run: the fan of finish dates, losses, interruptions and wasted hours."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import SCHEMA_VERSION
from planner.decide.goals import misses
from planner.decide.spread import ONE_CORE, Job, Table, Where, fingerprint, spread
from planner.forecast import Forecast, forecast_strategy
from planner.scenario import Scenario, Strategy
from planner.simulate.run.fleet import BINS, RATE_Z, RunSamples, simulate_runs
from planner.simulate.run.plan import COUNTED, LOSSES, RunPlan
from planner.simulate.run.setup import run_plan

DAY_S = 86_400.0
# Replications of one generator: fewer are not much quicker (a chunk is as long as its unluckiest run), more leave cores
# idle. The cut depends on the replications alone, so the answer does not depend on the number of cores.
CHUNK, LARGEST_CHUNK, CHUNKS = 500, 4000, 8
# Seconds of a chunk for each failure of its unluckiest run, roughly.
FAILURE_S = 1e-3
QUANTILES = (0.1, 0.5, 0.9)
COLUMNS = ("elapsed_s", "productive_s", "node_s", "on_demand_s", "finished")
KINDS = {
    **dict.fromkeys(COLUMNS, "float"),
    "finished": "bool",
    **{f"loss_{c}_s": "float" for c in LOSSES},
    **{f"count_{c}": "float" for c in COUNTED},
    "bin_s": "float",
    "utilization": "floats",
}


def simulate_chunks(*, plan: RunPlan, replications: int, seed: int, where: Where = ONE_CORE) -> list[RunSamples]:
    """`simulate_runs` in chunks; the same answer wherever they run.

    Raises:
        SpreadError: the workers or the file of `where` cannot be used.
    """
    size = min(LARGEST_CHUNK, max(CHUNK, math.ceil(replications / CHUNKS)))
    sizes = [min(size, replications - i) for i in range(0, replications, size)]
    seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(len(sizes))]
    unluckiest = plan.failures_per_s * plan.work_s * math.exp(RATE_Z * max(plan.node_sigma, plan.job_sigma))
    job = Job(
        function=_replications,
        tasks={f"{i:04d}": (plan, n, s) for i, (n, s) in enumerate(zip(sizes, seeds, strict=True))},
        kinds=KINDS,
        identity={"job": "run", "replications": replications, "seed": seed, "inputs": fingerprint(plan)},
        expected_s=len(sizes) * FAILURE_S * unluckiest,
    )
    return [_samples(table) for table in spread(job=job, where=where).values()]


def _replications(plan: RunPlan, replications: int, seed: int) -> Table:
    """A chunk as rows; what is of the whole chunk stands in its first row."""
    found = simulate_runs(plan=plan, replications=replications, seed=seed)
    rest = [None] * (replications - 1)
    return {
        **{c: getattr(found, c) for c in COLUMNS},
        **{f"loss_{c}_s": found.losses_s[:, i] for i, c in enumerate(LOSSES)},
        **{f"count_{c}": found.counts[:, i] for i, c in enumerate(COUNTED)},
        "bin_s": [found.bin_s, *rest],
        "utilization": [found.utilization.tolist(), *rest],
    }


def _samples(table: Table) -> RunSamples:
    return RunSamples(
        **{c: np.asarray(table[c]) for c in COLUMNS},
        losses_s=np.stack([table[f"loss_{c}_s"] for c in LOSSES], axis=1),
        counts=np.stack([table[f"count_{c}"] for c in COUNTED], axis=1),
        bin_s=table["bin_s"][0],
        utilization=np.asarray(table["utilization"][0]),
    )


def run_document(
    *, scenario: Scenario, name: str, replications: int = 1000, seed: int = 0, where: Where = ONE_CORE
) -> dict[str, Any]:
    """Answer `run` of contract 4.

    Args:
        scenario: with every strategy resolved.
        name: the strategy.
        replications: how many runs.
        seed: the same seed gives the same answer.
        where: on which workers, into which file.

    Raises:
        ForecastError: the strategy cannot be forecast.
        SpreadError: the workers or the file of `where` cannot be used.
    """
    forecast = forecast_strategy(scenario=scenario, name=name)
    if not forecast.document["feasible"]:
        return {"schema_version": SCHEMA_VERSION, "name": name, "feasible": False, "memory": forecast.document}
    plan = plan_of(scenario=scenario, name=name, forecast=forecast)
    chunks = simulate_chunks(plan=plan, replications=replications, seed=seed, where=where)
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
