"""Training logs as they are found: the seconds or tokens of each step from whatever a framework prints.

A pure parser: lines in, records out. It never guesses a number: what it does not know it skips, and counts.
"""

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MAX_LINE = 20_000
WARMUP_LINES, WARMUP_FRAC = 5, 0.2
NUM = r"(?:[-+]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?|\?|nan|NaN|inf|N/?A|None)"
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class LogError(ValueError):
    """A log that tells no step time; `line` is the one that decided, None where no line did."""

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Record:
    """One step line. Exactly one of the four figures is set, or none where the line prints no usable number."""

    line: int
    step: int | None = None
    total: int | None = None
    seconds: float | None = None
    tokens_per_s_per_gpu: float | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    global_batch: int | None = None

    @property
    def value(self) -> float | None:
        """The figure that is set."""
        figures = (self.seconds, self.tokens_per_s_per_gpu, self.tokens_per_s, self.samples_per_s)
        return next((f for f in figures if f is not None), None)

    @property
    def kind(self) -> str:
        """Which figure it is."""
        names = ("seconds", "tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s")
        return next((n for n in names if getattr(self, n) is not None), "")


@dataclass(frozen=True, slots=True)
class Format:
    """How one framework prints a step.

    Attributes:
        name: for messages and notes.
        framework: word that the runs table knows the framework by.
        pattern: groups `step`, `total` and one figure: `s`, `ms`, `per_s` (steps a second), `tps_gpu`, `sps`
            (samples a second).
        step: finds `step` and `total` where they stand apart from the figure: in the same line, or in one before it.
    """

    name: str
    framework: str
    pattern: re.Pattern[str]
    step: re.Pattern[str] | None = None


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace("NUM", NUM))


_COMPOSER_STEP = re.compile(r"\[batch=(?P<step>\d+)(?:/(?P<total>\d+))?\]")
_NEMO_STEP = re.compile(r"(?:\biteration |\bglobal_step=)(?P<step>\d+)(?:/(?P<total>\d+))?")
_GLOBAL_BATCH = re.compile(r"global[ _]batch[ _]size:\s*(\d+)")
# First match wins where a log holds several: a framework's own figure before a progress bar's running mean.
FORMATS: tuple[Format, ...] = (
    Format(
        "Megatron-LM",
        "Megatron-LM",
        _pattern(
            r"iteration\s+(?P<step>\d+)\s*/\s*(?P<total>\d+)\s*\|"
            r".*elapsed time per iteration \((?:ms\): (?P<ms>NUM)|s\): (?P<s>NUM))"
        ),
    ),
    Format("NeMo", "NeMo", _pattern(r"train_step_timing in s[=:]\s*(?P<s>NUM)"), _NEMO_STEP),
    Format("MaxText", "MaxText (JAX)", _pattern(r"completed step:?\s*(?P<step>\d+),\s*(?:in )?seconds:?\s*(?P<s>NUM)")),
    Format("torchtitan", "torchtitan", _pattern(r"step:\s*(?P<step>\d+)\s+loss:.*\b(?:tps|wps):\s*(?P<tps_gpu>NUM)")),
    Format("llm.c", "llm.c", _pattern(r"step\s+(?P<step>\d+)/(?P<total>\d+)\s*\|.*\|\s*(?P<ms>NUM) ms\s*\|.*tok/s")),
    Format("nanoGPT", "nanoGPT", _pattern(r"iter (?P<step>\d+): loss .*\btime (?P<ms>NUM) ?ms")),
    Format("nanochat", "nanoGPT", _pattern(r"step (?P<step>\d+).*\|\s*dt: (?P<ms>NUM) ?ms")),
    Format(
        "llm-foundry",
        "llm-foundry (FSDP)",
        _pattern(r"throughput/device/tokens_per_sec: (?P<tps_gpu>NUM)"),
        _COMPOSER_STEP,
    ),
    Format(
        "llm-foundry batches",
        "llm-foundry (FSDP)",
        _pattern(r"throughput/batches_per_sec: (?P<per_s>NUM)"),
        _COMPOSER_STEP,
    ),
    Format("DeepSpeed", "DeepSpeed", _pattern(r"global_step=(?P<step>\d+),.*CurrSamplesPerSec=(?P<sps>NUM)")),
    Format(
        "progress bar",
        "PyTorch",
        _pattern(r"(?P<step>\d+)/(?P<total>\d+) \[[\d:]+<[^,\]]*,\s*(?:(?P<s>NUM) ?s/it|(?P<per_s>NUM) ?it/s)"),
    ),
    Format("HF Trainer summary", "PyTorch", _pattern(r"'train_steps_per_second': (?P<per_s>NUM)")),
)
JSON_FORMAT = "JSON lines"
JSON_KEYS: Mapping[str, tuple[tuple[str, ...], float]] = {  # record field: keys, factor
    "seconds": (
        ("step_time_s", "step_time", "iteration_time", "iter_time", "time_per_step", "train_step_timing in s"),
        1.0,
    ),
    "milliseconds": (("step_time_ms", "iter_time_ms", "iteration_time_ms", "elapsed time per iteration (ms)"), 1e-3),
    "tokens_per_s_per_gpu": (
        (
            *("tokens_per_s_per_gpu", "tokens_per_second_per_gpu", "tokens_per_sec_per_gpu", "throughput(tps)"),
            *("throughput/device/tokens_per_sec", "tps"),
        ),
        1.0,
    ),
    "tokens_per_s": (
        ("tokens_per_s", "tokens_per_sec", "tokens_per_second", "tok_per_sec", "throughput/tokens_per_sec"),
        1.0,
    ),
    "samples_per_s": (("samples_per_s", "samples_per_sec", "samples_per_second", "throughput/samples_per_sec"), 1.0),
}
STEP_KEYS = ("step", "iteration", "iter", "global_step", "batch")
BATCH_KEYS = ("global_batch_size", "global_batch")
# Arguments that Megatron prints before it starts, as `name ..... value`.
ARGUMENT = re.compile(r"^\s*(?:\[?\w+\]?:\s*)?(?P<name>[a-z_]+) \.{3,}\s*(?P<value>\S+)\s*$")
ARGUMENTS: Mapping[str, str] = {
    "world_size": "n_gpus",
    "seq_length": "seq",
    "global_batch_size": "gbs",
    "micro_batch_size": "mbs",
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "virtual_pipeline_model_parallel_size": "vpp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "data_parallel_size": "dp",
}


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """What a log tells.

    Attributes:
        format: name of the format that was read.
        framework: word for the runs table.
        records: step lines in file order, those without a usable number left out.
        unusable: step lines without one (N/A, NaN, cut off).
        settings: printed arguments as (column, value, line).
        lines: lines of the file.
    """

    format: str
    framework: str
    records: tuple[Record, ...]
    unusable: int
    settings: tuple[tuple[str, int, int], ...]
    lines: int


