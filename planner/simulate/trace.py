"""Chrome trace (chrome://tracing, Perfetto) of recorded spans: a process a stage, a track a stream."""

import gzip
import json
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from planner.simulate.recorder import Span

STREAM_ORDER = ("host", "compute", "data parallel", "pipeline")


def _rank(track: str) -> tuple[list[tuple[int, str]], int, str]:
    """Sort key of a track: groups by the numbers in their names, known streams first."""
    group, _, stream = track.rpartition("/")
    parts = [(int(x), "") if x.isdigit() else (-1, x) for x in re.split(r"(\d+)", group) if x]
    known = STREAM_ORDER.index(stream) if stream in STREAM_ORDER else len(STREAM_ORDER)
    return parts, known, stream


def trace_events(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """Events of the Chrome trace format; times in microseconds."""
    spans = list(spans)
    tracks = sorted({span.track for span in spans}, key=_rank)
    groups = list(dict.fromkeys(track.rpartition("/")[0] for track in tracks))
    ids: dict[str, tuple[int, int]] = {}
    events: list[dict[str, Any]] = []

    def label(what: str, pid: int, tid: int, **args: object) -> None:
        events.append({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args})

    for pid, group in enumerate(groups):
        label("process_name", pid, 0, name=group or "step")
        label("process_sort_index", pid, 0, sort_index=pid)
        for tid, track in enumerate(t for t in tracks if t.rpartition("/")[0] == group):
            ids[track] = (pid, tid)
            label("thread_name", pid, tid, name=track.rpartition("/")[2])
            label("thread_sort_index", pid, tid, sort_index=tid)
    for span in sorted(spans, key=lambda s: (ids[s.track], s.start_s, -s.end_s, s.name)):
        pid, tid = ids[span.track]
        start, end = round(span.start_s * 1e6, 3), round(span.end_s * 1e6, 3)
        event = {"ph": "X", "name": span.name, "pid": pid, "tid": tid, "ts": start, "dur": round(end - start, 3)}
        events.append(event | ({"args": dict(span.args)} if span.args else {}))
    return events


def trace_bytes(spans: Iterable[Span]) -> bytes:
    """The gzipped trace; equal spans give equal bytes."""
    document = {"displayTimeUnit": "ms", "traceEvents": trace_events(spans)}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


def write_trace(path: str | Path, spans: Iterable[Span]) -> None:
    """Write a gzipped trace; the file appears whole or not at all."""
    path = Path(path)
    data = trace_bytes(spans)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
