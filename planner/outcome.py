"""From a step to days, energy and money for one strategy: the part of the spine behind the step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.bill import above, band, bill_of
from planner.catalog.line import Line
from planner.scenario import Scenario, Strategy
from planner.simulate.assemble import StepAnswer
from planner.simulate.run.closed_form import RunRates, checkpoint_bytes, expected_run
from planner.workload.params import total_params
from planner.workload.resolve import Resolved

SECONDS_PER_DAY = 86_400.0
# One standard deviation of the logarithm of the interruption rate between published clusters (3.8 to 16 per 1000
# node-days over Llama 3, RSC-1, BLOOM and OPT).
RATE_SIGMA = 0.6


@dataclass(frozen=True, slots=True)
class Outcome:
    """The run and bill blocks of contract 3, with their lines."""

    document: Mapping[str, Any]
    lines: tuple[Line, ...]
    warnings: tuple[str, ...]


def _rates(*, scenario: Scenario, strategy: Strategy) -> RunRates:
    run = scenario.run
    default = strategy.preset == "stack" and strategy.engineering_weeks == 0
    automatic = run.automatic_restart_frac if run.automatic_restart_frac is not None else (0.0 if default else 0.9)
    asynchronous = run.checkpoint_asynchronous if run.checkpoint_asynchronous is not None else not default
    size = checkpoint_bytes(params=total_params(scenario.model_spec))
    write_s = size / run.storage_bytes_per_s
    interval = run.checkpoint_interval_s or (3 * 3600.0 if default else None)
    return RunRates(
        failures_per_s=(run.failures_per_1000_node_days / 1000 * scenario.cluster.nodes + run.job_failures_per_day)
        / SECONDS_PER_DAY,
        stall_s=min(write_s, 5.0) if asynchronous else write_s,
        durable_s=write_s,
        recovery_s=run.detection_s + run.restart_s + (1 - automatic) * run.manual_restart_s,
        interval_s=interval,
    )


def run_and_bill(
    *, scenario: Scenario, strategy: Strategy, resolved: Resolved, answer: StepAnswer, sigma: float
) -> Outcome:
    """Days, goodput, energy and cost of the stated tokens."""
    steps = math.ceil(
        scenario.training.tokens / (scenario.training.global_batch_sequences * scenario.training.sequence_length)
    )
    ideal_s = steps * answer.step_s
    rates = _rates(scenario=scenario, strategy=strategy)
    run = expected_run(ideal_s=ideal_s, rates=rates)
    days = run.elapsed_s / SECONDS_PER_DAY
    gpus = scenario.gpus
    gpu_hours = days * 24 * gpus
    # Days spread with the step and with the failure rate, which moves only the lost part.
    days_sigma = math.hypot(sigma, (1 - run.goodput) * RATE_SIGMA)
    bill = bill_of(
        scenario=scenario,
        strategy=strategy,
        answer=answer,
        gpu_hours=gpu_hours,
        goodput=run.goodput,
        days_sigma=days_sigma,
        lost_work_frac=dict(run.losses).get("lost_work", 0.0),
    )
    goals = scenario.goals
    document = {
        "goodput": run.goodput,
        "losses_frac": dict(run.losses),
        "recovery_s": rates.recovery_s,
        "checkpoint_interval_s": run.interval_s,
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
            ("step_s.p50", f"steps={steps}"),
            "assumed",
            "scenario",
        ),
        Line(
            "goodput",
            run.goodput,
            "1",
            "Daly 2006: W = M exp(R/M) (exp((tau+delta)/M) - 1) Ts/tau",
            (
                f"mtti_s={1 / rates.failures_per_s if rates.failures_per_s else math.inf:.4g}",
                f"delta_s={rates.stall_s:.4g}",
                f"recovery_s={rates.recovery_s:.4g}",
                f"interval_s={run.interval_s:.4g}",
            ),
            "assumed",
            "Daly 2006; rates in scenario.run",
        ),
        Line("days.p50", days, "day", "days_ideal / goodput", ("days_ideal", "goodput"), "assumed", ""),
        Line("gpu_hours", gpu_hours, "GPU-h", "days x 24 x GPUs", ("days.p50", f"gpus={gpus}"), "assumed", ""),
        *bill.lines,
    )
    return Outcome(document, lines, bill.warnings)
