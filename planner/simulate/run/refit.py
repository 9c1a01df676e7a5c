"""What a run's log tells about its plan: step time, failures and recovery, each a prior updated by counts or times.

Conjugate pairs (Gelman et al., Bayesian Data Analysis, 3rd edition, 2.5-2.6): normal-normal on the logarithm of the
step, gamma-Poisson on the rate of failures, inverse-gamma on the mean of exponential recoveries. A prior is the plan's
own spread; a gamma takes over the mean and variance of a log-normal.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from planner.catalog.reliability import FAILURE_CAUSES, fitted_rate
from planner.simulate.run.plan import RunPlan

Z80 = 1.2815515655446004
QUANTILES = (0.1, 0.5, 0.9)
# Between periods of one run where fewer than three were logged, and the least that is left unknown of the periods to
# come. Assumed.
STEP_SCATTER, STEP_DRIFT = 0.03, 0.01
# Beyond the plan's P1 or P99.
CONFLICT_Z = 2.326
# Between clusters, of the mean time to recover: P10 to P90 is half to twice. Assumed.
RECOVERY_SIGMA = 0.5
# What the published shares by cause, of one cluster, count for: failures of this run that weigh as much. Assumed.
SHARE_FAILURES = 10.0
# Planned stops and preemptions follow the log from this many on: one window says nothing of the next. Assumed.
FEWEST_STOPS = 3


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor on what the plan says, 1 = as planned: before and after the log.

    Attributes:
        prior, posterior: P10, P50 and P90.
        sigma: one standard deviation of the posterior's logarithm.
        n: periods or events that it rests on.
        alone: the log counts without the plan, which all but ruled it out.
    """

    prior: tuple[float, float, float]
    posterior: tuple[float, float, float]
    sigma: float
    n: float
    alone: bool = False

    @property
    def told_frac(self) -> float:
        """How much narrower the log made it: 0 = nothing learned."""
        before, after = (math.log(q[2] / q[0]) for q in (self.prior, self.posterior))
        return max(0.0, 1 - after / before) if before > 0 else 0.0


def _band(*, center: float, sigma: float) -> tuple[float, float, float]:
    return center * math.exp(-Z80 * sigma), center, center * math.exp(Z80 * sigma)


