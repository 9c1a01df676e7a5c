"""Folklore put to the test: a sentence, the figure that decides it, and the cases that the model works out for it.

A claim is a YAML file: `id`, `sentence`, `origin`, `story`, `figure`, `as` (value, ratio or saving of `after` against
`before`), `holds` (`above`, `below` or `between`) and `cases` (label -> settings). It holds where its figure lies
inside; a claim that holds in some cases only is answered with those cases.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, median
from typing import Any

from planner.catalog.optimisations import optimisation
from planner.catalog.tables import rows
from planner.decide.compare import dig
from planner.decide.roadmap import roadmap
from planner.forecast import forecast_strategy, machine_for
from planner.scenario import Scenario, ScenarioError, Strategy, load_scenario
from planner.scenario.reader import plain, read_yaml
from planner.simulate.stack_step import least_recompute, stack_step
from planner.workload.transforms import apply

Z80 = 1.2815515655446004
STORIES = ("stack-or-engineer", "operator-or-glue", "incremental-or-structural")
KEYS = {"id", "sentence", "origin", "story", "conditions", "scenario", "figure", "as", "holds", "cases", "unit", "note"}
NEEDED = KEYS - {"conditions", "note", "scenario", "unit"}
WEEKS_PER_MONTH = 52 / 12
SECONDS_PER_DAY = 86_400.0


class ClaimError(ValueError):
    """A claim that cannot be read or worked out."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence and how it is decided.

    Attributes:
        figure: dotted path in the forecast, or one of the prefixes `derived`, `gain`, `roadmap`, `history`, `catalog`.
        mode: value, ratio (after over before) or saving (1 - ratio).
        low: the figure must be at least this.
        high: and at most this.
        cases: settings by label.
        story: the question that it belongs to, one of `STORIES`.
    """

    id: str
    sentence: str
    origin: str
    conditions: str
    figure: str
    mode: str
    low: float
    high: float
    cases: Mapping[str, Mapping[str, Any]]
    base: Path | None
    folder: Path
    note: str
    unit: str
    story: str


def _bounds(holds: Mapping[str, Any]) -> tuple[float, float]:
    if "between" in holds:
        low, high = holds["between"]
        return float(low), float(high)
    return float(holds.get("above", -math.inf)), float(holds.get("below", math.inf))


def read_claim(path: Path) -> Claim:
    """One claim file.

    Raises:
        ClaimError: not YAML, keys that are missing or unknown, or bounds that are none.
    """
    try:
        data, issues = read_yaml(text=path.read_text("utf-8"), file=str(path))
    except OSError as error:
        raise ClaimError(f"cannot read {path}: {error.strerror}") from error
    except ScenarioError as error:
        raise ClaimError(str(error)) from error
    if issues:
        raise ClaimError(f"{path}:{issues[0].line}: {issues[0].message}")
    found = plain(data)
    wrong = sorted(set(found) - KEYS) + sorted(f"{k} is missing" for k in NEEDED - set(found))
    if wrong:
        raise ClaimError(f"{path}: {', '.join(wrong)}")
    low, high = _bounds(found["holds"])
    if not low < high:
        raise ClaimError(f"{path}: holds {found['holds']} excludes everything")
    if found["story"] not in STORIES:
        raise ClaimError(f"{path}: story {found['story']!r}; known: {', '.join(STORIES)}")
    base = found.get("scenario")
    return Claim(
        id=found["id"],
        sentence=found["sentence"],
        origin=found["origin"],
        conditions=found.get("conditions", ""),
        figure=found["figure"],
        mode=found["as"],
        low=low,
        high=high,
        cases=found["cases"],
        base=path.parent / base if base else None,
        folder=path.parent,
        note=found.get("note", ""),
        unit=found.get("unit", "1"),
        story=found["story"],
    )


def _scenario(*, claim: Claim, settings: Mapping[str, Any]) -> tuple[Scenario, str]:
    """The base scenario with a case's settings (`dotted.key: value`), and the strategy that is looked at."""
    source = settings.get("scenario")
    path = claim.folder / source if source else claim.base
    if path is None:
        raise ClaimError(f"{claim.id}: no scenario")
    data = load_scenario(path).model_dump(mode="json")
    for key, value in (settings.get("set") or {}).items():
        block = data
        *outer, last = key.split(".")
        for part in outer:
            block = block[part]
        block[last] = value
    scenario = Scenario.model_validate(data)
    return scenario, settings.get("strategy") or next(iter(scenario.strategies))


def _derived(*, name: str, doc: Mapping[str, Any], scenario: Scenario) -> float:
    """Figures that follow from those of a forecast."""
    days = doc["days"]
    kw = doc["energy_kwh"] / (days["p50"] * 24)
    sigma = math.log(days["p90"] / days["p50"]) / Z80
    figures = {
        "people_share": doc["cost_usd"]["people"] / doc["cost_usd_total"]["p50"],
        "power_kw": kw,
        "power_usd_per_year": kw * 8760 * doc["electricity"]["usd_per_kwh"],
        "hours_between_interruptions": days["p50"] * 24 / max(doc["interruptions"], 1e-12),
        "p_late_on_ideal_days": 1 - NormalDist().cdf(math.log(doc["days_ideal"] / days["p50"]) / sigma),
        "reserve_frac": doc["memory_gb"]["reserved"] / doc["memory_gb"]["capacity"],
        "free_frac": 1 - (doc["memory_gb"]["peak"] + doc["memory_gb"]["reserved"]) / doc["memory_gb"]["capacity"],
        "wire_s_all_gpus": max(doc["link_busy_s"].values()) * scenario.gpus,
        "useful_frac": doc["utilization"]["compute_busy_frac"] * doc["goodput"],
    }
    if name not in figures:
        raise ClaimError(f"unknown figure derived.{name}; known: {', '.join(figures)}")
    return float(figures[name])


