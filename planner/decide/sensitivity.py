"""Which input moves the answer: tornado, Sobol indices, what to measure next, where the verdict flips."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from planner import SCHEMA_VERSION, __version__
from planner.decide.compare import compare
from planner.decide.spread import ONE_CORE, Job, Table, Where, fingerprint, spread
from planner.decide.uncertain import METRICS, Floats, Input, Response, draws, response_of
from planner.forecast import Forecast, ForecastError, forecast_strategy
from planner.scenario import Scenario

Z80 = 1.2815515655446004
BASE_SAMPLES = 1024  # of the Saltelli scheme; (inputs + 2) times as many evaluations
CUT_SIGMAS = 2.33  # draws stay between P1 and P99: nobody goes on with a job that fails a hundred times a day
FLIP_SIGMAS = 3.0  # values further out are not called a flip
FLIP_STEPS = 60
BLOCK = 1024  # draws of a task
DRAW_S = 6e-5
SEED = 0


def sensitivity(
    *,
    scenario: Scenario,
    strategy: str | None = None,
    metric: str = "days",
    samples: int = BASE_SAMPLES,
    seed: int = SEED,
    where: Where = ONE_CORE,
) -> dict[str, Any]:
    """The answer `sensitivity` of contract 4.

    One forecast by the fast engine, taken apart into a cheap function of its inputs (`planner.decide.uncertain`).

    Args:
        scenario: with every strategy resolved.
        strategy: the one looked at; the last by default.
        metric: days, cost or step.
        samples: base samples of the Sobol scheme, a power of two.
        seed: of its scrambling.
        where: on which workers, into which file.

    Raises:
        ForecastError: an unknown strategy or metric, samples that are no power of two, or the strategy cannot be
            forecast.
        SpreadError: the workers or the file of `where` cannot be used.
    """
    name = strategy or list(scenario.strategies)[-1]
    if name not in scenario.strategies:
        raise ForecastError(f"no strategy {name!r}; known: {', '.join(scenario.strategies)}")
    if metric not in METRICS:
        raise ForecastError(f"unknown metric {metric!r}; known: {', '.join(METRICS)}")
    if samples < 2 or samples & (samples - 1):
        raise ForecastError(f"{samples} samples are no power of two; nearest: {1 << max(1, samples.bit_length() - 1)}")
    forecast = forecast_strategy(scenario=scenario, name=name, engine="fast")
    response = response_of(scenario=scenario, forecast=forecast)
    moving = [i for i in response.inputs if i.sigma > 0 and _moves(response, i, metric)]
    if not moving:
        raise ForecastError(f"nothing uncertain moves {metric}: every input is stated as known")
    indices, values = _sobol(response=response, inputs=moving, metric=metric, samples=samples, seed=seed, where=where)
    best, flips = _flips(scenario=scenario, metric=metric)
    p10, p50, p90 = (float(q) for q in np.quantile(values, (0.1, 0.5, 0.9)))
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": {"planner": __version__, "profile": scenario.cluster.profile, "catalog": "2026-12-01"},
        "seed": seed,
        "strategy": name,
        "metric": metric,
        "unit": METRICS[metric],
        "feasible": forecast.document["feasible"],
        "value": {"forecast": float(response({}, metric)[0]), "p10": p10, "p50": p50, "p90": p90},
        "inputs": [
            {
                "input": i.key,
                "value": i.value,
                "unit": i.unit,
                "p10": i.at(-Z80),
                "p90": i.at(Z80),
                "label": i.label,
                "moves": i in moving,
            }
            for i in response.inputs
        ],
        "tornado": tornado(response=response, inputs=moving, metric=metric),
        "sobol": indices,
        "measure_next": _measure_next(
            response=response, inputs=moving, metric=metric, indices=indices, samples=samples, seed=seed
        ),
        "verdict": best,
        "flips_at": flips,
    }


def _moves(response: Response, one: Input, metric: str) -> bool:
    ends = response({one.key: np.array([-1.0, 1.0])}, metric)
    return bool(abs(ends[1] - ends[0]) > 1e-9 * abs(ends[0]))


def tornado(*, response: Response, inputs: Sequence[Input], metric: str) -> list[dict[str, Any]]:
    """The metric with each input at its P10 and P90, the others at P50; the widest first."""
    rows = []
    for one in inputs:
        low, high = (float(v) for v in response({one.key: np.array([-Z80, Z80])}, metric))
        rows.append({"input": one.key, "low": low, "high": high})
    return sorted(rows, key=lambda r: -abs(r["high"] - r["low"]))


def _sobol(
    *, response: Response, inputs: Sequence[Input], metric: str, samples: int, seed: int, where: Where
) -> tuple[list[dict[str, Any]], Floats]:
    """First-order and total indices (Saltelli et al. 2010, as scipy has it) and the values of the base sample.

    They are of the logarithm of the metric: a few draws of a failure rate that is known within a factor of nine would
    otherwise make up the whole variance. For the same reason draws are cut at P1 and P99.
    """
    from scipy.stats import sobol_indices

    names = [i.key for i in inputs]
    a, b = _matrices(count=len(inputs), samples=samples, seed=seed)
    matrices = {"a": a, "b": b}
    for i, name in enumerate(names):
        matrices[f"a-{name}"] = np.where(np.arange(len(names))[:, None] == i, b, a)
    job = Job(
        function=evaluated,
        tasks={
            f"{name}-{first:08d}": (response, tuple(inputs), metric, name, z[:, first : first + BLOCK])
            for name, z in matrices.items()
            for first in range(0, samples, BLOCK)
        },
        kinds={"matrix": "str", **dict.fromkeys(names, "float"), metric: "float"},
        identity={
            "job": "sensitivity",
            "metric": metric,
            "samples": samples,
            "seed": seed,
            "inputs": fingerprint(response, names),
        },
        expected_s=samples * len(matrices) * DRAW_S,
    )
    parts: dict[str, list[Floats]] = {name: [] for name in matrices}
    for table in spread(job=job, where=where).values():
        parts[table["matrix"][0]].append(np.asarray(table[metric]))
    values = {name: np.concatenate(rows) for name, rows in parts.items()}
    logs = {name: np.log(v) for name, v in values.items()}
    found = sobol_indices(
        func={
            "f_A": logs["a"][None, :],
            "f_B": logs["b"][None, :],
            "f_AB": np.stack([logs[f"a-{name}"][None, :] for name in names]),
        },
        n=samples,
    )
    rows = [
        {"input": name, "first": float(first), "total": float(total)}
        for name, first, total in zip(names, found.first_order, found.total_order, strict=True)
    ]
    return sorted(rows, key=lambda r: -float(str(r["total"]))), values["a"]


def _matrices(*, count: int, samples: int, seed: int) -> tuple[Floats, Floats]:
    """Two independent samples of the cut standard normal of every input, each of shape (count, samples)."""
    from scipy.stats import qmc, truncnorm

    points = qmc.Sobol(d=2 * count, rng=np.random.default_rng(seed), bits=64).random(samples).T
    normal = np.asarray(truncnorm(-CUT_SIGMAS, CUT_SIGMAS).ppf(points))
    return normal[:count], normal[count:]


def evaluated(response: Response, inputs: Sequence[Input], metric: str, matrix: str, z: Floats) -> Table:
    """A block of draws, shape (inputs, n): each input's value and the metric."""
    drawn = draws(inputs=inputs, z=z)
    return {
        "matrix": [matrix] * z.shape[1],
        **{i.key: i.value * np.exp(i.sigma * drawn[i.key]) for i in inputs},
        metric: response(drawn, metric),
    }


