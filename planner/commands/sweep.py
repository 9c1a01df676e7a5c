"""`planner sweep`."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

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


def sweep(
    scenario: ScenarioPath,
    gpus: Annotated[str, typer.Option(help="Range of cluster sizes, doubling: 8..16384.")] = "8..16384",
    micro_batch: Annotated[
        str | None, typer.Option("--micro-batch", help="Range of micro-batches instead, doubling: 1..64.")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="One strategy; by default the last written, over micro-batches the first.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Write the curves (.svg or .html).")] = None,
    backend: Backend = "local",
    address: Address = None,
    cores: Cores = None,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Scale one strategy over cluster sizes, or over micro-batches: who holds the step, and what each work is worth."""
    from planner.forecast import ForecastError

    first, last = _span("--gpus", gpus) if micro_batch is None else _span("--micro-batch", micro_batch)
    workers = where(backend=backend, address=address, cores=cores, out=out)
    with spreading(scenario):
        loaded = load_resolved(scenario, on=workers)
    names = list(loaded.strategies)
    name = strategy or names[-1 if micro_batch is None else 0]
    run = _over_gpus if micro_batch is None else _over_micro_batches
    try:
        with spreading(scenario):
            document, svg, show = run(loaded, name, first, last, workers)
    except ForecastError as problem:
        raise InputProblem([error(code="strategy", message=str(problem), file=str(scenario))]) from problem
    if picture is not None:
        from planner.report.sweep import write_picture

        write_picture(path=picture, svg=svg())
        sys.stderr.write(f"wrote {picture}\n")
    if json_:
        emit(document)
    else:
        show(console())
    if not any(p["fits"] for p in document["points"]):
        raise typer.Exit(INFEASIBLE)


Answer = tuple[dict[str, Any], Callable[[], str], Callable[[Any], None]]


def _span(option: str, text: str) -> tuple[int, int]:
    """Both ends of a range like 8..16384."""
    found = re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", text)
    if not found or int(found[1]) < 1 or int(found[1]) > int(found[2]):
        nearest = "8..16384" if option == "--gpus" else "1..64"
        raise InputProblem([error(code="usage", message=f"{option} {text!r} is no range", nearest=[nearest])])
    return int(found[1]), int(found[2])


def _over_gpus(scenario: Any, name: str, first: int, last: int, workers: Any) -> Answer:
    from planner import catalog
    from planner.decide.sweep import sizes, sweep_document
    from planner.report.sweep import print_sweep, sweep_svg

    span = sizes(first=first, last=last, per_node=catalog.node(scenario.cluster.node).gpus_per_node)
    document, title = sweep_document(scenario=scenario, name=name, gpus=span, where=workers), scenario.name
    return (
        document,
        lambda: sweep_svg(document=document, title=title),
        lambda console: print_sweep(document=document, title=title, console=console),
    )


def _over_micro_batches(scenario: Any, name: str, first: int, last: int, _workers: Any) -> Answer:
    from planner.decide.crossover import crossover_document, doublings
    from planner.report.crossover import crossover_svg, print_crossover

    span = doublings(first=first, last=last)
    document, title = crossover_document(scenario=scenario, name=name, micro_batches=span), scenario.name
    return (
        document,
        lambda: crossover_svg(document=document, title=title),
        lambda console: print_crossover(document=document, title=title, console=console),
    )
