"""`planner search`."""

from typing import Annotated

import typer

from planner.commands.shared import (
    INFEASIBLE,
    INTERRUPTED,
    Address,
    Backend,
    Cores,
    InputProblem,
    Json,
    Out,
    ScenarioPath,
    console,
    emit,
    error,
    load,
    spreading,
    where,
)


def search(
    scenario: ScenarioPath,
    precision: Annotated[
        str | None, typer.Option(help="dtype of the products; without it bf16, fp16 and fp8 are tried.")
    ] = None,
    maximise: Annotated[str, typer.Option(help="speed, or sequence_length: the longest sequence that fits.")] = "speed",
    backend: Backend = "local",
    address: Address = None,
    cores: Cores = None,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Find the fastest plans that fit memory, and why they win."""
    from planner.decide.longest import longest_sequence
    from planner.decide.search_answer import search as search_plans
    from planner.forecast import ForecastError

    workers = where(backend=backend, address=address, cores=cores, out=out)
    loaded = load(scenario)
    if maximise not in {"speed", "sequence_length"}:
        known = ["speed", "sequence_length"]
        raise InputProblem([error(code="usage", message=f"unknown --maximise {maximise!r}", nearest=known)])
    try:
        with spreading(scenario):
            answer = longest_sequence if maximise == "sequence_length" else search_plans
            document = answer(scenario=loaded, precision=precision, where=workers)
    except ForecastError as problem:
        raise InputProblem([error(code="search", message=str(problem), file=str(scenario))]) from problem
    if json_:
        emit(document)
    else:
        from planner.report.search import print_search

        print_search(document=document, title=loaded.name, console=console())
    if document["interrupted"]:
        raise typer.Exit(INTERRUPTED)
    if not document["best"]:
        raise typer.Exit(INFEASIBLE)
