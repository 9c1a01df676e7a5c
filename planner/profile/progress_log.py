"""The log of a run that is going: a CSV with one row a period (a day, a week, a job), kept by whoever runs it.

A pure reader: text in, periods out, or every mistake of the file at once.
"""

import csv
import difflib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from planner.scenario.issues import Issue
from planner.scenario.units import count, seconds

MAX_BYTES = 20_000_000
STOPS = ("gpu", "memory", "network", "host", "software", "unknown", "planned", "preemption")
UNEXPECTED = STOPS[:6]
PROGRESS = ("tokens", "steps", "last_step")
HOURS = ("downtime_h", "planned_h", "preempted_h", "lost_work_h")
# Column -> what it holds; the order is that of the template.
COLUMNS: Mapping[str, str] = {
    "start": "first moment of the period: 2026-03-01 or 2026-03-01 08:00 (needed)",
    "end": "its last moment, at most the next row's start (needed)",
    "tokens": "tokens trained in it, work lost to rollbacks left out (this, steps or last_step is needed)",
    "steps": "or optimizer steps",
    "last_step": "or the number of the last step that stands at its end",
    "step_s": "seconds of a step while it runs, median",
    "gpus": "GPUs held; blank = those of the scenario",
    "downtime_h": "hours from unexpected stops to the next productive step",
    "planned_h": "hours of planned stops",
    "preempted_h": "hours without nodes after preemptions",
    "lost_work_h": "hours of work done again",
    **{f"stops_{cause}": "stops by cause; all blank = not logged, some blank = 0" for cause in STOPS},
    "cost_usd": "paid for the period, engineering before the start left out",
    "note": "not read",
}
# A step seen as a median is not the mean of the period's steps: this much more than the period holds is no mistake.
STEP_SLACK_FRAC = 0.05


class ProgressError(ValueError):
    """Everything that is wrong with the log."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        self.issues = tuple(sorted(issues, key=lambda i: (i.line or 0, i.path)))
        super().__init__("; ".join(f"{i.file}:{i.line}: {i.path}: {i.message}" for i in self.issues))


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """One row. None = not logged.

    Attributes:
        line: of the file, from 1.
        steps: progress in optimizer steps; below 0 where a rollback undid more than the period trained.
        stops: counts by cause of STOPS.
    """

    line: int
    start: datetime
    end: datetime
    steps: float
    step_s: float | None = None
    gpus: int | None = None
    downtime_h: float | None = None
    planned_h: float | None = None
    preempted_h: float | None = None
    lost_work_h: float | None = None
    stops: Mapping[str, int] | None = None
    cost_usd: float | None = None

    @property
    def hours(self) -> float:
        """Length of the period."""
        return (self.end - self.start).total_seconds() / 3600


def template() -> str:
    """A log to fill in: the header and two rows that show what a cell holds."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(COLUMNS), restval="", lineterminator="\n")
    writer.writeheader()
    shown = {"step_s": "33.1", "gpus": "256", "stops_gpu": "1", "stops_network": "0", "cost_usd": "15360"}
    writer.writerow(
        {
            "start": "2026-03-01",
            "end": "2026-03-02",
            "tokens": "2.05e10",
            "downtime_h": "1.1",
            "planned_h": "0",
            **shown,
        }
    )
    writer.writerow(
        {
            "start": "2026-03-02",
            "end": "2026-03-03",
            "tokens": "1.8e10",
            "downtime_h": "2.3",
            "planned_h": "1.5",
            "stops_planned": "1",
            "note": "switch firmware",
            **shown,
        }
    )
    return out.getvalue()


def read_progress(path: Path, *, tokens_per_step: float) -> tuple[Period, ...]:
    """Periods of a log, in time order.

    Args:
        path: CSV, columns of COLUMNS.
        tokens_per_step: turns tokens into steps.

    Raises:
        ProgressError: with every mistake of the file.
        OSError: the file cannot be read.
    """
    name = str(path)
    if path.stat().st_size > MAX_BYTES:
        raise ProgressError([Issue("size", name, None, "", f"larger than {MAX_BYTES} bytes")])
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProgressError([Issue("encoding", name, None, "", "not UTF-8 text")]) from error
    return parse_progress(text, file=name, tokens_per_step=tokens_per_step)


