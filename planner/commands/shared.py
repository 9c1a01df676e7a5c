"""What every command needs: exit codes, error documents, loading a scenario, printing one JSON document."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from planner.decide.spread import Where

OK, INPUT_ERROR, INFEASIBLE, GOAL_MISSED, CRASH, INTERRUPTED = 0, 1, 2, 3, 70, 130

ScenarioPath = Annotated[Path, typer.Argument(help="Scenario YAML file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
Backend = Annotated[str, typer.Option(help="local (cores of this machine), or a running dask or ray cluster.")]
Address = Annotated[str | None, typer.Option(help="Scheduler of the cluster: tcp://HOST:8786 of Dask, auto of Ray.")]
Cores = Annotated[int | None, typer.Option(min=1, help="Cores of this machine to use; all by default.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Keep results in this .parquet or .jsonl file; the same call does only what it lacks."),
]
Engine = Annotated[str, typer.Option(help="events (SimPy) or fast (recurrence); the same plan.")]


class InputProblem(Exception):
    """Input errors to print and exit 1 with."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__(errors[0]["message"] if errors else "input error")
        self.errors = errors


PIPE_COLUMNS = 120


def error(*, code: str, message: str, file: str | None = None, nearest: list[str] | None = None) -> dict[str, Any]:
    """One entry of the error document of contract 1."""
    return {"code": code, "file": file, "line": None, "path": None, "message": message, "nearest": nearest or []}


def issue_document(issue: Any) -> dict[str, Any]:
    """One mistake of a file as an entry of the error document."""
    found = error(code=issue.code, message=issue.message, file=issue.file, nearest=list(issue.nearest))
    return found | {"line": issue.line, "path": issue.path}


def load(path: Path) -> Any:
    """The scenario of a file, or every mistake in it."""
    from planner.scenario import ScenarioError, load_scenario

    try:
        loaded = load_scenario(path)
    except ScenarioError as problem:
        raise InputProblem([issue_document(i) for i in problem.issues]) from problem
    except OSError as problem:
        raise InputProblem(
            [error(code="file", message=f"cannot read {path}: {problem.strerror}", file=str(path))]
        ) from problem
    if loaded.cluster.profile:
        _check_profile(scenario=loaded, path=path)
    return _equal(scenario=loaded, path=path) if loaded.cluster.also else loaded


def _equal(*, scenario: Any, path: Path) -> Any:
    """A mixed fleet as the equal fleet it runs like, with a word on which type sets the pace."""
    from planner.decide.mixed import equal_fleet
    from planner.forecast import ForecastError

    try:
        equal, told = equal_fleet(scenario)
    except ForecastError as problem:
        raise InputProblem([error(code="layout", message=str(problem), file=str(path))]) from problem
    say(told + "\n")
    return equal


def _check_profile(*, scenario: Any, path: Path) -> None:
    """Refuse a calibration profile that does not exist or is of another GPU, before anything is forecast."""
    from planner.forecast import ForecastError, check_profile
    from planner.profile.load import shipped

    try:
        check_profile(scenario)
    except ForecastError as problem:
        found = error(code="profile", message=str(problem), file=str(path), nearest=list(shipped()))
        raise InputProblem([found | {"path": "cluster.profile"}]) from problem


def load_resolved(path: Path, *, on: "Where | None" = None) -> Any:
    """The scenario of a file with every `auto` strategy replaced by its best plan, searched for on some workers."""
    from planner.decide.search import resolve_auto
    from planner.forecast import ForecastError

    loaded = load(path)
    if not any(isinstance(s, str) for s in loaded.strategies.values()):
        return loaded
    try:
        return resolve_auto(loaded) if on is None else resolve_auto(loaded, where=on)
    except ForecastError as problem:
        raise InputProblem([error(code="auto", message=str(problem), file=str(path))]) from problem


def console(**options: Any) -> Any:
    """Where text goes: as wide as the terminal, and wide enough for whole words where it is a file or a pipe."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS, **options)


def where(*, backend: str, address: str | None, cores: int | None, out: Path | None) -> "Where":
    """Where the tasks of a command run and where their results go."""
    from planner.decide.spread import BACKENDS, Where

    if backend not in BACKENDS:
        known = list(BACKENDS)
        raise InputProblem([error(code="usage", message=f"unknown --backend {backend!r}", nearest=known)])
    if (backend == "local") != (address is None):
        text = "--address is of a cluster: say --backend dask or ray" if address else f"--backend {backend} needs the"
        text += "" if address else " --address of a running cluster"
        raise InputProblem([error(code="usage", message=text)])
    if backend != "local" and cores is not None:
        raise InputProblem([error(code="usage", message="--cores is of this machine; a cluster brings its own")])
    return Where(backend=backend, address=address, cores=cores, out=out, say=say)


def say(text: str) -> None:
    """Progress and remarks on stderr; lines that overwrite themselves only where somebody looks.

    The dashboard looks through a file: it sets PLANNER_PROGRESS.
    """
    watched = sys.stderr.isatty() or "PLANNER_PROGRESS" in os.environ
    if watched or (text.strip() and "\r" not in text):
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def spreading(path: Path) -> Iterator[None]:
    """Turns what can go wrong with workers and files of results into an input error or an interruption."""
    from planner.decide.spread import SpreadError, Stopped

    try:
        yield
    except SpreadError as problem:
        raise InputProblem([error(code="spread", message=str(problem), file=str(path))]) from problem
    except Stopped as stop:
        sys.stderr.write(f"\ninterrupted: {stop.kept}\n")
        raise typer.Exit(INTERRUPTED) from None


def emit(document: Any) -> None:
    """Write exactly one JSON document to stdout."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, default=str) + "\n")


def check_engine(engine: str) -> None:
    """Refuse an unknown engine name."""
    if engine not in {"fast", "events"}:
        raise InputProblem([error(code="engine", message=f"unknown engine {engine!r}", nearest=["events", "fast"])])


def finish(*, feasible: bool, docs: Any, scenario: Any) -> None:
    """Exit 2 when nothing is feasible, 3 when a goal is missed."""
    if not feasible:
        raise typer.Exit(INFEASIBLE)
    from planner.decide.goals import missed_goals

    missed = missed_goals(scenario=scenario, docs=docs)
    for text in missed:
        sys.stderr.write(f"goal missed: {text}\n")
    if missed:
        raise typer.Exit(GOAL_MISSED)
