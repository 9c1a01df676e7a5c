"""`planner schema`."""

from planner.commands.shared import emit


def schema() -> None:
    """Print the JSON Schema of a scenario file."""
    from planner.scenario import Scenario

    emit(Scenario.model_json_schema())
