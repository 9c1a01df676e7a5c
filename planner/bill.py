"""Energy, carbon and money of one strategy, as lines: the part of the spine behind the run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from statistics import NormalDist
from typing import Any

from planner.catalog.line import Line
from planner.catalog.prices import discount_frac
from planner.money.accounts import RunHours, owned_lines, people_lines, rent_lines, total_sigma
from planner.money.energy import draws_of, energy_of
from planner.money.ownership import BUCKETS, Ownership, ownership_of
from planner.money.people import calendar_weeks
from planner.money.power import Draw
from planner.money.programme import programme_of
from planner.money.rent import Rent, catalogue_rent, commitment_break_even, mean_rent, quoted, spot_break_even_ratio
from planner.money.site import Site, currency_rate, site_of
from planner.scenario import Scenario, Strategy
from planner.simulate.assemble import StepAnswer
from planner.simulate.run.closed_form import checkpoint_bytes
from planner.workload.params import total_params

Z80 = 1.2815515655446004


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill's part of the forecast document, its lines and its warnings."""

    document: Mapping[str, Any]
    lines: tuple[Line, ...]
    warnings: tuple[str, ...]


def bill_of(
    *,
    scenario: Scenario,
    strategy: Strategy,
    answer: StepAnswer,
    gpu_hours: float,
    goodput: float,
    days_sigma: float,
    lost_work_frac: float = 0.0,
    engineering_weeks: float | None = None,
) -> Bill:
    """Energy, carbon, cost by bucket, totals with their band, rent against buy, and the programme.

    Args:
        scenario: prices, team, programme, goals and cluster are read from it.
        strategy: its engineering weeks are paid where it states them.
        answer: the step, for the load of the GPUs.
        gpu_hours: hours of the GPUs that the job holds.
        goodput: productive share of those hours.
        days_sigma: one standard deviation of the logarithm of the run's length.
        lost_work_frac: share of the hours spent on work that was lost; it draws full power.
        engineering_weeks: what is paid where the strategy states none; None = nothing.
    """
    today = date.today()
    site = site_of(scenario=scenario, today=today)
    run = RunHours(
        gpu_hours=gpu_hours,
        paid_gpu_hours=gpu_hours / site.used_frac,
        days=gpu_hours / 24 / scenario.gpus,
        goodput=goodput,
        working_frac=min(1.0, goodput + lost_work_frac),
    )
    loaded, idle, load_line = draws_of(
        pricing=scenario.pricing, site=site, breakdown_s=dict(answer.breakdown_s), run=run
    )
    energy, energy_lines = energy_of(pricing=scenario.pricing, site=site, run=run, draw=loaded)
    rent, rent_warnings = _rent(scenario=scenario, site=site, today=today)
    owned = ownership_of(site=site, pricing=scenario.pricing, loaded=loaded, idle=idle, today=today)
    stated = strategy.engineering_weeks
    weeks = stated if stated is not None else engineering_weeks or 0.0
    engineering = weeks * scenario.pricing.usd_per_person_week
    if scenario.pricing.tenure == "own":
        cost_lines = owned_lines(run=run, owned=owned, site=site)
        price_sigma = {b: owned.sigma for b in ("compute", "network", "storage")}
        warnings = site.warnings + owned.warnings
    else:
        cost_lines = rent_lines(pricing=scenario.pricing, run=run, rent=rent, stored_bytes=_stored_bytes(scenario))
        price_sigma = {"compute": rent.sigma, "support": rent.sigma}
        warnings = site.warnings + rent_warnings
    labour_lines = people_lines(pricing=scenario.pricing, engineering_weeks=weeks, run=run, owned=owned)
    lines = (*cost_lines, *labour_lines)
    cost = {b: sum(x.value for x in lines if x.id == f"cost_usd.{b}") for b in BUCKETS}
    total = sum(cost.values())
    machine = total - engineering
    sigma = total_sigma(cost=cost, engineering=engineering, days_sigma=days_sigma, price_sigma=price_sigma)
    programme, programme_lines = programme_of(scenario=scenario, machine_usd=machine, engineering_usd=engineering)
    budget = scenario.goals.budget_usd
    rate, rate_day, _ = currency_rate(scenario.pricing)
    tokens = scenario.training.tokens
    document = {
        **energy,
        "cost_usd": cost,
        "people_usd": {x.id.removeprefix("people_usd."): x.value for x in lines if x.id.startswith("people_usd.")},
        "engineering_weeks": weeks,
        "engineering_calendar_weeks": calendar_weeks(
            weeks=weeks, systems=scenario.team.systems, application=scenario.team.application
        ),
        "cost_usd_total": band(total, sigma),
        "cost_total_in_currency": {
            "currency": scenario.pricing.currency.upper(),
            "usd_per_unit": rate,
            "date": rate_day,
            **{k: v / rate for k, v in band(total, sigma).items()},
        },
        "p_over_budget": None if budget is None else above(total, sigma, budget),
        "cost_usd_per_useful_gpu_hour": machine / (gpu_hours * goodput) if gpu_hours and goodput else None,
        "cost_usd_per_million_tokens": total / (tokens / 1e6),
        "programme_usd": programme["total"],
        "programme": programme,
        "price": _price_document(scenario=scenario, rent=rent, owned=owned),
        "rent_or_buy": _rent_or_buy(scenario=scenario, rent=rent, owned=owned, goodput=goodput),
        "ownership": _ownership_document(owned),
        "facility": _facility_document(site=site, draw=loaded),
    }
    summary = (
        Line(
            "cost_usd_total.p50",
            total,
            "USD",
            "sum of cost_usd",
            tuple(f"cost_usd.{b}" for b in BUCKETS),
            "assumed",
            "",
        ),
        Line(
            "cost_usd_per_useful_gpu_hour",
            document["cost_usd_per_useful_gpu_hour"] or 0.0,
            "USD/GPU-h",
            "(total - engineering) / (gpu_hours x goodput)",
            ("cost_usd_total.p50", "people_usd.engineering", "gpu_hours", "goodput"),
            "assumed",
            "",
        ),
        Line(
            "cost_usd_per_million_tokens",
            total / (tokens / 1e6),
            "USD/Mtoken",
            "total / tokens",
            ("cost_usd_total.p50", f"tokens={tokens:.4g}"),
            "assumed",
            "",
        ),
    )
    return Bill(document, (load_line, *energy_lines, *lines, *summary, *programme_lines), warnings)


