"""Stated goals against the best forecast that fits."""

from collections.abc import Mapping
from typing import Any

from planner import catalog
from planner.money.power import node_max_w
from planner.scenario import Scenario

Document = Mapping[str, Any]


def misses(*, scenario: Scenario, document: Document) -> dict[str, tuple[float, str]]:
    """Goals that a forecast misses: by how much (for the least bad of several), and in words."""
    goals = scenario.goals
    allowed = 1.0 - goals.probability
    out: dict[str, tuple[float, str]] = {}
    late, over = document.get("p_late"), document.get("p_over_budget")
    if late is not None and late > allowed:
        out["deadline_days"] = late, f"is late with probability {late:.2f}"
    if over is not None and over > allowed:
        out["budget_usd"] = over, f"is over with probability {over:.2f}"
    limits = (
        ("power_kw", document["facility"]["facility_kw"], "needs {:,.0f} kW"),
        ("rack_kw", _node_kw(scenario), "has nodes of {:,.1f} kW"),
        ("max_interruptions", document["interruptions"], "expects {:,.1f}"),
    )
    for key, value, words in limits:
        limit = getattr(goals, key)
        if limit is not None and value > limit:
            out[key] = value / max(limit, 1e-9), words.format(value)
    return out


def _node_kw(scenario: Scenario) -> float:
    node = catalog.node(scenario.cluster.node)
    return node_max_w(node=node, gpu=catalog.gpu(node.gpu)) / 1e3


def missed_goals(*, scenario: Scenario, docs: Mapping[str, Document]) -> list[str]:
    """Goals that no feasible strategy meets, with the stated probability where they have one, in words."""
    goals = scenario.goals
    missed = {n: misses(scenario=scenario, document=d) for n, d in docs.items() if d["fits"]}
    if not missed:
        return []
    titles = {
        "deadline_days": "deadline of {:g} days",
        "budget_usd": "budget of {:,.0f} USD",
        "power_kw": "power of {:,g} kW",
        "rack_kw": "power of a rack of {:,g} kW",
        "max_interruptions": "at most {:,d} interruptions",
    }
    out = []
    for key, title in titles.items():
        if all(key in found for found in missed.values()):
            best = min(missed, key=lambda n: missed[n][key][0])
            out.append(f"{title.format(getattr(goals, key))}: the best, {best}, {missed[best][key][1]}")
    if not out and all(missed.values()):
        each = ", ".join(f"{n} misses {' and '.join(found)}" for n, found in missed.items())
        out.append(f"all of them at once: {each}")
    return out
