"""Stated goals against the best forecast that fits."""

from collections.abc import Mapping
from typing import Any

from planner.scenario import Scenario


def missed_goals(*, scenario: Scenario, docs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Goals that no feasible strategy meets with the stated probability, in words."""
    goals = scenario.goals
    feasible = {n: d for n, d in docs.items() if d["fits"]}
    if goals is None or not feasible:
        return []
    allowed = 1.0 - (goals.probability or 0.5)
    out = []
    if goals.deadline_days is not None:
        late = {n: d["p_late"] for n, d in feasible.items() if d.get("p_late") is not None}
        if late and min(late.values()) > allowed:
            name = min(late, key=lambda n: late[n])
            out.append(
                f"deadline of {goals.deadline_days:g} days: the best, {name}, is late with probability {late[name]:.2f}"
            )
    if goals.budget_usd is not None:
        over = {n: d["p_over_budget"] for n, d in feasible.items() if d.get("p_over_budget") is not None}
        if over and min(over.values()) > allowed:
            name = min(over, key=lambda n: over[n])
            out.append(
                f"budget of {goals.budget_usd:,.0f} USD: the best, {name}, is over with probability {over[name]:.2f}"
            )
    return out
