"""The command line: which commands there are, and how every error becomes one line or document and a code.

Exit codes: 0 fine, 1 input error, 2 no chosen strategy is feasible, 3 a stated goal is missed, 70 crash,
130 interrupted.
"""

import sys
from typing import Any

import typer

from planner.commands.claims import claims
from planner.commands.compare import compare
from planner.commands.fit import fit
from planner.commands.forecast import forecast
from planner.commands.import_run import import_run
from planner.commands.report import report
from planner.commands.roadmap import roadmap
from planner.commands.run import run
from planner.commands.schema import schema
from planner.commands.search import search
from planner.commands.sensitivity import sensitivity
from planner.commands.shared import CRASH, INPUT_ERROR, INTERRUPTED, OK, InputProblem, emit, error
from planner.commands.size import size
from planner.commands.sweep import sweep
from planner.commands.validate import validate

app = typer.Typer(
    help="Forecast training time, scaling, memory, cost and risk before a GPU cluster is bought.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    forecast,
    compare,
    roadmap,
    claims,
    search,
    size,
    sweep,
    sensitivity,
    run,
    validate,
    fit,
    import_run,
    report,
    schema,
):
    app.command()(command)


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
    except Exception as problem:
        if type(problem).__module__.startswith(("click", "typer")):
            _report(errors=[error(code="usage", message=_usage_text(problem))], as_json=as_json)
            raise SystemExit(INPUT_ERROR) from None
        _report(errors=[error(code="crash", message=f"{type(problem).__name__}: {problem}")], as_json=as_json)
        if not as_json:
            raise
        raise SystemExit(CRASH) from None
    raise SystemExit(code if isinstance(code, int) else OK)


def _usage_text(problem: Exception) -> str:
    formatter = getattr(problem, "format_message", None)
    return str(formatter()) if callable(formatter) else str(problem)


def _report(*, errors: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        emit({"schema_version": 1, "errors": errors})
        return
    for e in errors:
        place = ":".join(str(x) for x in (e["file"], e["line"]) if x)
        nearest = f" (nearest: {', '.join(map(str, e['nearest']))})" if e["nearest"] else ""
        path = f" {e['path']}:" if e["path"] else ""
        sys.stderr.write(f"{place + ':' if place else 'error:'}{path} {e['message']}{nearest}\n")


if __name__ == "__main__":
    main()
