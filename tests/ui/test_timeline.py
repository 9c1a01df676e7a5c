"""The timeline page: what is drawn is what the events ran, whatever the zoom."""

import gzip
import itertools
import json

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("altair")

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.simulate.recorder import Span
from planner.ui import timeline, work

PIPED = "llama3-70b-256xh100"


def spans_of(durations, gap):
    out, now = [], 0.0
    for i, seconds in enumerate(durations):
        out.append(Span("stage 0/compute", f"{'FB'[i % 2]}{i}.0", now, now + seconds))
        now += seconds + gap
    return out


@given(
    durations=st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=200),
    gap=st.floats(0.0, 0.5),
    at=st.floats(0.0, 0.9),
    share=st.floats(0.01, 1.0),
)
@settings(max_examples=60, deadline=None)
def test_bars_cover_their_spans_in_order_and_lose_none(durations, gap, at, share):
    spans = spans_of(durations, gap)
    total = spans[-1].end_s
    start, end = at * total, min(total, (at + share) * total)
    if end <= start:
        return
    found = timeline.bars(lanes={"stage 0/compute": spans}, start_s=start, end_s=end)
    inside = [s for s in spans if s.end_s > start and s.start_s < end]
    assert sum(b.count for b in found) == len(inside)
    assert all(start <= b.start_s <= b.end_s <= end for b in found)
    assert all(a.end_s <= b.start_s + 1e-12 for a, b in itertools.pairwise(found))
    assert sum(b.busy_s for b in found) <= sum(s.end_s - s.start_s for s in inside) + 1e-9


def test_narrow_neighbours_join_and_idle_time_stays():
    early = [Span("stage 0/compute", f"F{i}.0", i * 1e-4, (i + 1) * 1e-4) for i in range(20_000)]
    late = [Span("stage 0/compute", "B0.0", 5.0, 6.0)]
    found = timeline.bars(lanes={"stage 0/compute": early + late}, start_s=0.0, end_s=6.0)
    assert len(found) < timeline.MAX_BARS
    assert found[-1].kind == "backward"
    assert found[-1].start_s - found[-2].end_s == pytest.approx(3.0)
    assert {b.kind for b in found[:-1]} == {"forward"}


def test_turns_of_forward_and_backward_are_called_mixed():
    spans = spans_of([1e-5] * 50_000, 0.0)
    found = timeline.bars(lanes={"stage 0/compute": spans}, start_s=0.0, end_s=spans[-1].end_s)
    assert "mixed" in {b.kind for b in found}


@pytest.mark.parametrize("count", [1, 16, 17, 64, 1000])
def test_stages_shown_keep_both_ends(count):
    shown = timeline.stages_shown(count)
    assert shown[0] == 0
    assert shown[-1] == count - 1
    assert len(shown) == min(count, timeline.MAX_STAGES)


def test_a_piped_step_has_its_length_its_streams_and_its_trace():
    scenario = work.load_preset(PIPED)
    text = scenario.model_dump_json()
    step = work.step_timeline(text, "engineered")
    document = work.comparison(text)["strategies"]["engineered"]
    assert step.step_s == pytest.approx(document["step_s"]["p50"], rel=0.03)
    assert step.stages == 4
    assert set(step.streams) == set(timeline.STREAMS)
    lanes = timeline.by_lane(spans=step.spans, stages=[0, 3], streams=timeline.STREAMS)
    assert [x.partition("/")[0] for x in lanes] == ["stage 0"] * 3 + ["stage 3"] * 3
    kinds = {timeline.kind_of(s) for s in step.spans}
    assert kinds == {"forward", "backward", "optimizer", "send", "gather", "reduce"}
    found = timeline.bars(lanes=lanes, start_s=0.0, end_s=step.step_s)
    for window in (None, (0.0, step.step_s / 5)):
        chart = timeline.gantt_chart(found=found, start_s=0.0, end_s=step.step_s, lang="zh", window_s=window)
        assert chart.to_dict()
    events = json.loads(gzip.decompress(work.step_trace(text, "engineered")))["traceEvents"]
    assert sum(e["ph"] == "X" for e in events) == len(step.spans)
    rows = timeline.stage_rows(spans=step.spans, stages=4, step_s=step.step_s, lang="en")
    assert all(0.5 < r["compute"] <= 1.0 for r in rows)


def test_a_step_too_long_for_a_page_is_refused_in_words():
    scenario = work.load_preset(PIPED)
    training = scenario.training.model_copy(update={"global_batch_sequences": 1 << 20})
    long = scenario.model_copy(update={"training": training})
    with pytest.raises(ValueError, match="tasks"):
        work.step_timeline(long.model_dump_json(), "engineered")
    assert "tasks" in work.problems(long)["engineered"]
    assert "stack" not in work.problems(long)
