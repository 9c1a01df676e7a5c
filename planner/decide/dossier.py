"""Every answer that a written report rests on: the comparison, each strategy's replicated run, the scaling curve."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner import catalog
from planner.decide.compare import compare
from planner.decide.run import run_document
from planner.decide.sweep import sizes, sweep_document
from planner.forecast import ForecastError
from planner.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Dossier:
    """Answer documents of contract 4 on one scenario.

    Attributes:
        comparison: of all strategies.
        runs: by strategy, those that fit.
        scaling: of the chosen strategy; None where no size works.
    """

    comparison: Mapping[str, Any]
    runs: Mapping[str, Mapping[str, Any]]
    scaling: Mapping[str, Any] | None

    def documents(self) -> dict[str, Mapping[str, Any]]:
        """By file name, without ending."""
        runs = {f"run-{i}": run for i, run in enumerate(self.runs.values(), 1)}
        return {"compare": self.comparison, **runs} | ({"sweep": self.scaling} if self.scaling else {})


def sizes_around(scenario: Scenario) -> list[int]:
    """Cluster sizes from a thirty-second to thirty-two times the scenario's own, in doublings through it."""
    first, per_node = scenario.gpus, catalog.node(scenario.cluster.node).gpus_per_node
    for _ in range(5):
        first = first // 2 if first % 2 == 0 else first
    return sizes(first=first, last=32 * scenario.gpus, per_node=per_node)


def dossier(*, scenario: Scenario, engine: str = "events", replications: int = 300, seed: int = 0) -> Dossier:
    """Compare, replicate and scale a scenario whose strategies are resolved.

    Raises:
        ForecastError: a strategy cannot be forecast as written.
    """
    comparison = compare(scenario=scenario, engine=engine).document
    fitting = [n for n, d in comparison["strategies"].items() if d["feasible"]]
    runs = {n: run_document(scenario=scenario, name=n, replications=replications, seed=seed) for n in fitting}
    name = comparison["verdict"]["choice"] or next(iter(comparison["strategies"]))
    try:
        scaling = sweep_document(scenario=scenario, name=name, gpus=sizes_around(scenario))
    except ForecastError:
        scaling = None
    return Dossier(comparison, runs, scaling)
