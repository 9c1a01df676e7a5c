"""Commands. Talk goes to stderr, the answer to stdout; no arithmetic here.

Exit codes: 0 fine, 1 input error, 2 no chosen strategy is feasible, 3 a stated goal is missed, 70 crash,
130 interrupted.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

OK, INPUT_ERROR, INFEASIBLE, GOAL_MISSED, CRASH, INTERRUPTED = 0, 1, 2, 3, 70, 130

app = typer.Typer(
    help="Forecast training time, scaling, memory, cost and risk before a GPU cluster is bought.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
ScenarioPath = Annotated[Path, typer.Argument(help="Scenario YAML file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
Engine = Annotated[str, typer.Option(help="events (SimPy) or fast (recurrence); the same plan.")]


class InputProblem(Exception):
    """Input errors to print and exit 1 with."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__(errors[0]["message"] if errors else "input error")
        self.errors = errors


def _error(*, code: str, message: str, file: str | None = None, nearest: list[str] | None = None) -> dict[str, Any]:
    return {"code": code, "file": file, "line": None, "path": None, "message": message, "nearest": nearest or []}


def _load(path: Path) -> Any:
    from planner.scenario import ScenarioError, load_scenario

    try:
        return load_scenario(path)
    except ScenarioError as error:
        raise InputProblem(
            [
                {
                    "code": i.code,
                    "file": i.file,
                    "line": i.line,
                    "path": i.path,
                    "message": i.message,
                    "nearest": list(i.nearest),
                }
                for i in error.issues
            ]
        ) from error
    except OSError as error:
        raise InputProblem(
            [_error(code="file", message=f"cannot read {path}: {error.strerror}", file=str(path))]
        ) from error


def _emit(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, default=str) + "\n")


def _check_engine(engine: str) -> None:
    if engine not in {"fast", "events"}:
        raise InputProblem([_error(code="engine", message=f"unknown engine {engine!r}", nearest=["events", "fast"])])


@app.command()
def forecast(
    scenario: ScenarioPath,
    strategy: Annotated[str | None, typer.Option(help="One strategy; all by default.")] = None,
    engine: Engine = "events",
    trace: Annotated[Path | None, typer.Option(help="Write a Perfetto trace (.json.gz) of one step.")] = None,
    json_: Json = False,
) -> None:
    """Forecast each strategy of a scenario."""
    from planner.forecast import ForecastError, forecast_strategy, step_spans

    _check_engine(engine)
    loaded = _load(scenario)
    names = [strategy] if strategy else list(loaded.strategies)
    unknown = [n for n in names if n not in loaded.strategies]
    if unknown:
        raise InputProblem(
            [
                _error(
                    code="strategy",
                    message=f"no strategy {unknown[0]!r}",
                    file=str(scenario),
                    nearest=list(loaded.strategies),
                )
            ]
        )
    try:
        forecasts = {n: forecast_strategy(scenario=loaded, name=n, engine=engine) for n in names}
    except ForecastError as error:
        raise InputProblem([_error(code="strategy", message=str(error), file=str(scenario))]) from error
    if trace is not None:
        from planner.simulate.trace import write_trace

        write_trace(trace, step_spans(scenario=loaded, forecast=forecasts[names[-1]]))
        sys.stderr.write(f"wrote {trace}: one step of {names[-1]}\n")
    docs = {n: f.document for n, f in forecasts.items()}
    if json_:
        _emit(docs[names[0]] if len(docs) == 1 else {"schema_version": 1, "strategies": docs})
    else:
        from rich.console import Console

        from planner.report.text import print_documents

        print_documents(docs=docs, title=loaded.name, console=Console())
    _finish(feasible=any(f.resolved.fits for f in forecasts.values()), docs=docs, scenario=loaded)


@app.command()
def compare(scenario: ScenarioPath, engine: Engine = "events", json_: Json = False) -> None:
    """Compare the strategies of a scenario and say which to choose, and why."""
    from planner.decide.compare import compare as compare_strategies
    from planner.forecast import ForecastError

    _check_engine(engine)
    loaded = _load(scenario)
    try:
        comparison = compare_strategies(scenario=loaded, engine=engine)
    except ForecastError as error:
        raise InputProblem([_error(code="strategy", message=str(error), file=str(scenario))]) from error
    if json_:
        _emit(comparison.document)
    else:
        from rich.console import Console

        from planner.report.text import print_comparison

        print_comparison(comparison=comparison, title=loaded.name, console=Console())
    _finish(feasible=comparison.feasible, docs=comparison.document["strategies"], scenario=loaded)


