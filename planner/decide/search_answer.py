"""What a search answers: the best plans with reasons, the front of time, money, headroom and risk."""

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from planner import SCHEMA_VERSION, __version__
from planner.decide.search import Candidate, Sweep, refine, strategy_of, sweep_plans
from planner.decide.spread import ONE_CORE, Where
from planner.forecast import Forecast
from planner.scenario import Scenario

REPORTED = 10
LEFT_AFTER_INTERRUPTION = 3  # plans forecast once a search has been stopped, by the quick engine
# One standard deviation of the memory forecast: 1 % on rows of trust A, 5 % on rows of trust B (docs/memory.md).
MEMORY_SIGMA = 0.03
Z80 = 1.2815515655446004

Refined = list[tuple[Candidate, Forecast]]


def search(*, scenario: Scenario, precision: str | None = None, where: Where = ONE_CORE) -> dict[str, Any]:
    """The answer of contract 4; an interruption keeps what is done.

    Args:
        scenario: model, cluster, batch and goals.
        precision: dtype of the products, None tries what the part has.
        where: on which workers, into which file.

    Raises:
        SpreadError: the workers or the file of `where` cannot be used.
    """
    sweep = sweep_plans(scenario=scenario, precision=precision, where=where)
    return answer_of(scenario=scenario, sweep=sweep, where=where)


def answer_of(*, scenario: Scenario, sweep: Sweep, where: Where = ONE_CORE) -> dict[str, Any]:
    """The answer of a sweep: its best few by events, the front, and the counts."""
    interrupted, refined = sweep.interrupted, list[tuple[Candidate, Forecast]]()
    if not interrupted:
        try:
            refined = refine(scenario=scenario, sweep=sweep, where=where)
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        refined = refine(scenario=scenario, sweep=sweep, count=LEFT_AFTER_INTERRUPTION, engine="fast")
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": {"planner": __version__, "profile": scenario.cluster.profile, "catalog": "2026-12-01"},
        "seed": 0,
        "axes": {name: list(getattr(sweep.axes, name)) for name in type(sweep.axes).__slots__},
        "plans_total": sweep.axes.plans,
        "plans_invalid": sweep.plans_invalid,
        "plans_out_of_memory": sweep.plans_out_of_memory,
        "plans_scored": sweep.plans_scored,
        "seconds": sweep.seconds,
        "interrupted": interrupted,
        "best": _best(refined, scenario=scenario),
        "pareto": _front(scenario=scenario, sweep=sweep, refined=refined),
    }


def _best(refined: Refined, *, scenario: Scenario) -> list[dict[str, Any]]:
    docs = [f.document for _, f in refined]
    return [
        {
            "plan": doc["strategy"],
            "strategy": strategy_of(candidate, scenario=scenario).model_dump(exclude_none=True),
            "engine": doc["engine"],
            "step_s": doc["step_s"]["p50"],
            "closed_form_step_s": candidate.step_s,
            "days": doc["days"]["p50"],
            "cost_usd": doc["cost_usd_total"]["p50"],
            "memory_peak_gb": doc["memory_gb"]["peak"],
            "why": _why(doc, docs[i + 1] if i + 1 < len(docs) else None),
            "limited_by": _limited_by(doc),
        }
        for i, ((candidate, _), doc) in enumerate(zip(refined[:REPORTED], docs, strict=False))
    ]


def _limited_by(document: Mapping[str, Any]) -> str:
    parts = {k: v for k, v in document["breakdown_s"].items() if k not in {"compute_matmul", "compute_attention"}}
    return str(max(parts, key=lambda k: float(parts[k])))


def _why(document: Mapping[str, Any], other: Mapping[str, Any] | None) -> str:
    """The parts of the step that are smaller than in the next plan of the list."""
    if other is None:
        return "the last one listed"
    moves = sorted((document["breakdown_s"][k] - other["breakdown_s"][k], k) for k in document["breakdown_s"])
    saved = [f"{k} {1e3 * d:.0f} ms" for d, k in moves[:2] if d < -1e-6]
    return "less " + " and ".join(saved) + " than the next" if saved else "as fast as the next"


def _front(*, scenario: Scenario, sweep: Sweep, refined: Refined) -> list[dict[str, Any]]:
    """Plans that nobody beats in step and memory, with days and money in proportion to the best plan's."""
    if not refined:
        return []
    best = refined[0][1]
    return [_on_front(scenario=scenario, sweep=sweep, plan=c, best=best) for c in sweep.front]


def _on_front(*, scenario: Scenario, sweep: Sweep, plan: Candidate, best: Forecast) -> dict[str, Any]:
    document, goals = best.document, scenario.goals
    ratio = plan.step_s / best.answer.step_s
    days = document["days"]["p50"] * ratio
    people = document["cost_usd"]["people"]
    cost = people + (document["cost_usd_total"]["p50"] - people) * ratio
    late = _above(days, _sigma(document["days"]), goals.deadline_days)
    over = _above(cost, _sigma(document["cost_usd_total"]), goals.budget_usd)
    out = 1.0 - NormalDist(plan.memory_bytes, MEMORY_SIGMA * plan.memory_bytes).cdf(sweep.capacity_bytes)
    return {
        "plan": strategy_of(plan, scenario=scenario).model_dump(exclude_none=True),
        "step_s": plan.step_s,
        "days": days,
        "cost_usd": cost,
        "memory_peak_gb": plan.memory_bytes / 1e9,
        "headroom_gb": (sweep.capacity_bytes - plan.memory_bytes) / 1e9,
        "risk": 1.0 - (1.0 - out) * (1.0 - late) * (1.0 - over),
        "risks": {"p_out_of_memory": out, "p_late": late, "p_over_budget": over},
    }


def _sigma(band: Mapping[str, float]) -> float:
    return math.log(band["p90"] / band["p50"]) / Z80 if band["p50"] > 0 else 0.0


def _above(value: float, sigma: float, limit: float | None) -> float:
    """Probability that a log-normal figure exceeds a limit; none without a limit."""
    if limit is None:
        return 0.0
    return 1.0 - NormalDist().cdf(math.log(limit / value) / sigma) if sigma > 0 else float(value > limit)
