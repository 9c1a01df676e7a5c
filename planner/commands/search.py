"""`planner search`."""

import sys
from typing import Annotated

import typer

from planner.commands.shared import (
    INFEASIBLE,
    INTERRUPTED,
    InputProblem,
    Json,
    ScenarioPath,
    console,
    emit,
    error,
    load,
)


def search(
    scenario: ScenarioPath,
    precision: Annotated[
        str | None, typer.Option(help="dtype of the products; without it bf16, fp16 and fp8 are tried.")
    ] = None,
    maximise: Annotated[str, typer.Option(help="speed, or sequence_length: the longest sequence that fits.")] = "speed",
    json_: Json = False,
) -> None:
    """Find the fastest plans that fit memory, and why they win."""
    from planner.decide.search_answer import longest_sequence, say_progress
    from planner.decide.search_answer import search as search_plans
    from planner.forecast import ForecastError

    loaded = load(scenario)
    if maximise not in {"speed", "sequence_length"}:
        known = ["speed", "sequence_length"]
        raise InputProblem([error(code="usage", message=f"unknown --maximise {maximise!r}", nearest=known)])
    try:
        if maximise == "sequence_length":
            document = longest_sequence(scenario=loaded, precision=precision, progress=say_progress)
        else:
            document = search_plans(scenario=loaded, precision=precision, progress=say_progress)
    except ForecastError as problem:
        raise InputProblem([error(code="search", message=str(problem), file=str(scenario))]) from problem
    sys.stderr.write("\n")
    if json_:
        emit(document)
    else:
        from planner.report.search import print_search

        print_search(document=document, title=loaded.name, console=console())
    if document["interrupted"]:
        raise typer.Exit(INTERRUPTED)
    if not document["best"]:
        raise typer.Exit(INFEASIBLE)
