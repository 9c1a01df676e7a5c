"""A mixed fleet as the equal fleet that it runs like: a synchronous step waits for its slowest rank."""

from dataclasses import dataclass

from planner import catalog
from planner.forecast import ForecastError, step_on
from planner.scenario import Scenario, Strategy
from planner.scenario.cluster import Part


@dataclass(frozen=True, slots=True)
class Pace:
    """What one node type would make of the whole fleet.

    Attributes:
        step_s: seconds of a step; None where the layout cannot be placed on it.
        fits: its memory holds the layout.
    """

    node: str
    nodes: int
    step_s: float | None
    fits: bool


def _all_of(*, scenario: Scenario, node: str) -> Scenario:
    own = scenario.cluster
    parts = (Part(node=own.node, nodes=own.nodes), *own.also)
    total = sum(part.nodes for part in parts)
    cluster = own.model_copy(update={"node": node, "nodes": total, "also": (), "stands_for": parts})
    return scenario.model_copy(update={"cluster": cluster})


def paces(*, scenario: Scenario, strategy: Strategy) -> tuple[Pace, ...]:
    """Every node type of the fleet, each as if all nodes were of it, in the order of the scenario.

    Raises:
        ForecastError: the layout cannot be placed on any of them.
    """
    count = {scenario.cluster.node: scenario.cluster.nodes}
    for part in scenario.cluster.also:
        count[part.node] = count.get(part.node, 0) + part.nodes
    out, last = [], None
    for node, nodes in count.items():
        try:
            resolved, answer = step_on(
                scenario=_all_of(scenario=scenario, node=node),
                strategy=strategy,
                gpus=scenario.gpus,
                global_batch=scenario.training.global_batch_sequences,
                engine="fast",
            )
        except ForecastError as error:
            out.append(Pace(node, nodes, None, False))
            last = error
            continue
        out.append(Pace(node, nodes, answer.step_s, resolved.fits))
    if last is not None and all(p.step_s is None for p in out):
        raise last
    return tuple(out)


def slowest(found: tuple[Pace, ...]) -> Pace:
    """The type that sets the step: one that cannot hold the layout before any other, then the longest step."""
    return max(found, key=lambda p: (p.step_s is None, not p.fits, p.step_s or 0.0))


def _least_peak(scenario: Scenario) -> str:
    names = [scenario.cluster.node, *(part.node for part in scenario.cluster.also)]
    return min(names, key=lambda n: (catalog.gpu(catalog.node(n).gpu).peak_flops.get("bf16", 0.0), names.index(n)))


def equal_fleet(scenario: Scenario) -> tuple[Scenario, str]:
    """The scenario with all nodes of the type that sets the pace, and one sentence on it; itself and "" if not mixed.

    The pace is that of the first strategy that names its degrees, the least peak rate where all are `auto`. Rent and
    the price of servers stay the mean over the fleet; power, racks and failures are those of the slowest type.

    Raises:
        ForecastError: the strategy cannot be placed.
    """
    if not scenario.cluster.also:
        return scenario, ""
    strategy = next((s for s in scenario.strategies.values() if isinstance(s, Strategy)), None)
    if strategy is None:
        node, why = _least_peak(scenario), "the least peak rate"
    else:
        found = paces(scenario=scenario, strategy=strategy)
        node, why = slowest(found).node, ", ".join(f"{p.node} {_told(p)}" for p in found)
    equal = _all_of(scenario=scenario, node=node)
    return equal, f"{equal.cluster.stands_for_text()} ({why})"


def _told(pace: Pace) -> str:
    if pace.step_s is None:
        return "cannot place the layout"
    return f"{pace.step_s:.4g} s a step" + ("" if pace.fits else ", does not fit")
