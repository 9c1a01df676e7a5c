"""`planner validate`."""

import sys
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.commands.shared import Engine, InputProblem, Json, check_engine, console, emit, error


def validate(
    file: Annotated[
        Path | None, typer.Argument(help="CSV of measured rows; the packaged public rows by default.")
    ] = None,
    runs: Annotated[bool, typer.Option("--runs", help="Published or own training runs (default).")] = False,
    kernels: Annotated[bool, typer.Option("--kernels", help="Single kernels.")] = False,
    collectives: Annotated[bool, typer.Option("--collectives", help="Collective operations.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Steps on one calibrated GPU.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="Allocator bytes of the last rank.")] = False,
    gains: Annotated[bool, typer.Option("--gains", help="Speed-ups of optimisations.")] = False,
    outcomes: Annotated[bool, typer.Option("--outcomes", help="Goodput, interruptions, energy, bills.")] = False,
    profile: Annotated[str | None, typer.Option(help="Calibration profile: shipped name or path.")] = None,
    site: Annotated[Path | None, typer.Option(help="Site file of `planner fit` for the site column of --runs.")] = None,
    engine: Engine = "fast",
    group: Annotated[str | None, typer.Option(help="Only groups whose name contains this text.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write the answer as a page (.html, or .pdf).")] = None,
    readme: Annotated[
        list[Path] | None, typer.Option(help="Renew the accuracy table of this README or page; repeatable.")
    ] = None,
    json_: Json = False,
) -> None:
    """Judge forecasts on measured rows, with the constant-MFU baseline beside them."""
    from planner.profile.site import SiteError
    from planner.validate.command import UnreadableRowsError, validate_kind

    check_engine(engine)
    kinds = {
        "runs": runs,
        "kernels": kernels,
        "collectives": collectives,
        "steps": steps,
        "memory": memory,
        "gains": gains,
        "outcomes": outcomes,
    }
    chosen = [kind for kind, on in kinds.items() if on]
    if len(chosen) > 1:
        raise InputProblem([error(code="usage", message="give one of " + ", ".join(f"--{k}" for k in kinds))])
    if report is not None:
        _check(report)
    try:
        document = validate_kind(
            kind=chosen[0] if chosen else "runs", path=file, engine=engine, group=group, profile=profile, site=site
        )
    except SiteError as problem:
        raise InputProblem([error(code="site", message=str(problem), file=str(site))]) from problem
    except UnreadableRowsError as problem:
        raise InputProblem([error(code="rows", message=str(problem), file=str(file) if file else None)]) from problem
    from planner.report.accuracy import print_accuracy, update_pages

    if readme:
        update_pages(paths=readme, document=document)
        sys.stderr.write(f"renewed the accuracy table of {', '.join(map(str, readme))}\n")
    if report is not None:
        _write(report, document=document, file=file)
    if json_:
        emit(document)
    else:
        print_accuracy(document=document, console=console())


def _check(page: Path) -> None:
    from planner.report.page import ReportError, check_page

    try:
        check_page(page)
    except ReportError as problem:
        raise InputProblem([error(code="report", message=str(problem), file=str(page))]) from problem


def _write(page: Path, *, document: dict[str, Any], file: Path | None) -> None:
    from planner.report.accuracy_html import accuracy_html
    from planner.report.page import write_page
    from planner.validate.explain import explain_worst

    worst = explain_worst(document=document, path=file)
    try:
        write_page(path=page, html=accuracy_html(answer=document, worst=worst, today=date.today()))
    except OSError as problem:
        raise InputProblem([error(code="report", message=f"cannot write: {problem}", file=str(page))]) from problem
    sys.stderr.write(f"wrote {page}\n")
