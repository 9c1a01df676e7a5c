"""`planner run`."""

from typing import Annotated

import typer

from planner.commands.shared import (
    GOAL_MISSED,
    INFEASIBLE,
    Address,
    Backend,
    Cores,
    InputProblem,
    Json,
    Out,
    ScenarioPath,
    emit,
    error,
    load_resolved,
    spreading,
    where,
)


def run(
    scenario: ScenarioPath,
    strategy: Annotated[str | None, typer.Option(help="One strategy; the last written one by default.")] = None,
    replications: Annotated[int, typer.Option(min=1, max=100_000, help="Simulated runs.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same answer.")] = 0,
    backend: Backend = "local",
    address: Address = None,
    cores: Cores = None,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Simulate a strategy's whole run many times: finish dates, goodput, interruptions, wasted GPU-hours."""
    from planner.decide.run import run_document
    from planner.forecast import ForecastError

    workers = where(backend=backend, address=address, cores=cores, out=out)
    with spreading(scenario):
        loaded = load_resolved(scenario, on=workers)
    name = strategy or list(loaded.strategies)[-1]
    if name not in loaded.strategies:
        known = list(loaded.strategies)
        raise InputProblem([error(code="strategy", message=f"no strategy {name!r}", nearest=known)])
    try:
        with spreading(scenario):
            document = run_document(scenario=loaded, name=name, replications=replications, seed=seed, where=workers)
    except ForecastError as problem:
        raise InputProblem([error(code="strategy", message=str(problem), file=str(scenario))]) from problem
    if json_:
        emit(document)
    else:
        from rich.console import Console

        from planner.report.run import print_run

        print_run(document=document, title=loaded.name, console=Console())
    if not document["feasible"]:
        raise typer.Exit(INFEASIBLE)
    late = document["goals"]["p_late"]
    if late is not None and late > 1 - loaded.goals.probability:
        raise typer.Exit(GOAL_MISSED)
