from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_plans import plans, positive, sharded, uniform

from planner.simulate.fast import step_fast
from planner.simulate.plan import FsdpBlock, StepPlan
from planner.simulate.recorder import Recorder
from planner.simulate.step import step_events

near = pytest.approx
BOTH = pytest.mark.parametrize("run", [step_fast, step_events])


@BOTH
@pytest.mark.parametrize(("p", "m"), [(1, 1), (1, 7), (4, 8), (4, 2), (8, 64)])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_uniform_pipeline(run, schedule, p, m):
    result = run(uniform(schedule, p, m, f=1.0, b=2.0))
    assert result.step_s == near((m + p - 1) * 3.0)
    assert result.bubble_s == near((3.0 * (p - 1),) * p)


@BOTH
@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 2), (4, 16, 4), (8, 8, 3), (4, 10, 2), (4, 9, 2)])
def test_interleaved_bubble_shrinks_by_the_chunks(run, p, m, v):
    result = run(uniform("interleaved", p, m, v, f=1.0 / v, b=2.0 / v))
    assert result.step_s == near(3.0 * m + 3.0 * (p - 1) / v)


@BOTH
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 24)])
def test_zero_bubble(run, p, m):
    kw = {"f": 1.0, "b": 1.0, "w": 1.0}
    assert run(uniform("zb1p", p, m, **kw)).step_s == near(3 * m + p - 1)  # (p - 1)(f + b - w)
    result = run(uniform("zb2p", p, 2 * m, **kw, optimizer_barrier=False))
    assert result.step_s == near(6 * m)  # (p - 1)(f + b - 2 w)
    assert result.bubble_s == near((0.0,) * p)
    assert run(uniform("zb2p", p, 2 * m, **kw)).step_s == near(6 * m + p - 1)  # waits for the last stage's norm


@BOTH
def test_dualpipev_beats_1f1b(run):
    p, m = 4, 12
    result = run(uniform("dualpipev", p, m, 2, f=0.5, b=0.5, w=0.5))
    assert result.step_s == near(3 * m + (p - 1) / 2)


@BOTH
def test_overlapped_messages_lengthen_only_the_way_down_and_up(run):
    p, m, s = 4, 8, 0.25
    result = run(uniform("gpipe", p, m, f=1.0, b=2.0, send_s=s))
    assert result.step_s == near((m + p - 1) * 3.0 + 2 * (p - 1) * s)
    assert result.pp_link_busy_s == near((m * s, 2 * m * s, 2 * m * s, m * s))


@BOTH
def test_messages_that_are_not_overlapped_hold_both_streams(run):
    # By hand. Stage 0: F0 0-1, sends, F1 1.5-2.5, sends F1 and waits for B0.
    # Stage 1: F0 1.5-2.5, B0 2.5-4.5, sends B0 and receives F1 till 5, F1 5-6, B1 6-8, sends till 8.5.
    # Stage 0: B0 5-7, waits for B1, which stage 1 has at 8: receives till 8.5, B1 8.5-10.5.
    plan = uniform("1f1b", 2, 2, f=1.0, b=2.0, send_s=0.5, p2p_overlap=False)
    result = run(plan)
    assert result.step_s == near(10.5)
    # Stage 0: send F0; send F1, then receive B0; receive B1. Stage 1: receive F0; send B0 with F1; send B1.
    assert result.exposed_pp_s == near((0.5 + 1.0 + 0.5, 1.5))


@BOTH
def test_buckets_run_under_the_last_backward(run):
    plan = uniform("1f1b", 1, 4, f=1.0, b=2.0, grad_bucket_s=(((0.4,) * 4,),))
    assert run(plan).step_s == near(12.4)
    assert run(plan).exposed_dp_s == near((0.4,))
    assert run(replace(plan, dp_overlap=False)).step_s == near(13.6)
    slow = replace(plan, grad_bucket_s=(((1.0,) * 4,),))  # first ready at 10.5, then back to back
    assert run(slow).step_s == near(14.5)
    assert run(slow).dp_link_busy_s == near((4.0,))


@BOTH
def test_parameter_gathers(run):
    plan = uniform("interleaved", 1, 2, 2, f=1.0, b=1.0, param_gather_s=((0.5, 1.0),))
    assert run(plan).step_s == near(8.5)  # only the first is exposed
    assert run(replace(plan, gather_overlap=False)).step_s == near(9.5)
    assert run(replace(plan, gather_overlap=False)).exposed_dp_s == near((1.5,))