def _gain(*, keys: Sequence[str], scenario: Scenario, strategy: str) -> float:
    """Share of the step that optimisations save together on a strategy; zero where they cannot be done."""
    chosen = scenario.strategies[strategy]
    if not isinstance(chosen, Strategy):
        raise ClaimError(f"strategy {strategy!r} has no named degrees")
    forecast = forecast_strategy(scenario=scenario, name=strategy, engine="fast")
    stack = forecast.stack
    network = machine_for(scenario=scenario, resolved=forecast.resolved, gpus=scenario.gpus).network
    after = stack
    for key in keys:
        try:
            after = apply(key=key, stack=after)
        except ValueError:
            continue
        if chosen.recompute is None:
            after = least_recompute(after)
    old, new = (stack_step(stack=s, network=network).effective_s for s in (stack, after))
    return 1 - new / old


def _history(*, name: str, first: int, last: int) -> float:
    """Figures of the packaged speedrun history between two records."""
    table = {int(r["record"]): r for r in rows("speedrun_records.csv") if r["is_retiming"] == "0"}
    times = {i: float(r["time_s"]) for i, r in table.items()}
    if not {first, last} <= set(times):
        raise ClaimError(f"records {first} to {last}: the history holds {min(times)} to {max(times)}")
    span = range(first + 1, last + 1)
    gains = {i: math.log(times[i - 1] / times[i]) for i in span}
    structural = [gains[i] for i in span if table[i]["class_major"] == "structural"]
    coded = [i for i in span if table[i]["lines_added"] and gains[i] > 0]
    if name == "speedup":
        return times[first] / times[last]
    if name == "experiments_per_day":
        return SECONDS_PER_DAY / times[last]
    if name == "structural_share" and gains:
        return sum(structural) / sum(gains.values())
    if name == "largest_structural_speedup" and structural:
        return math.exp(max(structural))
    if name == "median_gain_frac" and gains:
        return -math.expm1(-median(gains.values()))
    if name == "lines_per_tenth_second" and coded:
        lines = {i: float(table[i]["lines_added"]) + float(table[i]["lines_removed"] or 0) for i in coded}
        return median(0.1 * lines[i] / (times[i - 1] - times[i]) for i in coded)
    raise ClaimError(f"history.{name} is unknown or has no records between {first} and {last}")


def _figure(*, claim: Claim, settings: Mapping[str, Any]) -> float:
    source, _, rest = claim.figure.partition(".")
    if source == "history":
        return _history(name=rest, first=int(settings["first"]), last=int(settings["last"]))
    if source == "catalog":
        low, high = optimisation(str(settings["key"])).effort_weeks
        return {"low": low, "high": high}[rest.removesuffix("_months")] / WEEKS_PER_MONTH
    scenario, strategy = _scenario(claim=claim, settings=settings)
    if source == "gain":
        return _gain(keys=settings.get("keys") or rest.split("+"), scenario=scenario, strategy=strategy)
    if source == "roadmap":
        value = dig(roadmap(scenario=scenario, name=strategy).document, tuple(rest.split(".")))
    else:
        doc = forecast_strategy(scenario=scenario, name=strategy, engine="fast").document
        if source == "derived":
            return _derived(name=rest, doc=doc, scenario=scenario)
        value = dig(doc, tuple(claim.figure.split(".")))
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ClaimError(f"{claim.id}: {claim.figure} is {value!r}, not a number")
    return float(value)


def _value(*, claim: Claim, settings: Mapping[str, Any]) -> float:
    if claim.mode == "value":
        return _figure(claim=claim, settings=settings)
    shared = {k: v for k, v in settings.items() if k not in {"before", "after"}}

    def side(name: str) -> float:
        own = settings.get(name) or {}
        merged = shared | own | {"set": (shared.get("set") or {}) | (own.get("set") or {})}
        return _figure(claim=claim, settings=merged)

    ratio = side("after") / side("before")
    if claim.mode == "ratio":
        return ratio
    if claim.mode == "saving":
        return 1 - ratio
    raise ClaimError(f"{claim.id}: unknown mode {claim.mode!r}; known: value, ratio, saving")


def judge(claim: Claim) -> dict[str, Any]:
    """The answer of contract 4 for one claim.

    Raises:
        ClaimError: a case that cannot be worked out.
    """
    numbers: dict[str, float] = {}
    for label, settings in claim.cases.items():
        try:
            numbers[label] = _value(claim=claim, settings=settings)
        except (ValueError, LookupError) as error:
            raise ClaimError(f"{claim.id}, {label}: {error}") from error
    inside = [label for label, v in numbers.items() if claim.low <= v <= claim.high]
    verdict = "holds" if len(inside) == len(numbers) else "holds_when" if inside else "does_not_hold"
    return {
        "id": claim.id,
        "sentence": claim.sentence,
        "origin": claim.origin,
        "story": claim.story,
        "verdict": verdict,
        "conditions": {"stated": claim.conditions, "holds_when": inside, "note": claim.note},
        "numbers": {
            "figure": claim.figure,
            "as": claim.mode,
            "unit": claim.unit,
            "claimed": {"low": None if math.isinf(claim.low) else claim.low, "high": _finite(claim.high)},
            "cases": numbers,
            "range": [min(numbers.values()), max(numbers.values())],
        },
    }


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
