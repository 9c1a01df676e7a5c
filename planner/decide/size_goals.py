"""What a cluster is judged by: goals with documented defaults, what an option misses, what would be enough."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from planner import catalog
from planner.money.power import node_max_w
from planner.scenario import Scenario

Z80 = 1.2815515655446004
# Where no deadline is stated: a year. Longer runs are overtaken by the next part before they end.
DEFAULT_DEADLINE_DAYS = 365.0
GOALS = ("deadline_days", "budget_usd", "power_kw", "rack_kw", "max_interruptions")


@dataclass(frozen=True, slots=True)
class Figures:
    """What an option would take; days and money are log-normal with these medians and spreads."""

    days: float
    days_sigma: float
    cost_usd: float
    cost_sigma: float
    facility_kw: float
    node_kw: float
    racks: int
    interruptions: float
    goodput: float
    usd_per_million_tokens: float

    @classmethod
    def of(cls, document: Mapping[str, Any], *, scenario: Scenario) -> "Figures":
        """From the run and bill part of a forecast."""
        node = catalog.node(scenario.cluster.node)
        days, cost = document["days"], document["cost_usd_total"]
        return cls(
            days=days["p50"],
            days_sigma=math.log(days["p90"] / days["p50"]) / Z80,
            cost_usd=cost["p50"],
            cost_sigma=math.log(cost["p90"] / cost["p50"]) / Z80,
            facility_kw=document["facility"]["facility_kw"],
            node_kw=node_max_w(node=node, gpu=catalog.gpu(node.gpu)) / 1e3,
            racks=document["facility"]["racks"],
            interruptions=document["interruptions"],
            goodput=document["goodput"],
            usd_per_million_tokens=document["cost_usd_per_million_tokens"],
        )


def below(*, median: float, sigma: float, limit: float) -> float:
    """Probability that a log-normal figure stays within a limit."""
    if sigma <= 0 or median <= 0:
        return float(median <= limit)
    return NormalDist().cdf(math.log(limit / median) / sigma)


def quantile(*, median: float, sigma: float, probability: float) -> float:
    """The value that a log-normal figure stays within, with a probability."""
    return median * math.exp(NormalDist().inv_cdf(probability) * sigma)


@dataclass(frozen=True, slots=True)
class Demand:
    """The goals; None = no limit. `assumed` holds the defaults taken for those that are not stated."""

    deadline_days: float
    budget_usd: float | None
    power_kw: float | None
    rack_kw: float | None
    max_interruptions: int | None
    probability: float
    missing: tuple[str, ...]
    assumed: Mapping[str, str]

    @classmethod
    def of(cls, scenario: Scenario) -> "Demand":
        """The goals of a scenario."""
        goals = scenario.goals
        missing = tuple(k for k in GOALS[:4] if getattr(goals, k) is None)
        assumed = {k: "no limit" for k in missing}
        if goals.deadline_days is None:
            assumed["deadline_days"] = f"{DEFAULT_DEADLINE_DAYS:g} days at most; the cheapest per token is recommended"
        if "probability" not in goals.model_fields_set:
            assumed["probability"] = f"{goals.probability:g}"
        return cls(
            deadline_days=goals.deadline_days or DEFAULT_DEADLINE_DAYS,
            budget_usd=goals.budget_usd,
            power_kw=goals.power_kw,
            rack_kw=goals.rack_kw,
            max_interruptions=goals.max_interruptions,
            probability=goals.probability,
            missing=missing,
            assumed=assumed,
        )

    def limit(self, goal: str) -> float | None:
        """The stated value of a goal, None where there is no limit."""
        value = getattr(self, goal)
        return None if value is None else float(value)

    def needed(self, figures: Figures) -> dict[str, float]:
        """The tightest value of each goal that an option would still meet."""
        p = self.probability
        return {
            "deadline_days": quantile(median=figures.days, sigma=figures.days_sigma, probability=p),
            "budget_usd": quantile(median=figures.cost_usd, sigma=figures.cost_sigma, probability=p),
            "power_kw": figures.facility_kw,
            "rack_kw": figures.node_kw,
            "max_interruptions": figures.interruptions,
        }

    def missed(self, figures: Figures) -> tuple[str, ...]:
        """Goals that an option misses."""
        needed = self.needed(figures)
        out = []
        for goal in GOALS:
            limit = self.limit(goal)
            if limit is not None and needed[goal] > limit * (1 + 1e-9):
                out.append(goal)
        return tuple(out)


Describe = Callable[[Any], Mapping[str, Any]]


def relaxations(*, demand: Demand, options: Sequence[Any], describe: Describe) -> list[dict[str, Any]]:
    """What to relax, and by how much: each goal alone first; the smallest joint stretch where no single one helps.

    Args:
        demand: the goals.
        options: everything that fits; each has `figures`.
        describe: what is said of the option that the relaxed goal would allow.
    """
    options = [o for o in options if demand.missed(o.figures)]
    out = []
    for goal in GOALS:
        limit = demand.limit(goal)
        if limit is None:
            continue
        near = [o for o in options if set(demand.missed(o.figures)) == {goal}]
        if near:
            best = min(near, key=lambda o: demand.needed(o.figures)[goal])
            to = demand.needed(best.figures)[goal]
            row = {"constraint": goal, "by": to - limit, "to": to, "alone": True, "result": dict(describe(best))}
            out.append(row)
    if out or not options:
        return out

    def stretch(option: Any) -> float:
        needed = demand.needed(option.figures)
        return max(needed[g] / (demand.limit(g) or 1e-9) for g in demand.missed(option.figures))

    best = min(options, key=stretch)
    needed, result = demand.needed(best.figures), dict(describe(best))
    return [
        {"constraint": g, "by": needed[g] - (demand.limit(g) or 0.0), "to": needed[g], "alone": False, "result": result}
        for g in demand.missed(best.figures)
    ]