def _measure_next(
    *,
    response: Response,
    inputs: Sequence[Input],
    metric: str,
    indices: Sequence[dict[str, Any]],
    samples: int,
    seed: int,
) -> dict[str, Any] | None:
    """The measurable input whose knowledge narrows the P10-P90 width most, with the width that is left after each.

    `variance_share` is its first-order index: the share of variance expected to go (Saltelli et al. 2008).
    """
    from scipy.stats import truncnorm

    can = [i for i in inputs if i.measure]
    if not can:
        return None
    size = (len(inputs), samples)
    z = truncnorm.rvs(-CUT_SIGMAS, CUT_SIGMAS, size=size, random_state=np.random.default_rng([seed, 1]))
    every = draws(inputs=inputs, z=z)

    def width(known: str | None) -> float:
        left = {k: v for k, v in every.items() if k != known}
        low, high = np.quantile(response(left, metric), (0.1, 0.9))
        return float(high - low)

    after = {i.key: width(i.key) for i in can}
    chosen = min(can, key=lambda i: after[i.key])
    share = {r["input"]: r["first"] for r in indices}
    return {
        "input": chosen.key,
        "how": chosen.measure,
        "variance_share": share[chosen.key],
        "width_before": width(None),
        "width_after": after[chosen.key],
        "others": [{"input": k, "width_after": v} for k, v in sorted(after.items(), key=lambda kv: kv[1])],
    }


def _flips(*, scenario: Scenario, metric: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The verdict among the strategies and where it flips.

    Straight-line crossings of size, price, engineering and runs from `compare`; then, for the metric, each uncertain
    input within three standard deviations of its value, moved for both strategies alike.
    """
    written = [n for n, s in scenario.strategies.items() if not isinstance(s, str)]
    if len(written) < 2:
        return None, []
    found = compare(scenario=scenario, engine="fast")
    verdict = dict(found.document["verdict"])
    flips = [dict(f) for f in found.document["flips_at"]]
    fits: dict[str, Forecast] = {n: f for n, f in found.forecasts.items() if f.resolved.fits}
    if len(fits) < 2:
        return verdict, flips
    functions = {n: response_of(scenario=scenario, forecast=f) for n, f in fits.items()}
    at_base = {n: float(r({}, metric)[0]) for n, r in functions.items()}
    best = min(at_base, key=lambda n: at_base[n])
    verdict["best_by_metric"] = best
    grid = np.linspace(-FLIP_SIGMAS, FLIP_SIGMAS, 2 * FLIP_STEPS + 1)
    for name, other in functions.items():
        if name != best:
            flips += _crossings(best=functions[best], other=other, metric=metric, grid=grid)
    return verdict, flips


def _crossings(*, best: Response, other: Response, metric: str, grid: Floats) -> list[dict[str, Any]]:
    out = []
    for one in best.inputs:
        # An input is the same fact for both only where it is a property of cluster and market, not of the plan.
        if one.sigma <= 0 or one.key in {"step_model", "engineering"}:
            continue
        gap = other({one.key: grid}, metric) - best({one.key: grid}, metric)
        lost = np.flatnonzero(gap < 0)
        if not len(lost):
            continue
        nearest = lost[np.argmin(np.abs(grid[lost]))]
        before = nearest + (1 if grid[nearest] < 0 else -1)
        share = gap[before] / (gap[before] - gap[nearest])
        z = float(grid[before] + share * (grid[nearest] - grid[before]))
        side = "below" if z < 0 else "above"
        out.append(
            {
                "input": f"{one.key} ({one.unit}) {side} which {other.name} has the lower {metric}",
                "value": one.at(z),
                "sigmas": z,
            }
        )
    return out
