"""Strategies of one scenario side by side: differences with cause, decision table, verdict and what flips it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner import SCHEMA_VERSION, __version__
from planner.forecast import Forecast, forecast_strategy
from planner.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Comparison:
    """Forecasts by strategy name and the answer drawn from them."""

    forecasts: Mapping[str, Forecast]
    document: Mapping[str, Any]

    @property
    def feasible(self) -> bool:
        """Whether any strategy fits."""
        return any(f.resolved.fits for f in self.forecasts.values())


CRITERIA: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    # id, words, unit, path in the forecast document
    ("step", "step time", "s", ("step_s", "p50")),
    ("throughput", "tokens per second per GPU", "token/s", ("tokens_per_s_per_gpu",)),
    ("mfu", "model FLOP utilisation", "1", ("mfu",)),
    ("scaling", "scaling efficiency", "1", ("scaling_efficiency", "value")),
    ("comm_wait", "waiting for communication", "1", ("utilization", "comm_wait_frac")),
    ("bubble", "pipeline bubble", "s", ("breakdown_s", "bubble")),
    ("memory", "peak memory", "GB", ("memory_gb", "peak")),
    ("utilization", "GPUs paid and productive", "1", ("utilization", "paid_frac")),
    ("recovery", "recovery time", "s", ("recovery_s",)),
    ("goodput", "goodput", "1", ("goodput",)),
    ("days", "days to the last token", "day", ("days", "p50")),
    ("days_p90", "days, nine in ten runs", "day", ("days", "p90")),
    ("gpu_hours", "GPU-hours", "GPU-h", ("gpu_hours",)),
    ("energy", "energy", "kWh", ("energy_kwh",)),
    ("labour", "labour", "USD", ("cost_usd", "people")),
    ("cost", "total cost", "USD", ("cost_usd_total", "p50")),
    ("long_term", "cost over the programme", "USD", ("programme_usd",)),
)


def dig(document: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value at a path, None where a step is missing."""
    value: Any = document
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def compare(*, scenario: Scenario, engine: str = "events") -> Comparison:
    """Forecast every strategy of a scenario and draw the answer.

    Raises:
        ForecastError: a strategy cannot be forecast as written.
    """
    forecasts = {name: forecast_strategy(scenario=scenario, name=name, engine=engine) for name in scenario.strategies}
    names = list(forecasts)
    docs = {n: f.document for n, f in forecasts.items()}
    table = [
        {"criterion": key, "text": text, "unit": unit, "values": {n: dig(docs[n], path) for n in names}}
        for key, text, unit, path in CRITERIA
    ]
    delta = _delta(docs=docs, names=names)
    verdict, flips = _verdict(scenario=scenario, docs=docs, names=names)
    document = {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": {"planner": __version__, "profile": None, "catalog": "2026-12-01"},
        "seed": 0,
        "strategies": {n: dict(d) for n, d in docs.items()},
        "delta": delta,
        "decision_table": table,
        "verdict": verdict,
        "flips_at": flips,
    }
    return Comparison(forecasts, document)


def _delta(*, docs: Mapping[str, Mapping[str, Any]], names: list[str]) -> dict[str, Any]:
    if len(names) < 2:
        return {}
    a, b = docs[names[0]], docs[names[1]]
    out = {}
    for key, _, _, path in CRITERIA:
        left, right = dig(a, path), dig(b, path)
        if isinstance(left, int | float) and isinstance(right, int | float):
            out[key] = {"a": left, "b": right, "diff": right - left, "why": _why(a=a, b=b)}
    return out


def _why(*, a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """The two breakdown parts (per token) that differ most."""
    parts_a, parts_b = a["breakdown_s"], b["breakdown_s"]
    moves = sorted(((parts_b[k] - parts_a[k], k) for k in parts_a), key=lambda x: -abs(x[0]))[:2]
    return ", ".join(f"{k} {'+' if d >= 0 else ''}{d:.3g} s" for d, k in moves)


def _verdict(
    *, scenario: Scenario, docs: Mapping[str, Mapping[str, Any]], names: list[str]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    feasible = [n for n in names if docs[n]["feasible"]]
    if not feasible:
        short = {n: f"needs {docs[n]['memory_over_gb']:.1f} GB more on the fullest rank" for n in names}
        return {"choice": None, "reasons": [f"{n} {why}" for n, why in short.items()]}, []
    best = min(feasible, key=lambda n: (docs[n]["cost_usd_total"]["p50"], docs[n]["days"]["p50"]))
    fastest = min(feasible, key=lambda n: docs[n]["days"]["p50"])
    reasons = []
    for other in names:
        if other == best:
            continue
        if other not in feasible:
            reasons.append(f"{other} does not fit: {docs[other]['memory_over_gb']:.1f} GB over on the fullest rank")
            continue
        saved = docs[other]["cost_usd_total"]["p50"] - docs[best]["cost_usd_total"]["p50"]
        days = docs[other]["days"]["p50"] - docs[best]["days"]["p50"]
        reasons.append(
            f"{best} costs {saved:,.0f} USD less than {other} and ends {abs(days):.1f} days "
            + ("earlier" if days >= 0 else "later")
        )
        overlap = (
            docs[best]["step_s"]["p90"] > docs[other]["step_s"]["p10"]
            and docs[best]["step_s"]["p10"] < docs[other]["step_s"]["p90"]
        )
        if overlap:
            reasons.append("the two P10-P90 bands of the step overlap: treat this as likely, not sure")
    if fastest != best:
        reasons.append(f"{fastest} is the faster one")
    return {"choice": best, "fastest": fastest, "reasons": reasons}, _flips(
        docs=docs, names=names, best=best, feasible=feasible
    )


def _flips(
    *, docs: Mapping[str, Mapping[str, Any]], names: list[str], best: str, feasible: list[str]
) -> list[dict[str, Any]]:
    """At which value of an input the cheaper strategy changes, all else equal."""
    out: list[dict[str, Any]] = []
    for other in feasible:
        if other == best:
            continue
        a, b = docs[best], docs[other]
        saved_compute = (b["cost_usd_total"]["p50"] - b["cost_usd"]["people"]) - (
            a["cost_usd_total"]["p50"] - a["cost_usd"]["people"]
        )
        extra_people = a["cost_usd"]["people"] - b["cost_usd"]["people"]
        if saved_compute > 0 and extra_people > 0:
            out.append(
                {
                    "input": f"tokens trained (share of the plan) below which {other} is cheaper",
                    "value": extra_people / saved_compute,
                }
            )
            out.append(
                {
                    "input": f"labour of {best} (USD) above which {other} is cheaper",
                    "value": a["cost_usd"]["people"] + saved_compute - extra_people,
                }
            )
        gain = b["step_s"]["p50"] / a["step_s"]["p50"]
        out.append({"input": f"step time of {best} (factor on forecast) at which {other} is as fast", "value": gain})
    return out
