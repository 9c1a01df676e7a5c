import gzip
import hashlib
import json

import pytest
from step_plans import uniform

from planner.simulate.recorder import Recorder, Span
from planner.simulate.step import step_events
from planner.simulate.trace import trace_bytes, write_trace

GOLDEN = "15cd6aadde69aac8b28b4a56af5a3303197cd4c593ef2a3eb0a4153621c32cd9"


def spans():
    recorder = Recorder()
    plan = uniform(
        "1f1b", 2, 2, f=1e-3, b=2e-3, send_s=1e-4, grad_bucket_s=(((5e-4, 5e-4),), ((5e-4, 5e-4),)),
        param_gather_s=((1e-4,), (1e-4,)), optimizer_s=(1e-3, 1e-3),
    )  # fmt: skip
    result = step_events(plan, recorder)
    return recorder.spans, result


def test_trace_has_one_track_a_stage_and_stream(tmp_path):
    recorded, result = spans()
    path = tmp_path / "out.json.gz"
    write_trace(path, recorded)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {0: "stage 0", 1: "stage 1"}
    tracks = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0]
    assert tracks == ["compute", "data parallel", "pipeline"]
    complete = [e for e in events if e["ph"] == "X"]
    assert max(e["ts"] + e["dur"] for e in complete) == pytest.approx(result.step_s * 1e6)
    names = [e["name"] for e in complete if e["pid"] == 0 and e["tid"] == 0]
    assert names == ["F0.0", "F1.0", "B0.0", "B1.0", "optimizer"]
    assert list(tmp_path.iterdir()) == [path]


def test_golden_trace():
    text = gzip.decompress(trace_bytes(spans()[0]))
    assert hashlib.sha256(text).hexdigest() == GOLDEN


def test_bytes_are_deterministic_and_stages_sort_by_number():
    assert trace_bytes(spans()[0]) == trace_bytes(spans()[0])
    many = [Span(f"stage {i}/compute", "x", 0.0, 1.0) for i in (10, 9, 1)]
    events = json.loads(gzip.decompress(trace_bytes(many)))["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["stage 1", "stage 9", "stage 10"]


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_trace(tmp_path / "x.json.gz", [Span("a/b", "x", float("nan"), 1.0)])
    assert list(tmp_path.iterdir()) == []
