"""Energy, carbon and money of one strategy, as lines: the part of the spine behind the run."""

import math
from datetime import date
from statistics import NormalDist
from typing import Any

from planner import catalog
from planner.catalog.line import Line
from planner.catalog.prices import rental_price
from planner.money.rent import price_warnings
from planner.scenario import Scenario, Strategy
from planner.simulate.assemble import StepAnswer

Z80 = 1.2815515655446004
# One standard deviation of the logarithm of the median price between providers.
PRICE_SIGMA = 0.15
IDLE_FRAC = 0.25  # share of a GPU's power limit that it draws while waiting (H200 yardstick: 180 of 700 W)


def bill_of(
    *, scenario: Scenario, strategy: Strategy, answer: StepAnswer, gpu_hours: float, goodput: float, days_sigma: float
) -> tuple[dict[str, Any], tuple[Line, ...], tuple[str, ...]]:
    """The bill's part of the forecast document, its lines and its warnings."""
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
        "cost_usd_total": band(total, math.hypot(days_sigma, PRICE_SIGMA) * compute / total)
        if total
        else band(0.0, 0.0),
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


def band(value: float, sigma: float) -> dict[str, float]:
    """P10, P50 and P90 of a log-normal figure."""
    return {"p10": value * math.exp(-Z80 * sigma), "p50": value, "p90": value * math.exp(Z80 * sigma)}


def above(value: float, sigma: float, limit: float) -> float:
    """Probability that a log-normal figure exceeds a limit."""
    if sigma <= 0:
        return float(value > limit)
    return 1.0 - NormalDist().cdf(math.log(limit / value) / sigma)
