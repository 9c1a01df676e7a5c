"""The accuracy tables of docs/memory.md: `python -m planner.validate.memory_table docs/memory.md` renews them."""

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.validate.memory import is_plain, notes_of, packaged_rows, shape_of, validate_memory
from planner.validate.memory_time import fold_of
from planner.validate.runs import packaged_rows as packaged_runs
from planner.validate.runs import validate_row

Row = Mapping[str, str]
BEGIN, END = "<!-- memory accuracy: begin -->", "<!-- memory accuracy: end -->"
STRATA: dict[str, Callable[[Row], bool]] = {
    "plain decoders, trust A": lambda r: is_plain(r) and _trust(r) == "A",
    "experts, trust A": lambda r: not is_plain(r) and _trust(r) == "A",
    "all, trust A": lambda r: _trust(r) == "A",
    "all, trust B": lambda r: _trust(r) == "B",
}
RUN_SOURCES = ("SimuMax", "BigScience BLOOM", "BigScience V100", "torchtitan", "nanotron", "MLPerf", "InternEvo")


def _trust(row: Row) -> str:
    return notes_of(row).get("trust", "")


def _line(name: str, errors: Sequence[float]) -> str:
    size = [abs(e) for e in errors]
    mean, middle, bias = statistics.fmean(size), statistics.median(size), statistics.fmean(errors)
    return f"| {name} | {len(size)} | {mean:.2f} | {middle:.2f} | {bias:+.2f} | {max(size):.1f} |"


def golden_lines() -> Iterator[str]:
    """One line for each stratum, metric and half of the rows."""
    rows = packaged_rows()
    answers = validate_memory()
    yield "| rows | n | mean % | median % | bias % | worst % |"
    yield "|---|---|---|---|---|---|"
    for metric in ("memory_gb", "memory_steady_gb"):
        for name, belongs in STRATA.items():
            for half, label in ((None, ""), (0, ", one half"), (1, ", other half")):
                if half is not None and name.startswith(("plain", "experts")):
                    continue
                errors = [
                    a["zero_shot"]["error_pct"]
                    for a, r in zip(answers, rows, strict=True)
                    if a["zero_shot"] and a["metric"] == metric and belongs(r) and half in (None, fold_of(shape_of(r)))
                ]
                if errors:
                    yield _line(f"{metric}, {name}{label}", errors)


def run_lines() -> Iterator[str]:
    """Published memory figures by source, then refusals of plans that ran and of plans that did not."""
    answers: dict[str, dict[str, Any]] = {}
    for index, row in enumerate(packaged_runs()):
        answer = validate_row(index=index, row=row)
        if answer["skipped"] is None and answer["fits"] is not None:
            kind = {"oom": "oom", "memory_gb": "memory"}.get(row["metric"], "run")
            answers.setdefault(f"{kind}/{answer['config']}/{answer['id'] if kind == 'oom' else ''}", answer)
    yield "| published runs | n | mean % | median % | bias % | worst % |"
    yield "|---|---|---|---|---|---|"
    memory = [a for k, a in answers.items() if k.startswith("memory/")]
    for source in RUN_SOURCES:
        errors = [a["zero_shot"]["error_pct"] for a in memory if a["source"].startswith(source)]
        if errors:
            yield _line(source, errors)
    ran = {a["config"]: a["fits"] for k, a in answers.items() if not k.startswith("oom/")}
    died = [a["fits"] for k, a in answers.items() if k.startswith("oom/")]
    yield ""
    yield (
        f"Refused though they ran: {sum(not fits for fits in ran.values())} of {len(ran)} configurations. "
        f"Refused and did run out of memory: {sum(not fits for fits in died)} of {len(died)}."
    )


def renew(path: Path) -> None:
    """Replace the text between the markers.

    Raises:
        ValueError: the file has no markers.
    """
    text = path.read_text("utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path} has no {BEGIN} ... {END} block")
    body = "\n".join([*golden_lines(), "", *run_lines()])
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    temporary = path.with_suffix(".tmp")
    temporary.write_text(f"{head}{BEGIN}\n{body}\n{END}{tail}", "utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    renew(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/memory.md"))
