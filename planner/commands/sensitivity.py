"""`planner sensitivity`."""

from typing import Annotated

import typer

from planner.commands.shared import INFEASIBLE, InputProblem, Json, ScenarioPath, console, emit, error, load_resolved


def sensitivity(
    scenario: ScenarioPath,
    strategy: Annotated[str | None, typer.Option(help="One strategy; the last written one by default.")] = None,
    metric: Annotated[str, typer.Option(help="days, cost or step.")] = "days",
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same answer.")] = 0,
    json_: Json = False,
) -> None:
    """Rank what is uncertain: tornado, Sobol indices, what to measure next, where the verdict flips."""
    from planner.decide.sensitivity import sensitivity as analyse
    from planner.forecast import ForecastError

    loaded = load_resolved(scenario)
    try:
        document = analyse(scenario=loaded, strategy=strategy, metric=metric, seed=seed)
    except ForecastError as problem:
        raise InputProblem([error(code="sensitivity", message=str(problem), file=str(scenario))]) from problem
    if json_:
        emit(document)
    else:
        from planner.report.sensitivity import print_sensitivity

        print_sensitivity(document=document, title=loaded.name, console=console())
    if not document["feasible"]:
        raise typer.Exit(INFEASIBLE)