def parse_progress(text: str, *, tokens_per_step: float, file: str = "<text>") -> tuple[Period, ...]:
    """As `read_progress`, from text.

    Raises:
        ProgressError: with every mistake of the text.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
    header = [(h or "").strip() for h in reader.fieldnames or ()]
    issues = _header_issues(header=header, file=file)
    # Cells of a header that is not understood mean nothing.
    if issues:
        raise ProgressError(issues)
    reader.fieldnames = header
    found: list[Period] = []
    last_step = 0.0
    for row in reader:
        reading = _Row(row=row, line=reader.line_num, file=file)
        period, last_step = reading.period(tokens_per_step=tokens_per_step, last_step=last_step)
        issues += reading.issues
        if period is not None:
            found.append(period)
    if not found and not issues:
        issues.append(Issue("empty", file, None, "", "no rows; `planner run --from-template` prints two to start from"))
    issues += _order_issues(found, file=file)
    if issues:
        raise ProgressError(issues)
    return tuple(found)


def _header_issues(*, header: Sequence[str], file: str) -> list[Issue]:
    out = []
    if not any(header):
        return [Issue("empty", file, 1, "", "no header; `planner run --from-template` prints one")]
    for name in header:
        if name not in COLUMNS:
            near = tuple(difflib.get_close_matches(name, list(COLUMNS), n=3, cutoff=0.5))
            out.append(Issue("unknown_column", file, 1, name, f"unknown column {name!r}", near or tuple(COLUMNS)))
    for name in sorted({h for h in header if header.count(h) > 1}):
        out.append(Issue("duplicate_column", file, 1, name, f"column {name!r} stands twice"))
    out += [Issue("missing", file, 1, c, f"column {c!r} is needed") for c in ("start", "end") if c not in header]
    if not set(PROGRESS) & set(header):
        out.append(Issue("missing", file, 1, "tokens", "one column that counts progress is needed", PROGRESS))
    return out


def _order_issues(periods: Sequence[Period], *, file: str) -> list[Issue]:
    out = []
    if len({p.start.tzinfo is None for p in periods}) > 1:
        message = "some times carry a time zone and some do not"
        return [Issue("time", file, periods[0].line, "start", message, ("2026-03-01T08:00+00:00",))]
    for before, after in pairwise(periods):
        if after.start < before.end:
            near = (before.end.isoformat(sep=" "),)
            message = f"starts before line {before.line} ends ({before.end.isoformat(sep=' ')})"
            out.append(Issue("order", file, after.line, "start", message, near))
    return out


class _Row:
    """One row being read; mistakes gather in `issues`."""

    def __init__(self, *, row: Mapping[str | None, str | list[str]], line: int, file: str) -> None:
        self.cells = {k: v.strip() for k, v in row.items() if k is not None and isinstance(v, str)}
        self.line, self.file = line, file
        self.issues: list[Issue] = []
        if None in row:
            self._wrong("", f"{len(row[None])} more cells than the header has columns")

    def _wrong(self, key: str, message: str, nearest: tuple[str, ...] = ()) -> None:
        self.issues.append(Issue("row", self.file, self.line, key, message, nearest))

    def period(self, *, tokens_per_step: float, last_step: float) -> tuple[Period | None, float]:
        """The row's period, None where a cell is wrong, and the last step so far."""
        start, end = self._time("start"), self._time("end")
        steps, last_step = self._steps(tokens_per_step=tokens_per_step, last_step=last_step)
        step_s, cost = self._number("step_s", read=seconds), self._number("cost_usd")
        if step_s == 0:
            self._wrong("step_s", "0 is no step time; leave the cell blank where nothing ran")
        gpus = self._whole("gpus")
        if gpus == 0:
            self._wrong("gpus", "0 GPUs; leave a period without nodes out, or count it in preempted_h")
        hours = {key: self._number(key) for key in HOURS}
        stops = {cause: self._whole(f"stops_{cause}") for cause in STOPS}
        if start is not None and end is not None and (start.tzinfo is None) == (end.tzinfo is None):
            self._check_length(hours=(end - start) / timedelta(hours=1), parts=hours, steps=steps, step_s=step_s)
        elif start is not None and end is not None:
            self._wrong("end", "one of start and end carries a time zone and the other does not")
        if self.issues or start is None or end is None or steps is None:
            return None, last_step
        logged = {c: n or 0 for c, n in stops.items()} if any(n is not None for n in stops.values()) else None
        period = Period(
            line=self.line,
            start=start,
            end=end,
            steps=steps,
            step_s=step_s,
            gpus=gpus,
            **hours,
            stops=logged,
            cost_usd=cost,
        )
        return period, last_step

    def _time(self, key: str) -> datetime | None:
        text = self.cells.get(key, "")
        if not text:
            self._wrong(key, f"{key} is needed", ("2026-03-01 08:00",))
            return None
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            self._wrong(key, f"{text!r} is no ISO 8601 date or time", _dates_near(text) or ("2026-03-01 08:00",))
            return None

    def _number(self, key: str, *, read: object = count) -> float | None:
        text = self.cells.get(key, "")
        if not text:
            return None
        try:
            value = float(read(text))  # type: ignore[operator]
        except ValueError as error:
            plain = text.replace(",", "").replace(" ", "")
            near = (plain,) if plain != text and plain.replace(".", "", 1).isdigit() else ()
            self._wrong(key, str(error), near)
            return None
        if not math.isfinite(value) or value < 0:
            self._wrong(key, f"{text!r} is not a number of at least 0")
            return None
        return value

    def _whole(self, key: str) -> int | None:
        value = self._number(key)
        if value is None:
            return None
        if value != round(value):
            self._wrong(key, f"{value:g} is not a whole number", (f"{math.floor(value)}", f"{math.ceil(value)}"))
            return None
        return round(value)

    def _steps(self, *, tokens_per_step: float, last_step: float) -> tuple[float | None, float]:
        given = [key for key in PROGRESS if self.cells.get(key)]
        if len(given) != 1:
            said = "none is given" if not given else f"{' and '.join(given)} are given"
            self._wrong(given[-1] if given else "tokens", f"one of {', '.join(PROGRESS)} is needed; {said}", PROGRESS)
            return None, last_step
        value = self._number(given[0])
        if value is None:
            return None, last_step
        if given[0] == "last_step":
            return value - last_step, value
        steps = value / tokens_per_step if given[0] == "tokens" else value
        return steps, last_step + steps

    def _check_length(
        self, *, hours: float, parts: Mapping[str, float | None], steps: float | None, step_s: float | None
    ) -> None:
        if hours <= 0:
            self._wrong("end", "is not after start")
            return
        stopped = sum(v or 0.0 for v in parts.values())
        if stopped > hours * (1 + 1e-9):
            key = max((k for k in parts), key=lambda k: parts[k] or 0.0)
            self._wrong(key, f"{stopped:g} h of stops and lost work in a period of {hours:g} h")
        if steps is not None and step_s and steps * step_s > hours * 3600 * (1 + STEP_SLACK_FRAC):
            most = hours * 3600 / step_s
            message = f"{steps:.6g} steps of {step_s:g} s do not fit into {hours:g} h, which hold {most:.6g}"
            key = next(k for k in PROGRESS if self.cells.get(k))
            self._wrong(key, message, (f"{most:.6g} steps",))


def _dates_near(text: str) -> tuple[str, ...]:
    """What a date in another order of day, month and year may mean."""
    out = []
    for form in ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d-%m-%Y"):
        try:
            out.append(datetime.strptime(text, form).replace(tzinfo=UTC).date().isoformat())
        except ValueError:
            continue
    return tuple(dict.fromkeys(out))
