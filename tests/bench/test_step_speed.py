"""Speed of one step; bounds are generous (a loaded two-core machine), the design's bars stand beside them."""

import time

import pytest

from planner.simulate.fast import step_fast
from planner.simulate.plan import StepPlan
from planner.simulate.step import step_events


def plan(v):
    def table(x):
        return tuple(tuple(x * (1 + 0.01 * s) for _ in range(v)) for s in range(16))

    return StepPlan(
        schedule="interleaved" if v > 1 else "1f1b", stages=16, micro_batches=128, chunks=v, send_s=1e-4,
        forward_s=table(1e-2 / v), backward_s=table(2e-2 / v), weight_s=((0.0,) * v,) * 16,
    )  # fmt: skip


def best(run, argument, times=3):
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        run(argument)
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


@pytest.mark.parametrize(
    ("run", "v", "limit_s"),
    [(step_fast, 1, 0.05), (step_fast, 8, 0.2), (step_events, 1, 0.3), (step_events, 8, 1.5)],  # bars: events 0.1, 0.5
)
def test_one_step_of_16_stages_and_128_micro_batches(run, v, limit_s):
    assert best(run, plan(v)) <= limit_s
