"""`planner compare`."""

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


def compare(scenario: ScenarioPath, engine: Engine = "events", json_: Json = False) -> None:
    """Compare the strategies of a scenario and say which to choose, and why."""
    from planner.decide.compare import compare as compare_strategies
    from planner.forecast import ForecastError

    check_engine(engine)
    loaded = load_resolved(scenario)
    try:
        comparison = compare_strategies(scenario=loaded, engine=engine)
    except ForecastError as problem:
        raise InputProblem([error(code="strategy", message=str(problem), file=str(scenario))]) from problem
    if json_:
        emit(comparison.document)
    else:
        from planner.report.text import print_comparison

        print_comparison(comparison=comparison, title=loaded.name, console=console())
    finish(feasible=comparison.feasible, docs=comparison.document["strategies"], scenario=loaded)
