"""From a step to days, energy and money for one strategy: the part of the spine behind the step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from statistics import NormalDist
from typing import Any

from planner import catalog
from planner.catalog.line import Line
from planner.catalog.prices import rental_price
from planner.money.rent import price_warnings
from planner.scenario import Scenario, Strategy
from planner.simulate.assemble import StepAnswer
from planner.simulate.run.closed_form import RunRates, checkpoint_bytes, expected_run
from planner.workload.params import total_params
from planner.workload.resolve import Resolved

SECONDS_PER_DAY = 86_400.0
Z80 = 1.2815515655446004
# One standard deviation of the logarithm of the interruption rate between published clusters (3.8 to 16 per 1000
# node-days over Llama 3, RSC-1, BLOOM and OPT), and of the median price between providers.
RATE_SIGMA, PRICE_SIGMA = 0.6, 0.15
IDLE_FRAC = 0.25  # share of a GPU's power limit that it draws while waiting (H200 yardstick: 180 of 700 W)


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
    bill, bill_lines, warnings = _bill(
        scenario=scenario,
        strategy=strategy,
        answer=answer,
        gpu_hours=gpu_hours,
        goodput=run.goodput,
        days_sigma=days_sigma,
    )
    goals = scenario.goals
    document = {
        "goodput": run.goodput,
        "losses_frac": dict(run.losses),
        "recovery_s": rates.recovery_s,
        "checkpoint_interval_s": run.interval_s,
        "interruptions": run.interruptions,
        "days_ideal": ideal_s / SECONDS_PER_DAY,
        "days": _band(days, days_sigma),
        "p_late": None if goals.deadline_days is None else _above(days, days_sigma, goals.deadline_days),
        "p_over_budget": None
        if goals.budget_usd is None
        else _above(bill["cost_usd_total"]["p50"], math.hypot(days_sigma, PRICE_SIGMA), goals.budget_usd),
        "gpu_hours": gpu_hours,
        "experiments_per_day": 1.0 / days if days > 0 else None,
        **bill,
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
        *bill_lines,
    )
    return Outcome(document, lines, warnings)


def _bill(
    *, scenario: Scenario, strategy: Strategy, answer: StepAnswer, gpu_hours: float, goodput: float, days_sigma: float
) -> tuple[dict[str, Any], tuple[Line, ...], tuple[str, ...]]:
    pricing, node = scenario.pricing, catalog.node(scenario.cluster.node)
    gpu = catalog.gpu(node.gpu)
    price, label, source, warnings = _price(scenario=scenario, gpu=gpu.name)
    compute = gpu_hours * price
    people = strategy.engineering_weeks * pricing.usd_per_person_week
    watts_per_gpu = (node.max_power_w or gpu.tdp_w * 1.8 * node.gpus_per_node) / node.gpus_per_node
    busy = goodput * (answer.compute_busy_frac + (1 - answer.compute_busy_frac) * IDLE_FRAC) + (1 - goodput) * IDLE_FRAC
    energy = gpu_hours * watts_per_gpu / 1e3 * busy * pricing.pue
    total = compute + people
    programme = scenario.programme
    document = {
        "energy_kwh": energy,
        "carbon_t": energy * pricing.grid_g_per_kwh / 1e6,
        "cost_usd": {
            "compute": compute,
            "network": 0.0,
            "storage": 0.0,
            "power": 0.0,
            "facility": 0.0,
            "people": people,
        },
        "cost_usd_total": _band(total, math.hypot(days_sigma, PRICE_SIGMA) * compute / total)
        if total
        else _band(0.0, 0.0),
        "cost_usd_per_useful_gpu_hour": price / goodput,
        "cost_usd_per_million_tokens": total / (scenario.training.tokens / 1e6),
        "programme_usd": compute * programme.runs_per_year * programme.years * programme.experiment_factor + people,
        "price": {"usd_per_gpu_hour": price, "label": label, "source": source},
    }
    lines = (
        Line(
            "cost_usd.compute",
            compute,
            "USD",
            "gpu_hours x price (rent includes network, power and facility)",
            ("gpu_hours", f"usd_per_gpu_hour={price:.4g}"),
            label,
            source,
        ),
        Line(
            "cost_usd.people",
            people,
            "USD",
            "engineering_weeks x usd_per_person_week",
            (f"engineering_weeks={strategy.engineering_weeks}", f"usd_per_person_week={pricing.usd_per_person_week}"),
            "assumed",
            "scenario.pricing",
        ),
        Line(
            "energy_kwh",
            energy,
            "kWh",
            "gpu_hours x node maximum per GPU x load x PUE",
            ("gpu_hours", f"watts_per_gpu={watts_per_gpu:.0f}", f"load={busy:.3f}", f"pue={pricing.pue}"),
            "assumed",
            node.source,
        ),
    )
    return document, lines, warnings


def _price(*, scenario: Scenario, gpu: str) -> tuple[float, str, str, tuple[str, ...]]:
    pricing = scenario.pricing
    if pricing.usd_per_gpu_hour is not None:
        return (
            pricing.usd_per_gpu_hour,
            "published",
            "own quote",
            price_warnings(day=pricing.quote_date, today=date.today(), what="your quote"),
        )
    found = rental_price(gpu=gpu, tenure=pricing.tenure, provider=pricing.provider)
    if found is None:
        text = f"no {pricing.tenure} price of {gpu} known: 2 USD per GPU-hour assumed; give pricing.usd_per_gpu_hour"
        return 2.0, "assumed", "no row in the price table", (text,)
    what = f"price of {gpu} ({found.provider} {found.instance}, {found.usd_per_gpu_hour:.2f} USD per GPU-hour)"
    source = f"{found.provider} {found.instance} {found.region} {found.date or 'undated'}; {found.source}"
    return found.usd_per_gpu_hour, "published", source, price_warnings(day=found.date, today=date.today(), what=what)


def _band(value: float, sigma: float) -> dict[str, float]:
    return {"p10": value * math.exp(-Z80 * sigma), "p50": value, "p90": value * math.exp(Z80 * sigma)}


def _above(value: float, sigma: float, limit: float) -> float:
    """Probability that a log-normal figure exceeds a limit."""
    if sigma <= 0:
        return float(value > limit)
    return 1.0 - NormalDist().cdf(math.log(limit / value) / sigma)
