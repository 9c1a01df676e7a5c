"""`planner claims`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from planner.commands.shared import InputProblem, Json, console, emit, error

SHIPPED = Path(__file__).resolve().parents[2] / "scenarios" / "claims"
CROSSOVERS = {
    "gpt2-124m-crossover-h200": ("gpt2", "gpt2-medium", "gpt2-large"),
    "llama-1b-crossover-h200": ("llama3.2-1b", "llama3.2-3b"),
}
PAGE_MICRO_BATCHES = (1, 4, 16, 64)


def claims(
    directory: Annotated[Path, typer.Argument(help="Directory of claims; the shipped ones by default.")] = SHIPPED,
    only: Annotated[str | None, typer.Option(help="Only claims whose id contains this text.")] = None,
    page: Annotated[Path | None, typer.Option(help="Renew docs/roadmap.md and the three stories beside it.")] = None,
    json_: Json = False,
) -> None:
    """Put folklore to the test: what the model finds for each sentence, and when it holds."""
    from planner.decide.claims import ClaimError, judge, read_claim

    paths = [p for p in sorted(directory.glob("*.yaml")) if not only or only in p.stem]
    if not paths:
        raise InputProblem([error(code="claims", message=f"no claims in {directory}", file=str(directory))])
    try:
        answers = [judge(read_claim(p)) for p in paths]
    except ClaimError as problem:
        raise InputProblem([error(code="claims", message=str(problem), file=str(directory))]) from problem
    if page is not None:
        try:
            _renew(page=page, answers=answers)
        except (OSError, ValueError) as problem:
            raise InputProblem([error(code="page", message=str(problem), file=str(page))]) from problem
    if json_:
        emit(answers)
    else:
        _print(answers)


def _renew(*, page: Path, answers: list[dict[str, Any]]) -> None:
    """Renew every generated block of the roadmap page and of the three story pages beside it."""
    import statistics

    from planner.decide.claims import STORIES
    from planner.decide.roadmap import roadmap
    from planner.decide.stopping import read_history, rolling_origin
    from planner.report.stories import claims_table, gains_table, renew, roads_table
    from planner.scenario import load_scenario
    from planner.validate.command import validate_kind

    scenarios = [load_scenario(p) for p in sorted(SHIPPED.parent.glob("*.yaml"))]
    roads = {s.name: roadmap(scenario=s).document for s in scenarios}
    scores = validate_kind(kind="gains", path=None, engine="fast", group=None)["summary"]["gains"]
    origin = rolling_origin(history=read_history())
    errors = sorted(e.error_pct for e in origin)
    stopping = (
        f"{len(origin)} origins from record 25, ten ahead: median error {statistics.median(errors):.1f} %, "
        f"90th percentile {errors[round(0.9 * (len(errors) - 1))]:.1f} %; standing still errs by "
        f"{statistics.median(e.persistence_pct for e in origin):.1f} %. P10-P90 holds "
        f"{100 * statistics.fmean(e.inside for e in origin):.0f} %."
    )
    renew(path=page, blocks={"roads": roads_table(roads), "gains": gains_table(scores), "stopping": stopping})
    for story in STORIES:
        blocks = {story: claims_table(answers=answers, story=story)}
        if story == "operator-or-glue":
            blocks["crossover"] = _crossover()
        renew(path=page.with_name(f"{story}.md"), blocks=blocks)


def _crossover() -> str:
    """The shipped crossover scenarios at each model size, as a table."""
    from planner.decide.crossover import crossover_document
    from planner.report.crossover import crossover_table
    from planner.scenario import Scenario, load_scenario

    documents = {}
    for stem, models in CROSSOVERS.items():
        loaded = load_scenario(SHIPPED.parent / f"{stem}.yaml")
        for model in models:
            one = Scenario.model_validate(loaded.model_dump(mode="json") | {"model": model})
            name = next(iter(one.strategies))
            documents[model] = crossover_document(scenario=one, name=name, micro_batches=PAGE_MICRO_BATCHES)
    return crossover_table(documents)


def _print(answers: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("claim", "verdict", "claimed", "found", "holds when")
    for a in answers:
        n, limits = a["numbers"], a["numbers"]["claimed"]
        claimed = " to ".join(f"{v:g}" for v in (limits["low"], limits["high"]) if v is not None)
        side = "" if None not in limits.values() else ("over " if limits["high"] is None else "under ")
        low, high = n["range"]
        when = ", ".join(a["conditions"]["holds_when"]) if a["verdict"] == "holds_when" else ""
        table.add_row(a["sentence"], a["verdict"], side + claimed, f"{low:.3g} to {high:.3g} {n['unit']}", when)
    console().print(table)
