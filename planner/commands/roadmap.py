"""`planner roadmap`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.commands.shared import (
    GOAL_MISSED,
    INFEASIBLE,
    InputProblem,
    Json,
    ScenarioPath,
    console,
    emit,
    error,
    load_resolved,
)


def roadmap(
    scenario: ScenarioPath,
    strategy: Annotated[str | None, typer.Option(help="Strategy to start from; the first by default.")] = None,
    history: Annotated[
        Path | None, typer.Option(help="Your improvement history: CSV with time_s and, where known, date.")
    ] = None,
    start: Annotated[str | None, typer.Option(help="First day of the work (ISO); today by default.")] = None,
    json_: Json = False,
) -> None:
    """Say what to optimise next, in which order, when it pays, and when to stop."""
    from datetime import date

    from planner.decide.roadmap import roadmap as build
    from planner.decide.stopping import HistoryError, read_history
    from planner.forecast import ForecastError

    loaded = load_resolved(scenario)
    try:
        day = date.fromisoformat(start) if start else None
        answer = build(scenario=loaded, name=strategy, history=read_history(history) if history else None, start=day)
    except (ForecastError, HistoryError) as problem:
        raise InputProblem([error(code="roadmap", message=str(problem), file=str(scenario))]) from problem
    except ValueError as problem:
        if start and "isoformat" in str(problem):
            raise InputProblem([error(code="usage", message=f"--start {start!r} is not an ISO day")]) from problem
        raise
    if json_:
        emit(answer.document)
    else:
        _print(document=answer.document, title=loaded.name)
    if not answer.document["feasible"]:
        raise typer.Exit(INFEASIBLE)
    target = answer.document["target"]
    if target["speedup"] is not None and target["p_road"] < loaded.goals.probability:
        sys.stderr.write(f"goal missed: {target['speedup']:g}x is reached with probability {target['p_road']:.2f}\n")
        raise typer.Exit(GOAL_MISSED)


def _print(*, document: dict[str, Any] | Any, title: str) -> None:
    from rich.table import Table

    out = console(soft_wrap=True)
    limits = document["ceilings"]
    if not document["feasible"]:
        out.print("does not fit, and no step makes it fit: more GPUs, heavier sharding or another layout is needed")
    out.print(f"[bold]{title}[/bold], from strategy {document['strategy']}")
    out.print(
        f"bottleneck: {document['bottleneck']}; ceilings: glue {limits['glue']:.1%}, "
        f"operator {limits['operator']:.1%}, parallel {limits['parallel']:.1%}; structural: only a pilot run tells"
    )
    if document["glue_first"]:
        out.print("idle and exposed time exceed 15 %: glue and overlap first")
    table = Table("step", "side", "gain", "alone", "weeks", "P", "cost", "saves", "pays back", "confidence")
    for s in document["steps"]:
        alone = s["gain_alone_frac"]
        table.add_row(
            s["key"],
            s["side"],
            f"{s['gain_frac']['p50']:.1%} ({s['gain_frac']['p10']:.1%} to {s['gain_frac']['p90']:.1%})",
            "-" if alone is None else f"{alone:.1%}",
            f"{s['effort_weeks']['low']:.2g}-{s['effort_weeks']['high']:.2g}",
            f"{s['p_success']:.2f}",
            f"${s['cost_usd']:,.0f}",
            f"${s['expected_saving_usd']:,.0f}",
            s["payback_date"] or "never",
            s["confidence"],
        )
    out.print(table)
    fall, stop, switch, target = (document[k] for k in ("waterfall", "cutoff", "switch_when", "target"))
    out.print(
        f"all steps: {fall['before_s']:.4g} s to {fall['after_s']:.4g} s, {fall['speedup']:.2f}x; together they give "
        f"{fall['interaction_rest_frac']:+.1%} beside the product of single gains"
    )
    out.print(
        f"cut-off after step {stop['after_steps']}: next is {stop['next']}, gains ${stop['next_gain_usd']:,.0f} for "
        f"${stop['next_cost_usd']:,.0f}: {'stop' if stop['stop'] else 'go on'}"
    )
    out.print(f"structural work: {switch['why']}")
    if target["speedup"]:
        need = "structural work is needed" if target["structural_needed"] else "incremental work suffices"
        out.print(
            f"target {target['speedup']:g}x: incremental alone with probability {target['p_incremental']:.2f}; {need}"
        )