@dataclass
class _Seen:
    """Records of one format while reading."""

    records: list[Record] = field(default_factory=list)
    unusable: int = 0
    last: int = 0
    step: tuple[int | None, int | None] = (None, None)


def _number(text: str | None) -> float | None:
    """A positive finite number, else None."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _whole(text: Any) -> int | None:
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def _of_match(match: re.Match[str], *, line: int, where: tuple[int | None, int | None]) -> Record:
    groups = match.groupdict()
    batch = _GLOBAL_BATCH.search(match.string)
    record = Record(
        line,
        where[0] if groups.get("step") is None else _whole(groups["step"]),
        where[1] if groups.get("total") is None else _whole(groups["total"]),
        global_batch=_whole(batch[1]) if batch else None,
    )
    milliseconds, rate = _number(groups.get("ms")), _number(groups.get("per_s"))
    seconds = _number(groups.get("s"))
    if milliseconds is not None:
        seconds = milliseconds / 1e3
    elif rate is not None:
        seconds = 1.0 / rate
    return replace(
        record,
        seconds=seconds,
        tokens_per_s_per_gpu=_number(groups.get("tps_gpu")),
        samples_per_s=_number(groups.get("sps")),
    )


def _of_json(text: str, *, line: int) -> Record | None:
    """A record of one JSON object; None where it is no object or names no figure."""
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    for name, (keys, factor) in JSON_KEYS.items():
        key = next((k for k in keys if k in data), None)
        if key is None:
            continue
        value = _number(str(data[key]))
        record = Record(
            line,
            next((_whole(data[k]) for k in STEP_KEYS if k in data), None),
            global_batch=next((_whole(data[k]) for k in BATCH_KEYS if k in data), None),
        )
        if value is None:
            return record
        figure: dict[str, Any] = {"seconds" if name == "milliseconds" else name: value * factor}
        return replace(record, **figure)
    return None


def parse_log(lines: Iterable[str]) -> TrainingLog:
    """Read a log.

    Raises:
        LogError: no line of a known format holds a usable figure.
    """
    seen: dict[str, _Seen] = {}
    settings: dict[str, tuple[int, int]] = {}
    count = 0
    for raw in lines:
        count += 1
        # Progress bars overwrite themselves with carriage returns.
        for piece in raw.rstrip("\r\n").split("\r"):
            text = ANSI.sub("", piece[:MAX_LINE])
            _argument(settings=settings, text=text, line=count)
            record = _of_json(text, line=count) if text.lstrip().startswith("{") and '"' in text else None
            if record is not None:
                _keep(seen.setdefault(JSON_FORMAT, _Seen()), record)
            else:
                _match(seen=seen, text=text, line=count)
    for name in (JSON_FORMAT, *(f.name for f in FORMATS)):
        found = seen.get(name)
        if found and found.records:
            framework = next((f.framework for f in FORMATS if f.name == name), "")
            stated = tuple((k, v, line) for k, (v, line) in settings.items())
            return TrainingLog(name, framework, tuple(found.records), found.unusable, stated, count)
    read = [(s.last, n) for n, s in seen.items() if s.unusable]
    if read:
        last, name = max(read)
        raise LogError(f"step lines look like {name}, but none holds a usable step time", line=last)
    known = ", ".join([*(f.name for f in FORMATS), JSON_FORMAT])
    raise LogError(f"no step time in {count} lines; known: {known}", line=count or None)


def _argument(*, settings: dict[str, tuple[int, int]], text: str, line: int) -> None:
    found = ARGUMENT.match(text)
    value = _whole(found["value"]) if found and found["name"] in ARGUMENTS else None
    if found and value:
        settings[ARGUMENTS[found["name"]]] = (value, line)


def _match(*, seen: dict[str, _Seen], text: str, line: int) -> None:
    for form in FORMATS:
        where = form.step.search(text) if form.step else None
        match = form.pattern.search(text)
        if where is None and match is None:
            continue
        found = seen.setdefault(form.name, _Seen())
        if where is not None:
            found.step = (_whole(where["step"]), _whole(where["total"]))
        if match:
            _keep(found, _of_match(match, line=line, where=found.step))


def _keep(where: _Seen, record: Record) -> None:
    where.last = record.line
    if record.value is None:
        where.unusable += 1
    else:
        where.records.append(record)


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady part of a log.

    Attributes:
        kind: field of `Record` that `median` is of.
        median, p10, p90: of the lines kept, in that field's unit.
        kept: lines kept.
        dropped: lines dropped as warm-up, after restarts too.
        restarts: how often the step number went back.
        global_batch: as printed on the lines kept, None where it is not.
        line: the first line kept.
    """

    kind: str
    median: float
    p10: float
    p90: float
    kept: int
    dropped: int
    restarts: int
    global_batch: int | None
    line: int