def _stored_bytes(scenario: Scenario) -> float:
    """Checkpoints kept and the tokenised dataset."""
    pricing = scenario.pricing
    saved = pricing.checkpoints_kept * checkpoint_bytes(params=total_params(scenario.model_spec))
    return saved + pricing.dataset_bytes_per_token * scenario.training.tokens


def _rent(*, scenario: Scenario, site: Site, today: date) -> tuple[Rent, tuple[str, ...]]:
    """The rent that is paid, or that owning is compared with."""
    pricing = scenario.pricing
    if pricing.quote_per_gpu_hour is not None:
        rate, day, source = currency_rate(pricing)
        formula = f"{pricing.quote_per_gpu_hour:g} {pricing.currency.upper()} x {rate:g} ({source}, {day or 'undated'})"
        rent = quoted(
            usd_per_gpu_hour=pricing.quote_per_gpu_hour * rate, day=pricing.quote_date, today=today, formula=formula
        )
    elif pricing.usd_per_gpu_hour is not None:
        rent = quoted(usd_per_gpu_hour=pricing.usd_per_gpu_hour, day=pricing.quote_date, today=today, formula="quote")
    else:
        tenure = "on_demand" if pricing.tenure == "own" else pricing.tenure
        rent = mean_rent(
            [
                (
                    catalogue_rent(
                        gpu=gpu, tenure=tenure, provider=pricing.provider, region=pricing.region, today=today
                    ),
                    share,
                )
                for gpu, share in site.gpu_shares
            ]
        )
    return rent, rent.warnings


def _price_document(*, scenario: Scenario, rent: Rent, owned: Ownership) -> dict[str, Any]:
    if scenario.pricing.tenure == "own":
        return {
            "usd_per_gpu_hour": owned.usd_per_gpu_hour,
            "label": owned.server.label,
            "source": owned.server.source,
            "date": scenario.pricing.own.purchase_date,
            "tenure": "own",
            "sigma": owned.sigma,
        }
    return {
        "usd_per_gpu_hour": rent.usd_per_gpu_hour,
        "label": rent.label,
        "source": rent.source,
        "date": rent.date,
        "tenure": scenario.pricing.tenure,
        "sigma": rent.sigma,
    }


def _rent_or_buy(*, scenario: Scenario, rent: Rent, owned: Ownership, goodput: float) -> dict[str, Any]:
    """Rent against buy at equal goodput, commitments and spot against on-demand."""
    pricing = scenario.pricing
    ratio = 1 - discount_frac(tenure="spot", provider=pricing.provider)
    edge = owned.break_even(rent.usd_per_gpu_hour)
    return {
        "rent_usd_per_gpu_hour": rent.usd_per_gpu_hour,
        "owned_usd_per_gpu_hour": owned.usd_per_gpu_hour,
        "utilization_frac": owned.utilization_frac,
        "break_even_utilization_frac": edge,
        "cheaper": "own" if owned.usd_per_gpu_hour < rent.usd_per_gpu_hour else "rent",
        "commitment_break_even_used_frac": {
            t: commitment_break_even(discount=discount_frac(tenure=t, provider=pricing.provider))
            for t in ("reserved_1y", "reserved_3y")
        },
        "spot": {
            "price_over_on_demand": ratio,
            # With the scenario's own losses as those of spot, and none on demand.
            "break_even_price_over_on_demand": spot_break_even_ratio(useful_spot=goodput),
        }
        if pricing.tenure == "spot"
        else None,
    }


def _ownership_document(owned: Ownership) -> dict[str, Any]:
    return {
        "capex_usd": {a.name: a.price_usd for a in owned.assets},
        "usd_per_year": owned.usd_per_year,
        "fixed_usd_per_year": dict(owned.fixed_usd_per_year),
        "usd_per_gpu_hour": owned.usd_per_gpu_hour,
        "cash_flow_usd": list(owned.flow.usd),
        "npv_usd": owned.flow.npv_usd,
    }


def _facility_document(*, site: Site, draw: Draw) -> dict[str, Any]:
    return {
        "racks": site.hall.racks,
        "nodes_per_rack": site.hall.nodes_per_rack,
        "contracted_it_kw": site.hall.contracted_w / 1e3,
        "facility_kw": site.hall.facility_w / 1e3,
        "mean_it_kw": draw.it_w * site.gpus / 1e3,
        "cooling": site.cooling,
        "pue": site.pue.value,
        "switches": site.fabric.switches,
        "links": site.fabric.links,
        "network_tiers": site.fabric.tiers,
    }


def band(value: float, sigma: float) -> dict[str, float]:
    """P10, P50 and P90 of a log-normal figure."""
    return {"p10": value * math.exp(-Z80 * sigma), "p50": value, "p90": value * math.exp(Z80 * sigma)}


def above(value: float, sigma: float, limit: float) -> float:
    """Probability that a log-normal figure exceeds a limit."""
    if sigma <= 0 or value <= 0:
        return float(value > limit)
    return 1.0 - NormalDist().cdf(math.log(limit / value) / sigma)
