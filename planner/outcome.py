"""From a step to days, energy and money for one strategy: the part of the spine behind the step."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.bill import above, band, bill_of
from planner.catalog.line import Line
from planner.money.people import effort
from planner.scenario import Scenario, Strategy
from planner.simulate.assemble import StepAnswer
from planner.simulate.run.closed_form import expected_run
from planner.simulate.run.setup import run_plan
from planner.workload.effects import LEAST_GAIN_FRAC, Effect
from planner.workload.resolve import Resolved

SECONDS_PER_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The run and bill blocks of contract 3, with their lines."""

    document: Mapping[str, Any]
    lines: tuple[Line, ...]
    warnings: tuple[str, ...]
    optimisations: tuple[Mapping[str, Any], ...] = ()


def run_and_bill(
    *, scenario: Scenario, strategy: Strategy, resolved: Resolved, answer: StepAnswer, sigma: float
) -> Outcome:
    """Days, goodput, energy and cost of the stated tokens."""
    applied = answer.applied
    setup: dict[str, Any] = {"scenario": scenario, "strategy": strategy, "layout": resolved.layout}
    plan = run_plan(**setup, step_s=answer.effective_s, optimisations=applied)
    ideal_s = plan.work_s
    run = expected_run(plan=plan)
    days = run.elapsed_s / SECONDS_PER_DAY
    gpus = scenario.gpus
    gpu_hours = days * 24 * gpus
    # Days spread with the step and with the failure rate, which moves only the lost part.
    days_sigma = math.hypot(sigma, (1 - run.goodput) * plan.rate_sigma)
    effects = tuple(
        _effect_document(effect=effect, scenario=scenario, setup=setup, step_s=answer.effective_s, applied=applied)
        for effect in (answer.optimised.effects if answer.optimised is not None else ())
    )
    bill = bill_of(
        scenario=scenario,
        strategy=strategy,
        answer=answer,
        gpu_hours=gpu_hours,
        goodput=run.goodput,
        days_sigma=days_sigma,
        lost_work_frac=dict(run.losses)["lost_work"],
        engineering_weeks=sum(e["effort_weeks"] for e in effects),
    )
    goals = scenario.goals
    document = {
        "goodput": run.goodput,
        "losses_frac": dict(run.losses),
        "recovery_s": plan.recovery_s,
        "checkpoint_interval_s": run.interval_s if math.isfinite(run.interval_s) else None,
        "interruptions": run.interruptions,
        "days_ideal": ideal_s / SECONDS_PER_DAY,
        "days": band(days, days_sigma),
        "p_late": None if goals.deadline_days is None else above(days, days_sigma, goals.deadline_days),
        "gpu_hours": gpu_hours,
        "experiments_per_day": 1.0 / days if days > 0 else None,
        **bill.document,
    }
    lines = (
        Line(
            "days_ideal",
            ideal_s / SECONDS_PER_DAY,
            "day",
            "tokens / (batch x sequence) x step",
            ("step_s.p50", f"steps={round(ideal_s / answer.step_s)}"),
            "assumed",
            "scenario",
        ),
        Line(
            "goodput",
            run.goodput,
            "1",
            "Daly 2006: W = M exp(R/M) (exp((tau+delta)/M) - 1) Ts/tau",
            (
                f"mtti_s={1 / plan.failures_per_s if plan.failures_per_s else math.inf:.4g}",
                f"delta_s={plan.stall_s:.4g}",
                f"recovery_s={plan.recovery_s:.4g}",
                f"interval_s={run.interval_s:.4g}",
            ),
            "assumed",
            "Daly 2006, first-order terms for the other pauses; rates in scenario.run",
        ),
        Line("days.p50", days, "day", "days_ideal / goodput", ("days_ideal", "goodput"), "assumed", ""),
        Line("gpu_hours", gpu_hours, "GPU-h", "days x 24 x GPUs", ("days.p50", f"gpus={gpus}"), "assumed", ""),
        *bill.lines,
    )
    return Outcome(document, lines, bill.warnings, effects)


def _effect_document(
    *, effect: Effect, scenario: Scenario, setup: Mapping[str, Any], step_s: float, applied: Sequence[str]
) -> dict[str, Any]:
    """What one optimisation did: on the step as simulated, on the run by its closed form with and without it."""
    entry, gain, note = effect.entry, effect.gain_frac, effect.note
    if effect.applied and entry.modelled_by == "run":
        others = [key for key in applied if key != effect.key]
        whole, without = (
            expected_run(plan=run_plan(**setup, step_s=step_s, optimisations=keys)).elapsed_s
            for keys in (applied, others)
        )
        gain = 1 - whole / without
        note = note if gain > LEAST_GAIN_FRAC else "changes nothing in this scenario"
    return {
        "key": effect.key,
        "name": entry.name,
        "applied": effect.applied,
        "gain_frac": gain,
        "before_s": effect.before_s,
        "after_s": effect.after_s,
        "effort_weeks": effort(entry=entry, team=scenario.team)[1] if effect.applied else 0.0,
        "by": effect.by,
        "source": entry.source if effect.applied else "",
        "note": note if effect.applied else f"not applied: {note}",
    }
