"""What a log teaches: posteriors that hold the truth as often as they say, and a plan that takes them over."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from planner.simulate.run.closed_form import expected_run, mean_failures_per_s
from planner.simulate.run.fleet import simulate_runs
from planner.simulate.run.plan import LOSSES, RunPlan
from planner.simulate.run.refit import (
    RECOVERY_SIGMA,
    Factor,
    Refit,
    cause_posterior,
    cause_shares_of,
    count_band,
    effective_periods,
    failure_factor,
    failure_sigma,
    mean_lost_s,
    recovery_factor,
    rest_of,
    step_factor,
)

PLAN = RunPlan(
    work_s=50 * 86400.0,
    nodes=256,
    node_failures_per_s=5e-8,
    node_sigma=0.8,
    job_failures_per_s=3e-6,
    job_sigma=1.2,
    detection_s=600,
    restart_s=900,
    interval_s=3600,
    stall_s=20,
    durable_s=40,
)
SAME = Factor((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), 1e-9, 0)
# Each of the three counts below leaves its bounds in one of 10,000 correct programs.
ALARM = 1e-4


def _inside_frac_bounds(n):
    return stats.binom(n, 0.8).ppf([ALARM / 2, 1 - ALARM / 2])


def test_bands_hold_truths_drawn_from_the_prior_as_often_as_they_say():
    """Simulation-based calibration (Talts et al. 2018): P10-P90 holds eight in ten truths."""
    rng, n = np.random.default_rng(5), 600
    hits = dict.fromkeys(("step", "failures", "recovery"), 0)
    shape = stats.gamma(*_shape_rate(0.9))
    slow = stats.gamma(*_shape_rate(RECOVERY_SIGMA))
    for _ in range(n):
        step = math.exp(0.1 * rng.standard_normal())
        logs = math.log(step) + 0.03 * rng.standard_normal(2)
        found = step_factor(ratios=list(np.exp(logs)), hours=[24, 24], prior_sigma=0.1)
        hits["step"] += found.posterior[0] <= step <= found.posterior[2]
        rate = float(shape.rvs(random_state=rng))
        found = failure_factor(events=int(rng.poisson(6 * rate)), expected=6, prior_sigma=0.9)
        hits["failures"] += found.posterior[0] <= rate <= found.posterior[2]
        mean = 1 / float(slow.rvs(random_state=rng))
        hours = float(rng.exponential(mean, 4).sum())
        found = recovery_factor(events=4, hours=hours, planned_s=3600)
        hits["recovery"] += found.posterior[0] <= mean <= found.posterior[2]
    low, high = _inside_frac_bounds(n)
    assert low <= hits["failures"] <= high
    assert low <= hits["recovery"] <= high
    # What is left unknown of the periods to come widens the step's band beyond the sampling error.
    assert low <= hits["step"] <= n


def _shape_rate(sigma):
    from planner.simulate.run.refit import _gamma_of

    shape, rate = _gamma_of(sigma)
    return shape, 0, 1 / rate


@pytest.mark.parametrize("sigma", [0.05, 0.5, 0.8, 1.71])
def test_the_gamma_has_the_median_and_spread_of_the_log_normal(sigma):
    draws = stats.gamma(*_shape_rate(sigma)).rvs(200_000, random_state=1)
    assert np.median(draws) == pytest.approx(1.0, rel=0.02)
    assert np.log(draws).std() == pytest.approx(sigma, rel=0.02)


def test_no_events_and_no_time_teach_nothing():
    none = failure_factor(events=0, expected=0.0, prior_sigma=0.8)
    assert none.posterior == pytest.approx(none.prior)
    assert none.told_frac == pytest.approx(0.0, abs=1e-9)
    assert failure_factor(events=0, expected=5.0, prior_sigma=0.8).posterior[1] < 0.6
    assert failure_factor(events=500, expected=50.0, prior_sigma=0.8).posterior[1] == pytest.approx(10, rel=0.05)
    assert step_factor(ratios=(), hours=(), prior_sigma=0.1).told_frac == 0


def test_a_step_that_the_plan_rules_out_counts_alone():
    far = step_factor(ratios=[1.5] * 5, hours=[24] * 5, prior_sigma=0.1)
    assert far.alone
    assert far.posterior[1] == pytest.approx(1.5)
    near = step_factor(ratios=[1.1, 1.12, 1.08], hours=[24] * 3, prior_sigma=0.1)
    assert not near.alone
    assert 1.08 < near.posterior[1] < 1.1


def test_neighbours_that_drift_together_count_for_fewer():
    rng = np.random.default_rng(0)
    drift = np.cumsum(rng.standard_normal(60))
    weights = np.ones(60)
    assert effective_periods(residuals=drift - drift.mean(), weights=weights) < 12
    noise = rng.standard_normal(60)
    assert effective_periods(residuals=noise - noise.mean(), weights=weights) > 30


def test_counts_before_they_are_seen():
    assert count_band(expected=0, prior_sigma=0.8) == (0, 0, 0)
    sure, open_ = count_band(expected=40, prior_sigma=0), count_band(expected=40, prior_sigma=0.8)
    assert open_[0] < sure[0] < sure[2] < open_[2]


def test_causes_move_from_the_plan_to_the_counts():
    few = cause_posterior(plan=PLAN, counts=[0, 0, 1, 0, 0])
    many = cause_posterior(plan=PLAN, counts=[0, 0, 400, 0, 0])
    assert sum(few) == pytest.approx(1)
    assert cause_shares_of(PLAN)[2] < few[2] < 0.3
    assert many[2] > 0.95


def test_what_is_left_takes_the_factors_over():
    refit = Refit(
        step=replace(SAME, posterior=(1.1, 1.1, 1.1)),
        failures=replace(SAME, posterior=(3.0, 3.0, 3.0), sigma=0.2),
        recovery=replace(SAME, posterior=(2.0, 2.0, 2.0)),
        shares=cause_shares_of(PLAN),
        pause_frac=0.05,
        windows=(5e5, 7200.0),
    )
    left = rest_of(plan=PLAN, refit=refit, done_s=PLAN.work_s / 5, elapsed_s=12 * 86400.0)
    assert left.work_s == pytest.approx(0.8 * 1.1 * PLAN.work_s)
    assert mean_failures_per_s(plan=left, over_s=1e6) == pytest.approx(3 * mean_failures_per_s(plan=PLAN, over_s=1e6))
    assert left.rate_sigma == pytest.approx(0.2)
    assert left.recovery_s == pytest.approx(2 * PLAN.recovery_s, rel=0.1)
    assert cause_shares_of(left) == pytest.approx(cause_shares_of(PLAN))
    assert 1 - sum(left.overhead_parts) == pytest.approx(0.95)
    assert (left.maintenance_interval_s, left.maintenance_s) == (5e5, 7200.0)


def test_as_planned_leaves_the_run_as_planned():
    refit = Refit(step=SAME, failures=replace(SAME, sigma=PLAN.rate_sigma), recovery=SAME, shares=cause_shares_of(PLAN))
    left = rest_of(plan=PLAN, refit=refit, done_s=0.0, elapsed_s=0.0)
    assert expected_run(plan=left).elapsed_s == pytest.approx(expected_run(plan=PLAN).elapsed_s, rel=1e-3)


def test_a_rate_stated_as_sure_is_doubted_once_there_is_a_log():
    assert failure_sigma(replace(PLAN, node_sigma=0.0, job_sigma=0.0)) > 0.3
    assert failure_sigma(PLAN) == PLAN.rate_sigma


@pytest.mark.parametrize(("lost_s", "automatic"), [(600.0, 1.0), (2400.0, 1.0), (2400.0, 0.9)])
def test_downtime_of_the_replications_is_that_of_the_log(lost_s, automatic):
    """Recoveries that failures hit merge: what is left spends as much time down as the log does."""
    plan = replace(PLAN, automatic_frac=automatic, manual_s=7200.0)
    refit = Refit(
        step=SAME,
        failures=replace(SAME, posterior=(3.0, 3.0, 3.0)),
        recovery=replace(SAME, posterior=(3.0, 3.0, 3.0)),
        shares=cause_shares_of(PLAN),
        lost_each_s=lost_s,
    )
    left = rest_of(plan=plan, refit=refit, done_s=0.0, elapsed_s=0.0)
    found = simulate_runs(plan=left, replications=200, seed=2)
    stops = found.counts[:, :5].sum()
    down = found.losses_s[:, [LOSSES.index(k) for k in ("detection", "replacement", "restart")]].sum()
    assert down / stops == pytest.approx(3 * plan.recovery_s, rel=0.03)
    assert found.losses_s[:, LOSSES.index("lost_work")].sum() / stops == pytest.approx(lost_s, rel=0.05)


def test_lost_work_of_rare_failures_is_half_a_cycle_and_what_is_not_durable():
    assert mean_lost_s(cycle_s=1000, late_s=300, rate_per_s=1e-8) == pytest.approx(800, rel=1e-3)
    rng, often = np.random.default_rng(1), 1 / 2000
    times = rng.exponential(1 / often, 200_000)
    lost = times - 1000 * np.maximum(0, np.floor((times - 300) / 1000))
    assert mean_lost_s(cycle_s=1000, late_s=300, rate_per_s=often) == pytest.approx(lost.mean(), rel=0.01)
