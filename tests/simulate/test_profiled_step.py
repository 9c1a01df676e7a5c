from dataclasses import replace

import pytest

from planner.cost.profiled import ProfiledCosts
from planner.profile.hosttime import host_times, update_s
from planner.profile.load import load_profile
from planner.simulate.profiled_step import profiled_step
from planner.workload.torch_step import StepShape

COSTS = ProfiledCosts(load_profile("h200-sxm"))
SMALL = StepShape("gpt", 12, 768, 12, 12, 3072, 50304, 1, 1024)
LARGE = replace(SMALL, micro_batch=32)


@pytest.mark.parametrize("shape", [SMALL, LARGE, replace(LARGE, mode="compile"), replace(SMALL, optimizer="loop")])
def test_events_and_recurrence_agree(shape: StepShape) -> None:
    fast, events = profiled_step(costs=COSTS, shape=shape), profiled_step(costs=COSTS, shape=shape, engine="events")
    assert events.step_s == pytest.approx(fast.step_s, rel=1e-9)


def test_a_small_batch_waits_for_the_host_and_a_large_one_does_not() -> None:
    small, large = profiled_step(costs=COSTS, shape=SMALL), profiled_step(costs=COSTS, shape=LARGE)
    assert small.step_s >= small.host_s > 2 * small.device_s
    assert large.step_s == pytest.approx(large.device_s, rel=0.03)
    assert small.clock_mhz > 1900
    assert small.sigma > 3 * large.sigma


def test_parts_and_groups_add_up_to_the_device_time() -> None:
    step = profiled_step(costs=COSTS, shape=LARGE)
    assert sum(s for _, s in step.parts_s) == pytest.approx(step.device_s, rel=1e-9)
    assert sum(s for _, s in step.groups_s) == pytest.approx(step.device_s, rel=1e-9)
    assert sum(share for _, share in step.labels) == pytest.approx(1.0)


def test_what_costs_more_takes_longer() -> None:
    def seconds(**change: object) -> float:
        return profiled_step(costs=COSTS, shape=replace(LARGE, **change)).step_s  # type: ignore[arg-type]

    base = seconds()
    assert seconds(recompute=True) > 1.1 * base
    assert seconds(mode="compile") < 0.9 * base
    assert seconds(precision="bf16") < base
    assert seconds(vocab=50257) > 1.3 * base  # a misaligned vocabulary leaves the fast products
    assert seconds(optimizer="foreach") > base
    assert 1.9 * base < seconds(accumulation=2) < 2.05 * base


def test_host_times_of_every_way_of_running() -> None:
    profile = COSTS.profile
    for kind in ("gpt", "llama"):
        eager = host_times(profile, kind=kind, precision="amp", mode="eager", recompute=False)
        again = host_times(profile, kind=kind, precision="amp", mode="eager", recompute=True)
        assert 0.5e-3 < eager.forward_s < eager.backward_s < 4e-3
        assert again.forward_s + again.backward_s > 1.4 * (eager.forward_s + eager.backward_s)
    loop = update_s(profile, variant="loop", precision="amp", tensors=148)
    assert loop > 5 * update_s(profile, variant="fused", precision="amp", tensors=148)
