"""`planner sensitivity`."""

from typing import Annotated

import typer

from planner.commands.shared import (
    INFEASIBLE,
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
    load_resolved,
    spreading,
    where,
)


def sensitivity(
    scenario: ScenarioPath,
    strategy: Annotated[str | None, typer.Option(help="One strategy; the last written one by default.")] = None,
    metric: Annotated[str, typer.Option(help="days, cost or step.")] = "days",
    samples: Annotated[int, typer.Option(min=2, max=1 << 20, help="Draws of each matrix, a power of two.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same answer.")] = 0,
    backend: Backend = "local",
    address: Address = None,
    cores: Cores = None,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Rank what is uncertain: tornado, Sobol indices, what to measure next, where the verdict flips."""
    from planner.decide.sensitivity import sensitivity as analyse
    from planner.forecast import ForecastError

    workers = where(backend=backend, address=address, cores=cores, out=out)
    with spreading(scenario):
        loaded = load_resolved(scenario, on=workers)
    try:
        with spreading(scenario):
            document = analyse(
                scenario=loaded, strategy=strategy, metric=metric, samples=samples, seed=seed, where=workers
            )
    except ForecastError as problem:
        raise InputProblem([error(code="sensitivity", message=str(problem), file=str(scenario))]) from problem
    if json_:
        emit(document)
    else:
        from planner.report.sensitivity import print_sensitivity

        print_sensitivity(document=document, title=loaded.name, console=console())
    if not document["feasible"]:
        raise typer.Exit(INFEASIBLE)
