"""A run's log in the terms of its plan: sums, step ratios, pauses, and what was forecast before the start."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.catalog.reliability import fitted_rate
from planner.decide.run import DAY_S, plan_of
from planner.forecast import Forecast, forecast_strategy, step_sigma
from planner.profile.progress_log import UNEXPECTED, Period
from planner.scenario import Scenario
from planner.simulate.run.closed_form import ExpectedRun, expected_run, mean_failures_per_s, optimal_interval_s
from planner.simulate.run.plan import RunPlan
from planner.simulate.run.refit import FEWEST_STOPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What was forecast before the start.

    Attributes:
        plan: without its queue, which is over once there is a log.
        clock: the plan to refit, with the rates of published clusters where the scenario states none at all.
        sigma: standard deviation of the logarithm of the step.
        usd_per_gpu_hour: everything that is paid by the hour.
        engineering_usd: paid before the start.
    """

    forecast: Forecast
    plan: RunPlan
    clock: RunPlan
    expected: ExpectedRun
    steps: float
    step_s: float
    sigma: float
    usd_per_gpu_hour: float
    usd_sigma: float
    engineering_usd: float

    @property
    def days(self) -> float:
        """Expected days from the first step to the last."""
        return self.expected.elapsed_s / DAY_S

    @property
    def losses(self) -> Mapping[str, float]:
        """Shares of elapsed time by loss."""
        return dict(self.expected.losses)


def planned_run(*, scenario: Scenario, name: str) -> Planned:
    """The forecast of a strategy as the log is judged by it.

    Raises:
        ForecastError: the strategy cannot be forecast.
    """
    forecast = forecast_strategy(scenario=scenario, name=name)
    document = forecast.document
    plan = replace(plan_of(scenario=scenario, name=name, forecast=forecast), queue_s=0.0)
    engineering = document["people_usd"]["engineering"]
    return Planned(
        forecast=forecast,
        plan=plan,
        clock=_with_failures(plan),
        expected=expected_run(plan=plan),
        steps=plan.work_s / forecast.answer.step_s,
        step_s=forecast.answer.step_s,
        sigma=step_sigma(scenario=scenario, answer=forecast.answer),
        usd_per_gpu_hour=(document["cost_usd_total"]["p50"] - engineering) / document["gpu_hours"],
        usd_sigma=document["price"]["sigma"],
        engineering_usd=engineering,
    )


