"""`planner run`."""

import sys
from pathlib import Path
from typing import Annotated, Any

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
    console,
    emit,
    error,
    issue_document,
    load_resolved,
    spreading,
    where,
)


def run(
    scenario: Annotated[Path | None, typer.Argument(help="Scenario YAML file.", show_default=False)] = None,
    strategy: Annotated[str | None, typer.Option(help="One strategy; the last written one by default.")] = None,
    replications: Annotated[int, typer.Option(min=1, max=100_000, help="Simulated runs.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same answer.")] = 0,
    from_: Annotated[
        Path | None, typer.Option("--from", help="CSV log of the run that is going: plan against actual, new end.")
    ] = None,
    from_template: Annotated[bool, typer.Option("--from-template", help="Print such a log to fill in.")] = False,
    backend: Backend = "local",
    address: Address = None,
    cores: Cores = None,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Simulate a strategy's whole run many times: finish dates, goodput, interruptions, wasted GPU-hours."""
    if from_template:
        from planner.profile.progress_log import template

        sys.stdout.write(template())
        return
    if scenario is None:
        raise InputProblem([error(code="usage", message="Missing argument 'SCENARIO'.")])
    from planner.decide.run import run_document
    from planner.forecast import ForecastError

    workers = where(backend=backend, address=address, cores=cores, out=out)
    with spreading(scenario):
        loaded = load_resolved(scenario, on=workers)
    name = strategy or list(loaded.strategies)[-1]
    if name not in loaded.strategies:
        known = list(loaded.strategies)
        raise InputProblem([error(code="strategy", message=f"no strategy {name!r}", nearest=known)])
    if from_ is not None:
        _follow(
            loaded=loaded,
            name=name,
            log=from_,
            file=scenario,
            replications=replications,
            seed=seed,
            json_=json_,
            workers=workers,
        )
        return
    try:
        with spreading(scenario):
            document = run_document(scenario=loaded, name=name, replications=replications, seed=seed, where=workers)
    except ForecastError as problem:
        raise InputProblem([error(code="strategy", message=str(problem), file=str(scenario))]) from problem
    if json_:
        emit(document)
    else:
        from planner.report.run import print_run

        print_run(document=document, title=loaded.name, console=console())
    if not document["feasible"]:
        raise typer.Exit(INFEASIBLE)
    missed = document["goals"]["missed"]
    for goal, words in missed.items():
        sys.stderr.write(f"goal missed: {goal} {getattr(loaded.goals, goal):g}: {name} {words}\n")
    if missed:
        raise typer.Exit(GOAL_MISSED)


def _follow(
    *, loaded: Any, name: str, log: Path, file: Path, replications: int, seed: int, json_: bool, workers: Any
) -> None:
    """Plan against actual of a run that is going."""
    from planner.decide.progress import progress_document
    from planner.forecast import ForecastError
    from planner.profile.progress_log import ProgressError

    try:
        document = progress_document(
            scenario=loaded, name=name, log=log, replications=replications, seed=seed, where=workers
        )
    except ForecastError as problem:
        raise InputProblem([error(code="strategy", message=str(problem), file=str(file))]) from problem
    except ProgressError as problem:
        raise InputProblem([issue_document(i) for i in problem.issues]) from problem
    except OSError as problem:
        message = f"cannot read {log}: {problem.strerror}"
        raise InputProblem([error(code="file", message=message, file=str(log))]) from problem
    if json_:
        emit(document)
    else:
        from planner.report.progress import print_progress

        print_progress(document=document, title=loaded.name, console=console())
    goals = document["goals"]
    chances = [goals[key] for key in ("p_late", "p_over_budget") if goals[key] is not None]
    if any(chance > 1 - goals["probability"] for chance in chances):
        raise typer.Exit(GOAL_MISSED)
