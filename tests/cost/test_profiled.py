from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.profiled import (
    KernelTime,
    PowerModel,
    ProfiledCosts,
    scaled_s,
    step_clock_mhz,
)
from planner.profile.load import load_profile
from planner.workload.torch_step import Kernel, StepShape

POWER = PowerModel(idle_w=105.0, cap_w=700.0, full_mhz=1980.0, lowest_mhz=990.0, memory_w=497.0)
PRODUCT = KernelTime(1e-3, "matmul", 1470.0, "measured", 0.01)
COPY = KernelTime(1e-3, "memory", 1980.0, "measured", 0.01)


def test_products_alone_run_at_the_clock_they_were_measured_at() -> None:
    assert step_clock_mhz(times=[PRODUCT], idle_s=0.0, power=POWER) == pytest.approx(1470.0, rel=1e-3)


def test_a_copy_alone_runs_at_full_clock() -> None:
    assert step_clock_mhz(times=[COPY], idle_s=0.0, power=POWER) == 1980.0


@given(products=st.integers(1, 20), copies=st.integers(0, 20), idle=st.floats(0.0, 0.01))
def test_mean_power_keeps_the_cap_and_idle_time_never_lowers_the_clock(products: int, copies: int, idle: float) -> None:
    times = [PRODUCT] * products + [COPY] * copies
    clock = step_clock_mhz(times=times, idle_s=idle, power=POWER)
    busy = [scaled_s(time=t, clock_mhz=clock) for t in times]
    energy = sum(s * POWER.at(time=t, clock_mhz=clock) for s, t in zip(busy, times, strict=True))
    assert (energy + idle * POWER.idle_w) / (sum(busy) + idle) <= POWER.cap_w * 1.001
    assert clock >= step_clock_mhz(times=times, idle_s=0.0, power=POWER) - 1e-6


def test_memory_bound_kernels_do_not_care_for_the_clock() -> None:
    assert scaled_s(time=COPY, clock_mhz=1200.0) == COPY.seconds
    assert scaled_s(time=PRODUCT, clock_mhz=1980.0) < PRODUCT.seconds


def test_a_measured_product_answers_as_measured_and_its_neighbour_as_interpolated() -> None:
    costs = ProfiledCosts(load_profile("h200-sxm"))
    shape = StepShape("gpt", 12, 768, 12, 12, 3072, 50304, 8, 1024)
    measured = costs.time(kernel=Kernel("matmul", m=4096, n=4096, k=1024), shape=shape)
    between = costs.time(kernel=Kernel("matmul", m=4096, n=4608, k=1152), shape=shape)
    assert (measured.label, between.label) == ("measured", "interpolated")
    rate = 2 * 4096 * 4608 * 1152 / between.seconds
    assert rate == pytest.approx(2 * 4096 * 4096 * 1024 / measured.seconds, rel=0.12)


def test_backward_attention_takes_longer_than_forward() -> None:
    costs = ProfiledCosts(load_profile("h200-sxm"))
    shape = StepShape("llama", 12, 2048, 32, 8, 8192, 32000, 4, 4096)
    for case in (shape, replace(shape, sequence=1536), replace(shape, kind="gpt", kv_heads=32)):
        forward = costs.time(kernel=Kernel("attention", phase="fwd"), shape=case)
        backward = costs.time(kernel=Kernel("attention", phase="bwd"), shape=case)
        assert 1.8 < backward.seconds / forward.seconds < 4.5