def _with_failures(plan: RunPlan) -> RunPlan:
    """A rate of zero cannot be scaled to what a log shows."""
    if plan.failures_per_s > 0:
        return plan
    node, job = fitted_rate("per_node"), fitted_rate("per_job")
    rate = (plan.nodes * node.per_day + job.per_day) / DAY_S
    interval = plan.interval_s
    if not math.isfinite(interval):
        interval = max(60.0, optimal_interval_s(rule="daly", stall_s=plan.stall_s, mtti_s=1 / rate))
    return replace(
        plan,
        interval_s=interval,
        node_failures_per_s=node.per_day / DAY_S,
        node_sigma=node.sigma,
        job_failures_per_s=job.per_day / DAY_S,
        job_sigma=job.sigma,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """Sums over the log; None = the log does not tell."""

    periods: tuple[Period, ...]
    steps: float
    hours: float
    elapsed_s: float
    gap_h: float
    gpu_hours: float
    step_ratios: tuple[float, ...]
    step_hours: tuple[float, ...]
    step_source: str
    stops: Mapping[str, int] | None
    expected_failures: float
    recoveries: int
    recovery_h: float
    pause_frac: float | None
    lost_each_s: float | None
    productive_h: float | None
    stopped_h: Mapping[str, float | None]
    cost_usd: float | None
    price_usd: float | None


def actual_run(
    *, periods: Sequence[Period], planned: Planned, gpus: int, step_ratios: tuple[float, ...] = ()
) -> Actual:
    """What the log says, in the plan's terms.

    Args:
        periods: in time order; none where only steps were measured.
        planned: the forecast before the start.
        gpus: of the scenario.
        step_ratios: measured over planned steps that belong to no period.
    """
    hours = sum(p.hours for p in periods)
    elapsed = (periods[-1].end - periods[0].start).total_seconds() if periods else 0.0
    ratios, weights, source = _step_ratios(periods=periods, planned=planned, gpus=gpus)
    if step_ratios:
        ratios, weights, source = step_ratios, (1.0,) * len(step_ratios), "step_s"
    counted = [p for p in periods if p.stops is not None]
    timed = [p for p in counted if p.downtime_h is not None]
    priced = [p for p in periods if p.cost_usd is not None]
    paid_hours = sum(p.hours * (p.gpus or gpus) for p in priced)
    paid = sum(p.cost_usd or 0.0 for p in priced)
    stepped = [p for p in periods if p.step_s is not None]
    whole = len(stepped) == len(periods) > 0
    return Actual(
        periods=tuple(periods),
        steps=sum(p.steps for p in periods),
        hours=hours,
        elapsed_s=elapsed,
        gap_h=max(0.0, elapsed / 3600 - hours),
        gpu_hours=sum(p.hours * (p.gpus or gpus) for p in periods),
        step_ratios=ratios,
        step_hours=weights,
        step_source=source,
        stops=_sum_stops(counted) if counted else None,
        expected_failures=sum(_expected_failures(period=p, plan=planned.clock, gpus=gpus) for p in counted),
        recoveries=sum(sum((p.stops or {}).get(c, 0) for c in UNEXPECTED) for p in timed),
        recovery_h=sum(p.downtime_h or 0.0 for p in timed),
        pause_frac=_pause_frac(periods=periods, planned=planned),
        lost_each_s=_lost_each_s(counted),
        productive_h=sum(p.steps * (p.step_s or 0.0) for p in stepped) / 3600 if whole else None,
        stopped_h={
            key: sum(getattr(p, key) for p in periods)
            if periods and all(getattr(p, key) is not None for p in periods)
            else None
            for key in ("downtime_h", "planned_h", "preempted_h", "lost_work_h")
        },
        cost_usd=paid if priced and len(priced) == len(periods) else None,
        price_usd=paid / paid_hours if paid_hours else None,
    )


def _lost_each_s(counted: Sequence[Period]) -> float | None:
    """Mean work lost to an unexpected stop; None where too few were logged with it."""
    told = [p for p in counted if p.lost_work_h is not None]
    seen = sum((p.stops or {}).get(c, 0) for p in told for c in UNEXPECTED)
    return sum(p.lost_work_h or 0.0 for p in told) * 3600 / seen if seen >= FEWEST_STOPS else None


def _sum_stops(periods: Sequence[Period]) -> dict[str, int]:
    causes = periods[0].stops or {}
    return {c: sum((p.stops or {}).get(c, 0) for p in periods) for c in causes}


def _expected_failures(*, period: Period, plan: RunPlan, gpus: int) -> float:
    """Of the plan's median cluster in a period, whose nodes fail while the job's own failures stay."""
    whole = mean_failures_per_s(plan=plan, over_s=plan.work_s) * period.hours * 3600
    job = plan.job_failures_per_s / plan.failures_per_s if plan.failures_per_s > 0 else 0.0
    return whole * (job + (1 - job) * (period.gpus or gpus) / gpus)


def _stopped_h(*, period: Period, planned: Planned) -> float | None:
    """Hours of a period in which no step ran or its work was lost; None where the log does not tell."""
    if period.downtime_h is None:
        return None
    stops = period.stops or {}
    for count, key in (("planned", "planned_h"), ("preemption", "preempted_h")):
        if stops.get(count) and getattr(period, key) is None:
            return None
    lost = period.lost_work_h
    if lost is None:
        each = planned.losses["lost_work"] * planned.expected.elapsed_s / max(planned.expected.interruptions, 1e-12)
        lost = sum(stops.get(c, 0) for c in UNEXPECTED) * each / 3600
    return min(period.hours, period.downtime_h + (period.planned_h or 0.0) + (period.preempted_h or 0.0) + lost)


def _running_frac(plan: RunPlan) -> float:
    """Share of running time that checkpoints leave."""
    stalls = plan.stall_s / plan.cycle_s if math.isfinite(plan.interval_s) else 0.0
    return (1 - stalls) * (1 - plan.overhead_parts[0])


def _pause_frac(*, periods: Sequence[Period], planned: Planned) -> float | None:
    """Share of running time, checkpoints aside, in which no step ran."""
    told = [(p, _stopped_h(period=p, planned=planned)) for p in periods if p.step_s is not None]
    told = [(p, s) for p, s in told if s is not None]
    running = sum(p.hours - (s or 0.0) for p, s in told) * 3600 * _running_frac(planned.plan)
    if running <= 0:
        return None
    return min(0.95, max(0.0, 1 - sum(p.steps * (p.step_s or 0.0) for p, _ in told) / running))


def _step_ratios(
    *, periods: Sequence[Period], planned: Planned, gpus: int
) -> tuple[tuple[float, ...], tuple[float, ...], str]:
    """Measured over planned step of each period that tells, its hours, and what it was read from."""
    same = [p for p in periods if (p.gpus or gpus) == gpus]
    measured = [p for p in same if p.step_s is not None]
    if measured:
        return tuple((p.step_s or 0.0) / planned.step_s for p in measured), tuple(p.hours for p in measured), "step_s"
    moving = [p for p in same if p.steps > 0]
    stopped = [(p, _stopped_h(period=p, planned=planned)) for p in moving]
    plan = planned.plan
    keep = _running_frac(plan) * (1 - plan.evaluation_frac) * (1 - plan.data_frac)
    told = [(p, p.hours - s) for p, s in stopped if s is not None and p.hours > s]
    source = "running hours"
    if not told:
        told, keep, source = [(p, p.hours) for p in moving], planned.expected.goodput, "pace"
    if not told:
        return (), (), "nothing"
    return tuple(h * 3600 * keep / p.steps / planned.step_s for p, h in told), tuple(h for _, h in told), source