@BOTH
def test_tail_and_optimizer(run):
    plan = uniform("1f1b", 2, 2, f=1.0, b=2.0, tail_s=0.5, optimizer_s=(0.1, 0.3))
    assert run(plan).step_s == near(9 + 0.5 + 0.3)
    assert run(plan).exposed_dp_s == near((0.5, 0.5))
    assert run(uniform("1f1b", 1, 2, tail_s=0.5)).step_s == near(6.0)


@BOTH
def test_sharded_blocks_by_hand(run):
    block = FsdpBlock(forward_s=1.0, backward_s=2.0, gather_s=0.5, reduce_s=0.5)
    result = run(sharded([block] * 3))
    # forward: first gather exposed; backward: block 2 is still there, reduce then gather stay beside compute.
    assert result.step_s == near(0.5 + 3 + 6 + 0.5)
    assert result.exposed_dp_s == near((1.0,))
    assert result.dp_link_busy_s == near((3 * 0.5 + 2 * 0.5 + 3 * 0.5,))
    nothing_ahead = run(sharded([block] * 3, prefetch=0))
    # Gathers exposed 3 times forward; backward of blocks 1 and 0 each wait for a reduce and a gather.
    assert nothing_ahead.step_s == near(9 + 3 * 0.5 + 2 * 1.0 + 0.5)


@BOTH
def test_sharded_once_a_step(run):
    block = FsdpBlock(forward_s=1.0, backward_s=2.0, gather_s=0.5, reduce_s=0.5)
    result = run(sharded([block] * 3, m=4, reshard=False))
    assert result.step_s == near(0.5 + 4 * 9 + 0.5)
    assert result.dp_link_busy_s == near((3.0,))
    slow = FsdpBlock(forward_s=1.0, backward_s=2.0, gather_s=5.0, reduce_s=0.0)
    # Bound by the exchange: nothing but gathers in sequence, and the compute of the last pass.
    assert run(sharded([slow] * 4, m=1)).dp_link_busy_s == near((7 * 5.0,))
    assert run(sharded([slow] * 4, m=1)).step_s >= 7 * 5.0


@settings(max_examples=300, deadline=None)
@given(plans())
def test_events_and_recurrence_agree_and_every_second_is_accounted_for(plan):
    fast, events = step_fast(plan), step_events(plan)
    for field in fields(fast):
        assert getattr(events, field.name) == near(getattr(fast, field.name), abs=1e-9, rel=1e-9), field.name
    for result in (fast, events):
        for stage in range(plan.stages):
            assert sum(result.parts_s(stage)) == near(result.step_s, abs=1e-9, rel=1e-9)
            assert min(result.parts_s(stage)) >= -1e-9


@settings(max_examples=100, deadline=None)
@given(plans(), st.data())
def test_a_longer_duration_never_shortens_the_step(plan, data):
    name = data.draw(st.sampled_from(["forward_s", "backward_s", "param_gather_s", "send_s", "tail_s"]))
    more = data.draw(positive)
    value = getattr(plan, name)
    if isinstance(value, tuple):
        stage, chunk = data.draw(st.integers(0, plan.stages - 1)), data.draw(st.integers(0, plan.chunks - 1))
        rows = [list(row) for row in value]
        rows[stage][chunk] += more
        value = tuple(map(tuple, rows))
    else:
        value += more
    longer = replace(plan, optimizer_barrier=True, **{name: value})
    assert step_fast(longer).step_s >= step_fast(replace(plan, optimizer_barrier=True)).step_s - 1e-9


@settings(max_examples=50, deadline=None)
@given(plans())
def test_a_step_is_at_least_its_busiest_stream(plan):
    result = step_fast(plan)
    assert result.step_s >= max(result.compute_busy_s) - 1e-9
    assert result.step_s >= max(result.pp_link_busy_s) - 1e-9
    if plan.stages == 1:
        assert result.pp_link_busy_s == (0.0,)
        assert result.exposed_pp_s == (0.0,)
    recorder = Recorder()
    again = step_events(plan, recorder)
    assert again == step_events(plan)
    tracks = {}
    for span in recorder.spans:
        tracks.setdefault(span.track, []).append((span.start_s, span.end_s))
    for spans in tracks.values():
        spans.sort()
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))


@pytest.mark.parametrize(
    "change",
    [
        {"forward_s": ((1.0,),)},
        {"send_s": -1.0},
        {"prefetch": -1},
        {"optimizer_s": (1.0,)},
        {"schedule": "none"},
        {"schedule": "zb1p", "fsdp": (((),), ((),))},
    ],
)
def test_plans_that_do_not_fit_together_are_refused(change):
    plan = uniform("1f1b", 2, 2)
    kw = {f.name: getattr(plan, f.name) for f in fields(plan)} | change
    with pytest.raises(ValueError):  # noqa: PT011
        StepPlan(**kw)