def steady(log: TrainingLog, *, warmup: int | None = None) -> Steady:
    """Median of the steady step lines.

    Of each stretch (a run until its step number goes back) the first lines are warm-up: `warmup` of them, by default
    a fifth and at most five. Repeats of a step by other ranks, bars of another length (evaluation) and, where the batch
    grew during the run, lines of any batch but the last are left out.

    Raises:
        LogError: no line is left.
    """
    records = _one_series(log.records)
    stretches = _stretches(records)
    kept: list[Record] = []
    for stretch in stretches:
        by_default = min(WARMUP_LINES, math.ceil(WARMUP_FRAC * len(stretch))) if len(stretch) > 1 else 0
        kept += stretch[by_default if warmup is None else warmup :]
    if not kept:
        raise LogError(f"warm-up of {warmup} lines leaves none of {len(records)} step lines", line=records[-1].line)
    values = sorted(r.value for r in kept if r.value is not None)
    return Steady(
        kind=kept[0].kind,
        median=statistics.median(values),
        p10=values[round(0.1 * (len(values) - 1))],
        p90=values[round(0.9 * (len(values) - 1))],
        kept=len(kept),
        dropped=sum(map(len, stretches)) - len(kept),
        restarts=len(stretches) - 1,
        global_batch=kept[-1].global_batch,
        line=kept[0].line,
    )


def _one_series(records: Sequence[Record]) -> list[Record]:
    """Lines of the last line's figure and batch, and of the longest loop (others load or evaluate)."""
    kind, batch = records[-1].kind, records[-1].global_batch
    same = [r for r in records if r.kind == kind and r.global_batch in {None, batch}]
    loops: dict[int, list[Record]] = {}
    for r in same:
        if r.total is not None:
            loops.setdefault(r.total, []).append(r)
    if len(loops) < 2:
        return same
    longest = max(loops, key=lambda total: _planned(total=total, loop=loops[total]))
    return [r for r in same if r.total in {None, longest}]


def _planned(*, total: int, loop: Sequence[Record]) -> float:
    """How long a loop takes in all: seconds, or steps where lines print no seconds."""
    seconds = [r.seconds for r in loop if r.seconds]
    return total * statistics.median(seconds) if seconds else float(total)


def _stretches(records: Sequence[Record]) -> list[list[Record]]:
    out: list[list[Record]] = []
    last: int | None = None
    for record in records:
        if last is None or record.step is None or record.step > last:
            if not out:
                out.append([])
            out[-1].append(record)
        elif record.step < last:
            out.append([record])
        else:
            continue
        last = record.step if record.step is not None else last
    return out
