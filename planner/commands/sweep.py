"""`planner sweep`."""

import re
import sys
from pathlib import Path
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
    emit,
    error,
    load_resolved,
    spreading,
    where,
)


def sweep(
    scenario: ScenarioPath,
    gpus: Annotated[str, typer.Option(help="Range of cluster sizes, doubling: 8..16384.")] = "8..16384",
    strategy: Annotated[str | None, typer.Option(help="One strategy; the last written one by default.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Write the curves (.svg or .html).")] = None,
    backend: Backend = "local",
    address: Address = None,
    cores: Cores = None,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Scale one strategy over cluster sizes: strong and weak, with the knee and the cause at each point."""
    from planner import catalog
    from planner.decide.sweep import sizes, sweep_document
    from planner.forecast import ForecastError

    found = re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", gpus)
    if not found or int(found[1]) < 1 or int(found[1]) > int(found[2]):
        raise InputProblem([error(code="usage", message=f"--gpus {gpus!r} is no range", nearest=["8..16384"])])
    workers = where(backend=backend, address=address, cores=cores, out=out)
    with spreading(scenario):
        loaded = load_resolved(scenario, on=workers)
    name = strategy or list(loaded.strategies)[-1]
    span = sizes(first=int(found[1]), last=int(found[2]), per_node=catalog.node(loaded.cluster.node).gpus_per_node)
    try:
        with spreading(scenario):
            document = sweep_document(scenario=loaded, name=name, gpus=span, where=workers)
    except ForecastError as problem:
        raise InputProblem([error(code="strategy", message=str(problem), file=str(scenario))]) from problem
    from planner.report.sweep import print_sweep, write_picture

    if picture is not None:
        write_picture(path=picture, document=document, title=loaded.name)
        sys.stderr.write(f"wrote {picture}\n")
    if json_:
        emit(document)
    else:
        from rich.console import Console

        print_sweep(document=document, title=loaded.name, console=Console())
    if not any(p["fits"] for p in document["points"]):
        raise typer.Exit(INFEASIBLE)
