"""`planner report`."""

import json
import sys
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from planner.commands.shared import Engine, InputProblem, ScenarioPath, check_engine, error, finish, load_resolved


def report(
    scenario: ScenarioPath,
    out: Annotated[Path, typer.Option(help="Document to write: .html, or .pdf with the extra `report`.")],
    json_dir: Annotated[Path | None, typer.Option(help="Write the answers it rests on into this folder.")] = None,
    engine: Engine = "events",
    replications: Annotated[int, typer.Option(min=10, max=100_000, help="Simulated runs of each strategy.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same report.")] = 0,
) -> None:
    """Write one self-contained document for a budget meeting."""
    from planner.decide.dossier import dossier
    from planner.forecast import ForecastError
    from planner.report.html import report_html
    from planner.report.page import ReportError, check_page, write_page

    check_engine(engine)
    try:
        check_page(out)
    except ReportError as problem:
        raise InputProblem([error(code="report", message=str(problem), file=str(out))]) from problem
    loaded = load_resolved(scenario)
    try:
        found = dossier(scenario=loaded, engine=engine, replications=replications, seed=seed)
    except ForecastError as problem:
        raise InputProblem([error(code="strategy", message=str(problem), file=str(scenario))]) from problem
    html = report_html(scenario=loaded.model_dump(mode="json"), gpus=loaded.gpus, dossier=found, today=date.today())
    try:
        write_page(path=out, html=html)
        if json_dir is not None:
            json_dir.mkdir(parents=True, exist_ok=True)
            for name, document in found.documents().items():
                _write_json(path=json_dir / f"{name}.json", document=document)
    except OSError as problem:
        raise InputProblem([error(code="report", message=f"cannot write: {problem}", file=str(out))]) from problem
    sys.stderr.write(f"wrote {out}\n")
    docs = found.comparison["strategies"]
    finish(feasible=any(d["feasible"] for d in docs.values()), docs=docs, scenario=loaded)


def _write_json(*, path: Path, document: object) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(document, indent=2, allow_nan=False, default=str) + "\n", "utf-8")
    temporary.replace(path)
