"""`planner forecast`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.commands.shared import (
    Engine,
    InputProblem,
    Json,
    ScenarioPath,
    check_engine,
    console,
    emit,
    error,
    finish,
    load_resolved,
)


def forecast(
    scenario: ScenarioPath,
    strategy: Annotated[str | None, typer.Option(help="One strategy; all by default.")] = None,
    engine: Engine = "events",
    trace: Annotated[Path | None, typer.Option(help="Write a Perfetto trace (.json.gz) of one step.")] = None,
    json_: Json = False,
) -> None:
    """Forecast each strategy of a scenario."""
    from planner.decide.relax import relaxed
    from planner.forecast import ForecastError, forecast_strategy, step_spans

    check_engine(engine)
    loaded = load_resolved(scenario)
    names = [strategy] if strategy else list(loaded.strategies)
    unknown = [n for n in names if n not in loaded.strategies]
    if unknown:
        raise InputProblem(
            [
                error(
                    code="strategy",
                    message=f"no strategy {unknown[0]!r}",
                    file=str(scenario),
                    nearest=list(loaded.strategies),
                )
            ]
        )
    try:
        forecasts = {n: forecast_strategy(scenario=loaded, name=n, engine=engine) for n in names}
    except ForecastError as problem:
        raise InputProblem([error(code="strategy", message=str(problem), file=str(scenario))]) from problem
    if trace is not None:
        from planner.simulate.trace import write_trace

        write_trace(trace, step_spans(scenario=loaded, forecast=forecasts[names[-1]]))
        sys.stderr.write(f"wrote {trace}: one step of {names[-1]}\n")
    docs = {n: {**f.document, "relax": relaxed(scenario=loaded, forecast=f)} for n, f in forecasts.items()}
    if json_:
        emit(docs[names[0]] if len(docs) == 1 else {"schema_version": 1, "strategies": docs})
    else:
        from planner.report.text import print_documents

        print_documents(docs=docs, title=loaded.name, console=console())
    finish(feasible=any(f.resolved.fits for f in forecasts.values()), docs=docs, scenario=loaded)