def effective_periods(*, residuals: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Independent periods behind a weighted mean of neighbours that resemble each other.

    Kish 1965 for unequal weights; (1 - r)/(1 + r) for lag-one correlation r (Bartlett 1935), from five periods on.
    """
    kish = float(weights.sum() ** 2 / (weights**2).sum())
    if residuals.size < 5 or not np.any(residuals):
        return kish
    r = float((residuals[1:] * residuals[:-1]).sum() / (residuals**2).sum())
    return max(1.0, kish * (1 - max(0.0, r)) / (1 + max(0.0, r)))


def step_factor(*, ratios: Sequence[float], hours: Sequence[float], prior_sigma: float) -> Factor:
    """Measured over planned step time.

    Args:
        ratios: (periods,) measured over planned, in time order; empty = nothing was measured.
        hours: (periods,) weight of each.
        prior_sigma: standard deviation of the logarithm of the planned step.
    """
    prior = _band(center=1.0, sigma=prior_sigma)
    if not ratios:
        return Factor(prior, prior, prior_sigma, 0)
    logs, weights = np.log(np.asarray(ratios)), np.asarray(hours, dtype=float)
    mean = float(np.average(logs, weights=weights))
    n = effective_periods(residuals=logs - mean, weights=weights)
    scatter = STEP_SCATTER
    if len(ratios) >= 3:
        square = float(np.average((logs - mean) ** 2, weights=weights)) * len(ratios) / (len(ratios) - 1)
        # A spread known from few periods: Student's t at P90 over the normal's.
        scatter = math.sqrt(square) * float(stats.t.ppf(0.9, len(ratios) - 1)) / Z80
    error = math.hypot(scatter / math.sqrt(n), STEP_DRIFT)
    # A log that the plan all but rules out measures something else than was forecast: it counts alone.
    if abs(mean) > CONFLICT_Z * math.hypot(prior_sigma, error):
        return Factor(prior, _band(center=math.exp(mean), sigma=error), error, n, alone=True)
    told = prior_sigma**2 / (prior_sigma**2 + error**2)
    sigma = error * math.sqrt(told)
    return Factor(prior, _band(center=math.exp(mean * told), sigma=sigma), sigma, n)


def failure_sigma(plan: RunPlan) -> float:
    """Spread of the rate before the log: the plan's, or between published clusters where it states none."""
    if plan.rate_sigma > 0:
        return plan.rate_sigma
    node, job = fitted_rate("per_node").sigma, fitted_rate("per_job").sigma
    return math.hypot((1 - _job_frac(plan)) * node, _job_frac(plan) * job)


def _gamma_of(sigma: float) -> tuple[float, float]:
    """Shape and rate of a gamma of median 1 whose logarithm has this standard deviation.

    The variance of the logarithm of a gamma is the trigamma function of its shape.
    """
    log_shape = optimize.brentq(lambda x: float(special.polygamma(1, math.exp(x))) - sigma**2, -6.0, 16.0)
    shape = math.exp(log_shape)
    return shape, float(stats.gamma(shape).median())


def _log_sigma(shape: float) -> float:
    return math.sqrt(float(special.polygamma(1, shape)))


def failure_factor(*, events: int, expected: float, prior_sigma: float) -> Factor:
    """Failures over those that the plan's median rate gives in the same time.

    Args:
        events: unexpected stops counted.
        expected: of the plan, at its median rate.
        prior_sigma: standard deviation of the logarithm of the rate before.
    """
    shape, rate = _gamma_of(prior_sigma)
    before = stats.gamma(shape, scale=1 / rate)
    after = stats.gamma(shape + events, scale=1 / (rate + expected))
    return Factor(_quantiles(before), _quantiles(after), _log_sigma(shape + events), events)


def _quantiles(distribution: Any) -> tuple[float, float, float]:
    low, mid, high = (float(v) for v in distribution.ppf(QUANTILES))
    return low, mid, high


def count_band(*, expected: float, prior_sigma: float) -> tuple[float, float, float]:
    """P10, P50, P90 of a count before it is seen: negative binomial (Poisson where the rate is sure)."""
    if expected <= 0:
        return 0.0, 0.0, 0.0
    if prior_sigma <= 0:
        return _quantiles(stats.poisson(expected))
    shape, rate = _gamma_of(prior_sigma)
    return _quantiles(stats.nbinom(shape, rate / (rate + expected)))


def recovery_factor(*, events: int, hours: float, planned_s: float) -> Factor:
    """Mean recovery over the planned one, from `events` recoveries that took `hours` together."""
    # One over a gamma of median 1 has median 1 and the same spread of its logarithm.
    shape, scale = _gamma_of(RECOVERY_SIGMA)
    before = stats.invgamma(shape, scale=scale)
    if planned_s <= 0:
        return Factor(_quantiles(before), _quantiles(before), RECOVERY_SIGMA, 0)
    after = stats.invgamma(shape + events, scale=scale + hours * 3600 / planned_s)
    return Factor(_quantiles(before), _quantiles(after), _log_sigma(shape + events), events)


def _job_frac(plan: RunPlan) -> float:
    """Share of failures that are the job's own."""
    return plan.job_failures_per_s / plan.failures_per_s if plan.failures_per_s > 0 else 0.0


def cause_shares_of(plan: RunPlan) -> tuple[float, ...]:
    """Share of all failures by cause; those of the job itself are software, as in the replications."""
    job, total = _job_frac(plan), sum(plan.shares)
    return tuple(
        (1 - job) * s / total + (job if c == "software" else 0.0)
        for c, s in zip(FAILURE_CAUSES, plan.shares, strict=True)
    )


def cause_posterior(*, plan: RunPlan, counts: Sequence[int]) -> tuple[float, ...]:
    """Shares of all failures by cause: Dirichlet, the plan's shares weighing SHARE_FAILURES failures."""
    weights = [SHARE_FAILURES * s + n for s, n in zip(cause_shares_of(plan), counts, strict=True)]
    return tuple(w / sum(weights) for w in weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    """What the log says of the plan.

    Attributes:
        step: factor on the planned step, other pauses of a running job left out.
        failures: factor on the rate of unexpected failures.
        recovery: factor on the mean time to recover.
        shares: share of all failures by cause, in the order of FAILURE_CAUSES.
        pause_frac: share of running time, checkpoints aside, that is no step; None = as planned.
        windows: mean seconds between planned stops and of one; None = as planned.
        preemptions: a second, and mean wait; None = as planned.
        lost_each_s: mean work lost to a failure; None = as planned.
    """

    step: Factor
    failures: Factor
    recovery: Factor
    shares: tuple[float, ...]
    pause_frac: float | None = None
    windows: tuple[float, float] | None = None
    preemptions: tuple[float, float] | None = None
    lost_each_s: float | None = None


def rest_of(*, plan: RunPlan, refit: Refit, done_s: float, elapsed_s: float, recovery: float | None = None) -> RunPlan:
    """The run that is left, with what the log taught.

    Args:
        plan: as it was before the start.
        refit: the log's answer.
        done_s: productive time at the plan's own speed that is behind.
        elapsed_s: since the start.
        recovery: factor on recovery to use instead of the posterior's median.
    """
    left_s = max(0.0, plan.work_s - done_s)
    software = refit.shares[FAILURE_CAUSES.index("software")]
    job = min(_job_frac(plan), software)
    node_shares = [s - (job if c == "software" else 0.0) for c, s in zip(FAILURE_CAUSES, refit.shares, strict=True)]
    # Both parts of the rate share what is unknown after the log, and are drawn apart: together they spread as it does.
    part_sigma = refit.failures.sigma / math.hypot(1 - job, job)
    rate = plan.failures_per_s * refit.failures.posterior[1]
    slower = refit.recovery.posterior[1] if recovery is None else recovery
    slower = _uninterrupted(plan=plan, factor=slower, rate_per_s=rate * plan.median_rate_factor)
    warm = max(0.0, plan.warmup_work_frac * plan.work_s - done_s)
    changed = replace(
        plan,
        work_s=left_s * refit.step.posterior[1],
        node_failures_per_s=rate * (1 - job) / plan.nodes,
        job_failures_per_s=rate * job,
        node_sigma=part_sigma,
        job_sigma=part_sigma,
        shares=tuple(node_shares) if job < 1 else plan.shares,
        infant_factor=plan.infant_factor * math.exp(-elapsed_s / plan.infant_s),
        **{key: getattr(plan, key) * slower for key in ("detection_s", "replacement_s", "restart_s", "manual_s")},
        **{key: getattr(plan, key) * slower for key in ("communicator_s", "load_s", "compile_s")},
        warmup_work_frac=warm / left_s if left_s > 0 else 0.0,
        deadline_s=None if plan.deadline_s is None else max(0.0, plan.deadline_s - elapsed_s),
        queue_s=0.0,
        startup_s=0.0,
    )
    # The median of a sum of log-normals is above the sum of medians; the factor is on that of the sum.
    fix = plan.median_rate_factor / changed.median_rate_factor
    changed = replace(
        changed,
        node_failures_per_s=changed.node_failures_per_s * fix,
        job_failures_per_s=changed.job_failures_per_s * fix,
    )
    if refit.windows is not None:
        changed = replace(changed, maintenance_interval_s=refit.windows[0], maintenance_s=refit.windows[1])
    if refit.preemptions is not None:
        changed = replace(changed, preemptions_per_s=refit.preemptions[0], preemption_wait_s=refit.preemptions[1])
    if refit.lost_each_s is not None:
        changed = _losing(plan=changed, each_s=refit.lost_each_s)
    if refit.pause_frac is None:
        return changed
    evaluation = min(changed.evaluation_frac, refit.pause_frac)
    data = (refit.pause_frac - evaluation) / (1 - evaluation) if evaluation < 1 else 0.0
    return replace(changed, evaluation_frac=evaluation, data_frac=min(0.95, data))


def mean_downtime_s(*, plan: RunPlan, factor: float, rate_per_s: float) -> float:
    """Mean downtime a counted failure whose recovery takes `factor` times the planned one.

    A failure in a recovery begins it again, so a counted failure takes min(R, T): (1 - exp(-r R)) / r on average.
    """
    fixed = plan.detection_s + plan.replacement_wait_s + plan.ready_s
    z = stats.norm.ppf((np.arange(64) + 0.5) / 64)
    by_hand = fixed + plan.manual_s * np.exp(plan.manual_sigma * z - plan.manual_sigma**2 / 2)
    alone, helped = (-np.expm1(-rate_per_s * factor * r) / rate_per_s for r in (fixed, by_hand))
    return float(plan.automatic_frac * alone + (1 - plan.automatic_frac) * np.mean(helped))


def _uninterrupted(*, plan: RunPlan, factor: float, rate_per_s: float) -> float:
    """Factor on recoveries that nothing hits, for a downtime a counted failure of `factor` times the planned one."""
    wanted = factor * plan.recovery_s
    if rate_per_s * wanted < 1e-9:
        return factor
    most = 50 * factor

    def excess(guess: float) -> float:
        return mean_downtime_s(plan=plan, factor=guess, rate_per_s=rate_per_s) - wanted

    return float(optimize.brentq(excess, 0.0, most)) if excess(most) > 0 else most


def mean_lost_s(*, cycle_s: float, late_s: float, rate_per_s: float) -> float:
    """Mean work lost to an exponential failure; checkpoints end every cycle, count `late_s` later, restart with it.

    T - cycle floor((T - late) / cycle) averaged over T; half a cycle plus `late_s` where failures are rare.
    """

    def part(a: float, b: float) -> float:
        mean = 1 / rate_per_s
        return (a + mean) * math.exp(-rate_per_s * a) - (b + mean) * math.exp(-rate_per_s * b)

    again = 1 / math.expm1(min(600.0, rate_per_s * cycle_s))
    return part(0, late_s + cycle_s) + again * part(late_s, late_s + cycle_s)


def _losing(*, plan: RunPlan, each_s: float) -> RunPlan:
    """A plan that loses this much work a counted failure: checkpoints that count later, or come more often."""
    rate = plan.failures_per_s * plan.median_rate_factor
    if rate <= 0:
        return plan
    # A failure that hits a recovery loses no more; the others lose less than a mean time to failure.
    hits = rate * mean_downtime_s(plan=plan, factor=1.0, rate_per_s=rate)
    wanted = min(each_s / max(0.1, 1 - hits), 0.9 / rate)

    def late(late_s: float) -> float:
        return mean_lost_s(cycle_s=plan.cycle_s, late_s=late_s, rate_per_s=rate) - wanted

    def cycle(cycle_s: float) -> float:
        return mean_lost_s(cycle_s=cycle_s, late_s=0.0, rate_per_s=rate) - wanted

    if math.isfinite(plan.cycle_s) and late(0.0) <= 0:
        found = float(optimize.brentq(late, 0.0, 20 / rate))
        return replace(plan, durable_s=plan.stall_s + found)
    shortest = plan.stall_s + 60.0
    found = float(optimize.brentq(cycle, shortest, 20 / rate)) if cycle(shortest) < 0 else shortest
    return replace(plan, interval_s=found - plan.stall_s, durable_s=plan.stall_s)
