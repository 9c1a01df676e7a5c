"""From a step to days, energy and money for one strategy: the part of the spine behind the step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner import catalog
from planner.catalog.line import Line
from planner.scenario import Scenario, Strategy
from planner.simulate.assemble import StepAnswer
from planner.workload.params import total_params
from planner.workload.resolve import Resolved

SECONDS_PER_DAY = 86_400.0
Z80 = 1.2815515655446004


@dataclass(frozen=True, slots=True)
class Outcome:
    """The run and bill blocks of contract 3, with their lines."""

    document: Mapping[str, Any]
    lines: tuple[Line, ...]
    warnings: tuple[str, ...]


def run_and_bill(
    *, scenario: Scenario, strategy: Strategy, resolved: Resolved, answer: StepAnswer, sigma: float
) -> Outcome:
    """Days, goodput, energy and cost of the stated tokens."""
    raise NotImplementedError
