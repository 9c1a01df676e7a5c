from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.simulate.kernel import HOST, Op, kernel_events, kernel_fast
from planner.simulate.recorder import Recorder

BOTH = pytest.mark.parametrize("run", [kernel_fast, kernel_events])
near = pytest.approx
seconds = st.floats(0.0, 2.0).map(lambda x: round(x, 3))
streams = st.sampled_from(["compute", "tp", "dp"])
ops = st.lists(
    st.builds(
        Op,
        name=st.just("op"),
        host_s=seconds,
        gpu_s=seconds,
        stream=streams | st.just(HOST),
        waits_for=st.lists(streams, max_size=2, unique=True).map(tuple),
        sync=st.booleans(),
    ),
    max_size=30,
)


@BOTH
def test_bound_by_launches(run):
    result = run([Op("k", host_s=20.0, gpu_s=5.0)] * 10)
    assert result.total_s == near(205.0)
    assert result.launch_gap_s == near(20.0 + 9 * 15.0)
    assert result.idle_s == near(result.total_s - 50.0)


@BOTH
def test_bound_by_kernels(run):
    result = run([Op("k", host_s=5.0, gpu_s=20.0)] * 10)
    assert result.total_s == near(205.0)
    assert result.launch_gap_s == near(5.0)
    assert result.host_busy_s == near(50.0)


@BOTH
def test_a_host_that_ran_ahead_hides_its_small_kernels(run):
    result = run([Op("big", 1.0, 100.0), *[Op("small", 10.0, 1.0)] * 5])
    assert result.total_s == near(1 + 100 + 5)
    assert result.launch_gap_s == near(1.0)


@BOTH
def test_a_read_back_empties_the_queue(run):
    result = run([Op("a", 1.0, 10.0, sync=True), Op("b", 1.0, 10.0)])
    assert result.total_s == near(22.0)
    assert result.launch_gap_s == near(2.0)


@BOTH
def test_collective_between_two_kernels(run):
    result = run([Op("a", 1.0, 10.0), Op("r", 1.0, 5.0, "tp", ("compute",)), Op("b", 1.0, 10.0, waits_for=("tp",))])
    assert result.total_s == near(26.0)
    assert result.wait_s == near(5.0)
    assert dict(result.stream_busy_s) == near({"compute": 20.0, "tp": 5.0})


@BOTH
def test_host_work_and_device_synchronize(run):
    synchronize = Op("synchronize", 0.0, stream=HOST, waits_for=("compute",), sync=True)
    result = run([Op("a", 1.0, 10.0), synchronize, Op("b", 2.0, 1.0)])
    assert result.total_s == near(14.0)
    assert run([]).total_s == 0.0


@given(ops)
def test_events_and_recurrence_agree(items):
    recorder = Recorder()
    fast, events = kernel_fast(items), kernel_events(items, recorder)
    for field in fields(fast):
        a, b = getattr(events, field.name), getattr(fast, field.name)
        if field.name == "stream_busy_s":
            a, b = dict(a), dict(b)
        assert a == near(b, abs=1e-9), field.name
    assert fast.gpu_busy_s + fast.idle_s == near(fast.total_s, abs=1e-9)
    assert min(fast.launch_gap_s, fast.wait_s, fast.tail_s) >= 0
