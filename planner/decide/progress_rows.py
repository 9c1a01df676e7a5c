"""Measured steps of a run that is going as rows of the runs table (`planner import-run`): no dates, no stops."""

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path

from planner.decide.progress_actual import Planned
from planner.profile.progress_log import ProgressError
from planner.scenario.issues import Issue
from planner.validate.units import predicted_value

RATES = ("tokens_per_s_per_gpu", "mfu_pct", "tflops_per_gpu")
METRICS = ("step_time_s", *RATES)
# Column of the runs table -> attribute of the layout.
SAME = {
    **{k: k for k in ("tp", "pp", "vpp", "dp", "cp", "ep", "zero_stage")},
    **{"n_gpus": "gpus", "seq": "sequence", "gbs": "global_batch", "mbs": "micro_batch"},
}


def is_runs_table(path: Path) -> bool:
    """Whether a CSV has the columns of the runs table instead of periods."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        header = [h.strip() for h in next(csv.reader(file), [])]
    return "metric" in header and "measured" in header


def step_ratios(*, path: Path, planned: Planned) -> tuple[float, ...]:
    """Measured over planned step of every row.

    Raises:
        ProgressError: with every row that is not one of this plan, or that tells no step.
        OSError: the file cannot be read.
    """
    text = path.read_text("utf-8-sig", errors="replace")
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
    issues: list[Issue] = []
    out: list[float] = []
    for row in reader:
        cells = {(k or "").strip(): v.strip() for k, v in row.items() if isinstance(v, str)}
        found, ratio = _read(row=cells, line=reader.line_num, file=str(path), planned=planned)
        issues += found
        out += [] if ratio is None else [ratio]
    if not out and not issues:
        issues.append(Issue("empty", str(path), None, "", "no rows"))
    if issues:
        raise ProgressError(issues)
    return tuple(out)


def _read(*, row: Mapping[str, str], line: int, file: str, planned: Planned) -> tuple[list[Issue], float | None]:
    issues: list[Issue] = []
    layout, answer = planned.forecast.resolved.layout, planned.forecast.answer
    metric = row.get("metric", "")
    if metric not in METRICS:
        issues.append(Issue("row", file, line, "metric", f"{metric!r} tells no step time", METRICS))
    for column, key in SAME.items():
        text, plan = row.get(column, ""), getattr(layout, key)
        if text and _number(text) != plan:
            message = f"{text!r} is another plan than the one that runs"
            issues.append(Issue("row", file, line, column, message, (f"{plan}",)))
    measured = _number(row.get("measured", ""))
    if measured is None or measured <= 0:
        issues.append(Issue("row", file, line, "measured", f"{row.get('measured', '')!r} is not a number above 0"))
    if issues or not measured:
        return issues, None
    predicted = predicted_value(row=row, answer=answer, layout=layout, peak_default=answer.peak_flops) or 0.0
    return [], (measured / predicted if metric == "step_time_s" else predicted / measured)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
