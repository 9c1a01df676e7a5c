"""What the user says: frozen blocks, YAML with line-numbered errors."""

from planner.scenario.load import Issue, ScenarioError, load_scenario, parse_scenario
from planner.scenario.scenario import Scenario
from planner.scenario.strategy import Framework, Overlap, Strategy

__all__ = ["Framework", "Issue", "Overlap", "Scenario", "ScenarioError", "Strategy", "load_scenario", "parse_scenario"]
