"""`planner sweep`."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.commands.shared import (
    INFEASIBLE,
    Engine,
    InputProblem,
    Json,
    ScenarioPath,
    check_engine,
    emit,
    error,
    load,
)

RANGE = re.compile(r"(\d+)(?:\.\.(\d+))?")


def _range(text: str) -> tuple[int, int]:
    match = RANGE.fullmatch(text.strip().replace(",", "").replace("_", ""))
    if match is None:
        raise InputProblem([error(code="gpus", message=f"{text!r} is no range of GPUs", nearest=["8..16384"])])
    return int(match[1]), int(match[2] or match[1])


def sweep(
    scenario: ScenarioPath,
    gpus: Annotated[str, typer.Option(help="First and last number of GPUs; sizes double in between.")] = "8..16384",
    strong: Annotated[bool, typer.Option("--strong", help="Only the curve with the global batch kept.")] = False,
    weak: Annotated[bool, typer.Option("--weak", help="Only the curve with the batch of a rank kept.")] = False,
    strategy: Annotated[list[str] | None, typer.Option(help="Only this strategy (may be repeated).")] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the curves into this .svg or .html file.")] = None,
    engine: Engine = "fast",
    json_: Json = False,
) -> None:
    """Scale a scenario to ever more GPUs: where the curve bends, and what holds each size back."""
    from planner.decide.sweep import KINDS
    from planner.decide.sweep import sweep as sweep_scenario

    check_engine(engine)
    first, last = _range(gpus)
    loaded = load(scenario)
    kinds = KINDS if strong == weak else (("strong",) if strong else ("weak",))
    try:
        found = sweep_scenario(scenario=loaded, first=first, last=last, kinds=kinds, strategies=strategy, engine=engine)
    except ValueError as problem:
        raise InputProblem([error(code="sweep", message=str(problem), file=str(scenario))]) from problem
    if picture is not None:
        from planner.report.sweep_picture import write_picture

        try:
            write_picture(document=found.document, title=loaded.name, path=picture)
        except (OSError, ValueError) as problem:
            raise InputProblem([error(code="picture", message=str(problem), file=str(picture))]) from problem
        sys.stderr.write(f"drew {picture}\n")
    if json_:
        emit(found.document)
    else:
        from rich.console import Console

        from planner.report.sweep import print_sweep

        print_sweep(document=found.document, title=loaded.name, console=Console())
    if not any(c.points for c in found.curves):
        raise typer.Exit(INFEASIBLE)
