"""Plan against actual over the time of a log, row by row, and the refitted factors in the plan's units."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.catalog.reliability import FAILURE_CAUSES
from planner.decide.progress_actual import Actual, Planned
from planner.decide.run import DAY_S
from planner.profile.progress_log import UNEXPECTED
from planner.simulate.run.closed_form import mean_failures_per_s
from planner.simulate.run.refit import Factor, Refit, cause_shares_of, count_band

STOPPED = ("detection", "replacement", "restart")
Z80 = 1.2815515655446004


def comparison(*, planned: Planned, actual: Actual, tokens_per_step: float) -> list[dict[str, Any]]:
    """Rows of plan against actual over the time of the log; `inside` the plan's P10-P90, None where it has none."""
    losses, plan = planned.losses, planned.plan
    total_sigma = math.hypot(planned.sigma, (1 - planned.expected.goodput) * plan.rate_sigma)
    tokens_a_day = planned.steps / planned.days * tokens_per_step
    shares = {
        "stopped_frac": (sum(losses[k] for k in STOPPED), "downtime_h"),
        "planned_frac": (losses["planned"], "planned_h"),
        "preempted_frac": (losses["preempted"], "preempted_h"),
        "lost_work_frac": (losses["lost_work"], "lost_work_h"),
    }
    step = None
    if actual.step_source == "step_s":
        step = planned.step_s * float(np.average(actual.step_ratios, weights=actual.step_hours))
    pace = actual.steps * tokens_per_step / (actual.hours / 24) if actual.hours else None
    goodput = None if actual.productive_h is None else actual.productive_h / actual.hours
    rows = [
        _row("step_s", "s", planned.step_s, step, sigma=planned.sigma),
        _row("tokens_per_day", "token/day", tokens_a_day, pace, sigma=total_sigma),
        _row("goodput", "1", planned.expected.goodput, goodput),
    ]
    for key, (share, column) in shares.items():
        hours = actual.stopped_h[column]
        rows.append(_row(key, "1", share, None if hours is None else hours / actual.hours))
    if actual.stops is not None:
        rows += _stop_rows(planned=planned, actual=actual, stops=actual.stops)
    mean_s = actual.recovery_h * 3600 / actual.recoveries if actual.recoveries else None
    rows.append(_row("recovery_s", "s", plan.recovery_s, mean_s, sigma=None))
    usd = actual.cost_usd
    if not actual.periods:
        return rows
    rows.append(_row("cost_usd", "USD", planned.usd_per_gpu_hour * actual.gpu_hours, usd, sigma=planned.usd_sigma))
    per_token = planned.usd_per_gpu_hour * 24 * plan.nodes * plan.gpus_per_node / tokens_a_day * 1e6
    mtokens = actual.steps * tokens_per_step / 1e6
    rows.append(
        _row(
            "cost_usd_per_million_tokens", "USD", per_token, usd / mtokens if usd is not None and mtokens > 0 else None
        )
    )
    return rows


def _stop_rows(*, planned: Planned, actual: Actual, stops: Mapping[str, int]) -> list[dict[str, Any]]:
    """Unexpected stops together and by cause, against the band of a count that nobody has seen yet."""
    sigma = planned.plan.rate_sigma
    expected = actual.expected_failures if planned.plan.failures_per_s > 0 else 0.0
    rows = [_counted("interruptions", expected, sum(stops[c] for c in UNEXPECTED), sigma)]
    for cause, share in zip(FAILURE_CAUSES, cause_shares_of(planned.plan), strict=True):
        rows.append(_counted(f"interruptions.{cause}", expected * share, stops[cause], sigma))
    return rows


def _counted(key: str, expected: float, seen: int, sigma: float) -> dict[str, Any]:
    low, _, high = count_band(expected=expected, prior_sigma=sigma)
    return {
        "key": key,
        "unit": "count",
        "plan": expected,
        "p10": low,
        "p90": high,
        "actual": seen,
        "inside": low <= seen <= high,
    }


def _row(key: str, unit: str, plan: float, actual: float | None, sigma: float | None = None) -> dict[str, Any]:
    low = high = None
    if sigma:
        low, high = (plan * math.exp(z * Z80 * sigma) for z in (-1, 1))
    return {
        "key": key,
        "unit": unit,
        "plan": plan,
        "p10": low,
        "p90": high,
        "actual": actual,
        "inside": None if low is None or high is None or actual is None else low <= actual <= high,
    }


def refit_document(*, planned: Planned, actual: Actual, refit: Refit) -> dict[str, Any]:
    """Each factor with its prior and posterior, in the plan's own units too."""
    plan = planned.plan
    rate = mean_failures_per_s(plan=plan, over_s=plan.work_s) * DAY_S
    return {
        "step_s": _factor(refit.step, planned.step_s, "s") | {"source": actual.step_source},
        "failures_per_day": _factor(refit.failures, rate, "1/day") | {"expected": actual.expected_failures},
        "recovery_s": _factor(refit.recovery, plan.recovery_s, "s"),
        "cause_shares": dict(zip(FAILURE_CAUSES, refit.shares, strict=True)),
        "pause_frac": {
            "planned": 1 - (1 - plan.evaluation_frac) * (1 - plan.data_frac),
            "fitted": refit.pause_frac,
        },
        "lost_work_s_per_stop": refit.lost_each_s,
        "planned_stops": None
        if refit.windows is None
        else {"interval_s": refit.windows[0], "length_s": refit.windows[1]},
        "preemptions": None
        if refit.preemptions is None
        else {"per_day": refit.preemptions[0] * DAY_S, "wait_s": refit.preemptions[1]},
        "usd_per_gpu_hour": {"planned": planned.usd_per_gpu_hour, "fitted": actual.price_usd},
    }


def _factor(factor: Factor, planned: float, unit: str) -> dict[str, Any]:
    def block(values: tuple[float, float, float]) -> dict[str, float]:
        return dict(zip(("p10", "p50", "p90"), (planned * v for v in values), strict=True))

    return {
        "unit": unit,
        "planned": planned,
        "prior": block(factor.prior),
        "posterior": block(factor.posterior),
        "factor": factor.posterior[1],
        "n": factor.n,
        "told_frac": factor.told_frac,
    }
