"""`planner size`."""

import sys
from typing import Annotated

import typer

from planner.commands.shared import (
    GOAL_MISSED,
    INFEASIBLE,
    InputProblem,
    Json,
    ScenarioPath,
    console,
    emit,
    error,
    load,
)


def size(
    scenario: ScenarioPath,
    strategy: Annotated[
        str | None, typer.Option(help="Keep this strategy's plan; by default plans are searched.")
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option(help="GPU or node type to look at; repeat it. By default every part on offer.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same answer.")] = 0,
    json_: Json = False,
) -> None:
    """Find the smallest and the cheapest cluster that meets the scenario's goals, or what to relax."""
    from planner.decide.size import size as size_cluster
    from planner.forecast import ForecastError

    loaded = load(scenario)
    try:
        document = size_cluster(scenario=loaded, strategy=strategy, gpus=gpu or (), seed=seed, say=_say)
    except ForecastError as problem:
        raise InputProblem([error(code="size", message=str(problem), file=str(scenario))]) from problem
    sys.stderr.write("\n")
    if json_:
        emit(document)
    else:
        from planner.report.size import print_size

        print_size(document=document, title=loaded.name, console=console())
    if not document["fits"]:
        raise typer.Exit(INFEASIBLE)
    if not document["feasible"]:
        raise typer.Exit(GOAL_MISSED)


def _say(text: str) -> None:
    sys.stderr.write(f"\r{text:<70}")
    sys.stderr.flush()
