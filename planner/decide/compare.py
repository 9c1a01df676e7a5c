"""Strategies of one scenario side by side: differences with cause, decision table, verdict and what flips it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner import SCHEMA_VERSION, __version__
from planner.decide.relax import relaxed
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
    ("interruptions", "interruptions", "count", ("interruptions",)),
    ("energy", "energy", "kWh", ("energy_kwh",)),
    ("carbon", "carbon", "t", ("carbon_t",)),
    ("cost_compute", "machines", "USD", ("cost_usd", "compute")),
    ("cost_network", "network", "USD", ("cost_usd", "network")),
    ("cost_storage", "storage", "USD", ("cost_usd", "storage")),
    ("cost_power", "electricity", "USD", ("cost_usd", "power")),
    ("cost_facility", "facility", "USD", ("cost_usd", "facility")),
    ("cost_support", "managed service", "USD", ("cost_usd", "support")),
    ("labour", "labour", "USD", ("cost_usd", "people")),
    ("cost", "total cost", "USD", ("cost_usd_total", "p50")),
    ("cost_p90", "total cost, nine in ten runs", "USD", ("cost_usd_total", "p90")),
    ("useful_hour", "cost of a useful GPU-hour", "USD", ("cost_usd_per_useful_gpu_hour",)),
    ("tokens_cost", "cost of a million tokens", "USD", ("cost_usd_per_million_tokens",)),
    ("calendar_weeks", "engineering before the start", "week", ("engineering_calendar_weeks",)),
    ("upkeep", "upkeep over the programme", "USD", ("programme", "upkeep")),
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
    docs = {n: {**f.document, "relax": relaxed(scenario=scenario, forecast=f)} for n, f in forecasts.items()}
    table = [
        {"criterion": key, "text": text, "unit": unit, "values": {n: dig(docs[n], path) for n in names}}
        for key, text, unit, path in CRITERIA
    ]
    delta = _delta(docs=docs, names=names)
    verdict, flips = _verdict(scenario=scenario, docs=docs, names=names)
    document = {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": {"planner": __version__, "profile": scenario.cluster.profile, "catalog": "2026-12-01"},
        "seed": 0,
        "strategies": docs,
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
    lasting = min(feasible, key=lambda n: docs[n]["programme_usd"])
    if lasting != best:
        reasons.append(f"over the programme {lasting} costs least: {docs[lasting]['programme_usd']:,.0f} USD")
    flips = [
        flip
        for other in feasible
        if other != best
        for flip in _flips(best=best, other=other, a=docs[best], b=docs[other], scenario=scenario)
    ]
    return {"choice": best, "fastest": fastest, "cheapest_programme": lasting, "reasons": reasons}, flips


def _flips(
    *, best: str, other: str, a: Mapping[str, Any], b: Mapping[str, Any], scenario: Scenario
) -> list[dict[str, Any]]:
    """At which value of an input `other` (b) becomes the cheaper one, all else equal.

    A run costs machine x size + engineering, a programme runs x (machine with experiments) + engineering and its
    upkeep: each verdict flips where the two straight lines cross.
    """
    once_a, once_b = a["people_usd"]["engineering"], b["people_usd"]["engineering"]
    run_a, run_b = a["cost_usd_total"]["p50"] - once_a, b["cost_usd_total"]["p50"] - once_b
    out: list[dict[str, Any]] = []

    def add(text: str, value: float | None) -> None:
        if value is not None and value > 0:
            out.append({"input": text, "value": value})

    side = "below" if once_a > once_b else "above"
    size = _crossing(fixed=once_a - once_b, slope=run_b - run_a)
    add(f"tokens trained (share of the plan) {side} which {other} is cheaper", size)
    if scenario.pricing.tenure != "own":
        hours_a, hours_b = (d["cost_usd"]["compute"] / d["price"]["usd_per_gpu_hour"] for d in (a, b))
        rest_a, rest_b = (d["cost_usd_total"]["p50"] - d["cost_usd"]["compute"] for d in (a, b))
        price = _crossing(fixed=rest_a - rest_b, slope=hours_b - hours_a)
        add(f"price of a GPU-hour (USD) {'below' if hours_a < hours_b else 'above'} which {other} is cheaper", price)
    if once_a > 0:
        add(f"engineering of {best} (USD) above which {other} is cheaper", once_b + run_b - run_a)
    if once_b > 0:
        add(f"engineering of {other} (USD) below which it is cheaper", once_a + run_a - run_b)
    runs = scenario.programme.runs_per_year * scenario.programme.years
    per_a, per_b = ((d["programme"]["final_runs"] + d["programme"]["experiments"]) / runs for d in (a, b))
    fixed_a, fixed_b = (d["programme_usd"] - per * runs for d, per in ((a, per_a), (b, per_b)))
    add(
        f"runs in the programme {'below' if fixed_a > fixed_b else 'above'} which {other} is cheaper",
        _crossing(fixed=fixed_a - fixed_b, slope=per_b - per_a),
    )
    gain = b["days_ideal"] / a["days_ideal"]
    add(f"step time of {best} (factor on forecast) at which {other} is as fast", gain)
    return out


def _crossing(*, fixed: float, slope: float) -> float | None:
    """Where fixed - slope x = 0; None for lines that do not cross at a positive x."""
    return fixed / slope if slope and fixed / slope > 0 else None