def _finish(*, feasible: bool, docs: Any, scenario: Any) -> None:
    if not feasible:
        raise typer.Exit(INFEASIBLE)
    from planner.decide.goals import missed_goals

    missed = missed_goals(scenario=scenario, docs=docs)
    for text in missed:
        sys.stderr.write(f"goal missed: {text}\n")
    if missed:
        raise typer.Exit(GOAL_MISSED)


@app.command()
def validate(
    file: Annotated[
        Path | None, typer.Argument(help="CSV of measured rows; the packaged public rows by default.")
    ] = None,
    runs: Annotated[bool, typer.Option("--runs", help="Published or own training runs (default).")] = False,
    kernels: Annotated[bool, typer.Option("--kernels", help="Single kernels.")] = False,
    collectives: Annotated[bool, typer.Option("--collectives", help="Collective operations.")] = False,
    engine: Engine = "fast",
    group: Annotated[str | None, typer.Option(help="Only groups whose name contains this text.")] = None,
    readme: Annotated[Path | None, typer.Option(help="Renew the accuracy table of this README.")] = None,
    json_: Json = False,
) -> None:
    """Judge forecasts on measured rows, with the constant-MFU baseline beside them."""
    from planner.validate.command import UnreadableRowsError, validate_kind

    _check_engine(engine)
    chosen = [k for k, on in (("runs", runs), ("kernels", kernels), ("collectives", collectives)) if on]
    if len(chosen) > 1:
        raise InputProblem([_error(code="usage", message="give one of --runs, --kernels, --collectives")])
    try:
        document = validate_kind(kind=chosen[0] if chosen else "runs", path=file, engine=engine, group=group)
    except UnreadableRowsError as error:
        raise InputProblem([_error(code="rows", message=str(error), file=str(file) if file else None)]) from error
    from planner.report.accuracy import print_accuracy, update_readme

    if readme is not None:
        update_readme(path=readme, document=document)
        sys.stderr.write(f"renewed the accuracy table of {readme}\n")
    if json_:
        _emit(document)
    else:
        from rich.console import Console

        print_accuracy(document=document, console=Console())


@app.command()
def schema() -> None:
    """Print the JSON Schema of a scenario file."""
    from planner.scenario import Scenario

    _emit(Scenario.model_json_schema())


def main() -> None:
    """Run the command line; every error becomes one line (or one JSON document) and a code."""
    as_json = "--json" in sys.argv
    try:
        code = app(standalone_mode=False)
    except InputProblem as problem:
        _report(errors=problem.errors, as_json=as_json)
        raise SystemExit(INPUT_ERROR) from None
    except typer.Exit as done:
        raise SystemExit(done.exit_code) from None
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted\n")
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if type(error).__module__.startswith(("click", "typer")):
            _report(errors=[_error(code="usage", message=_usage_text(error))], as_json=as_json)
            raise SystemExit(INPUT_ERROR) from None
        _report(errors=[_error(code="crash", message=f"{type(error).__name__}: {error}")], as_json=as_json)
        if not as_json:
            raise
        raise SystemExit(CRASH) from None
    raise SystemExit(code if isinstance(code, int) else OK)


def _usage_text(error: Exception) -> str:
    formatter = getattr(error, "format_message", None)
    return str(formatter()) if callable(formatter) else str(error)


def _report(*, errors: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        _emit({"schema_version": 1, "errors": errors})
        return
    for e in errors:
        place = ":".join(str(x) for x in (e["file"], e["line"]) if x)
        nearest = f" (nearest: {', '.join(map(str, e['nearest']))})" if e["nearest"] else ""
        path = f" {e['path']}:" if e["path"] else ""
        sys.stderr.write(f"{place + ':' if place else 'error:'}{path} {e['message']}{nearest}\n")


if __name__ == "__main__":
    main()
