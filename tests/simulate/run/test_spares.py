"""Waiting for nodes whose spares are in repair: the closed form against replications, and in its limits.

Each comparison with replications fails a correct program in fewer than 1 of 100,000 runs (4.5 standard errors of a
normal mean), beside the bias that is stated with it.
"""

from dataclasses import replace

import numpy as np
import pytest

from planner.simulate.run.closed_form import expected_run, spares_wait_s
from planner.simulate.run.fleet import simulate_runs
from planner.simulate.run.plan import LOSSES, RunPlan

DAY = 86400.0
PLAN = RunPlan(
    work_s=40 * DAY,
    nodes=512,
    node_failures_per_s=6.5e-3 / DAY,
    detection_s=300,
    restart_s=600,
    interval_s=3600,
    stall_s=10,
    durable_s=20,
    spares=4,
    repair_median_s=12 * 3600.0,
    repair_mean_s=24 * 3600.0,
)


def compared(plan, *, replications=300, seed=3):
    """Closed form and mean of the replications, days, with the mean's standard error."""
    runs = simulate_runs(plan=plan, replications=replications, seed=seed, horizon_s=5000 * DAY)
    days = runs.elapsed_s / DAY
    return expected_run(plan=plan).elapsed_s / DAY, days.mean(), days.std() / np.sqrt(replications)


@pytest.mark.parametrize("spares", [2, 3, 4, 6, 20])
def test_waiting_for_repair_agrees_with_replications(spares):
    closed, mean, error = compared(replace(PLAN, spares=spares))
    assert abs(closed - mean) < 4.5 * error + 0.01 * mean


@pytest.mark.parametrize("spares", [0, 2, 4, 6])
def test_waiting_for_a_node_from_elsewhere_agrees_with_replications(spares):
    closed, mean, error = compared(replace(PLAN, spares=spares, replacement_s=6 * 3600.0))
    assert abs(closed - mean) < 4.5 * error + 0.03 * mean


@pytest.mark.parametrize("spares", [16, 20, 30])
def test_under_the_published_heavy_tail_days_agree_while_waiting_is_short(spares):
    """Repairs that outlast the run make a waiting run wait on; a mean misses up to 4 % of the days of it."""
    plan = replace(PLAN, spares=spares, repair_median_s=20.4 * 3600, repair_mean_s=132.8 * 3600, work_s=60 * DAY)
    closed, mean, error = compared(plan)
    assert mean < 1.1 * expected_run(plan=replace(plan, spares=None)).elapsed_s / DAY
    assert abs(closed - mean) < 4.5 * error + 0.04 * mean


def test_more_spares_and_quicker_repairs_wait_less_and_none_wait_from_a_pool():
    days = [expected_run(plan=replace(PLAN, spares=n)).elapsed_s for n in (1, 2, 4, 8, 16, 64)]
    assert days == sorted(days, reverse=True)
    pool = expected_run(plan=replace(PLAN, spares=None)).elapsed_s
    assert days[-1] == pytest.approx(pool, rel=1e-6)
    quick = replace(PLAN, spares=2, repair_mean_s=12 * 3600.0)
    assert expected_run(plan=quick).elapsed_s < days[1]
    racks = replace(PLAN, rack_frac=0.5, rack_nodes=4)
    assert expected_run(plan=racks).elapsed_s > expected_run(plan=PLAN).elapsed_s
    assert spares_wait_s(plan=replace(PLAN, elastic=True), failures_per_s=1e-5, without_s=1e6) == 0


def test_the_waiting_is_a_loss_and_shares_still_add_up():
    found = expected_run(plan=PLAN)
    losses = dict(found.losses)
    assert set(losses) == set(LOSSES)
    assert losses["replacement"] > 0.1
    assert found.goodput + sum(losses.values()) == pytest.approx(1)


def test_constant_repair_is_erlangs_formula():
    """Long after the start, exponential or not: P(more than S out) of a Poisson count with mean rate x repair."""
    from scipy.stats import poisson

    plan = replace(
        PLAN, repair_mean_s=PLAN.repair_median_s, work_s=4000 * DAY, spares=5, node_failures_per_s=8e-3 / DAY
    )
    hardware = sum(plan.shares[:4]) / sum(plan.shares)
    out = plan.nodes * plan.node_failures_per_s * hardware * plan.repair_mean_s
    wait = spares_wait_s(plan=plan, failures_per_s=plan.failures_per_s, without_s=plan.work_s)
    share = poisson.sf(5, out)
    assert wait / (wait + plan.work_s) == pytest.approx(share, rel=0.01)
