"""All runs of all years with their experiments, and the people behind them."""

from typing import Any

from planner.catalog.line import Line
from planner.money.people import UPKEEP_FRAC, refreshes, yearly_weights
from planner.scenario import Scenario


def programme_of(
    *, scenario: Scenario, machine_usd: float, engineering_usd: float
) -> tuple[dict[str, Any], tuple[Line, ...]]:
    """Cost of the programme: document and lines."""
    plan, team, pricing = scenario.programme, scenario.team, scenario.pricing
    change = 0.0 if pricing.tenure == "own" else pricing.price_change_frac_per_year
    weights = yearly_weights(years=plan.years, change_frac=change, discount_frac=plan.discount_frac)
    plain = yearly_weights(years=plan.years, change_frac=0.0, discount_frac=plan.discount_frac)
    upkeep_frac = UPKEEP_FRAC[team.stage] if team.upkeep_frac_per_year is None else team.upkeep_frac_per_year
    renewals = refreshes(years=plan.years, refresh_years=plan.refresh_years)
    final = machine_usd * plan.runs_per_year * sum(weights)
    parts = {
        "final_runs": final,
        "experiments": final * (plan.experiment_factor - 1),
        "engineering": engineering_usd,
        "upkeep": engineering_usd * upkeep_frac * sum(plain),
        "hardware_refresh": engineering_usd * team.refresh_frac * renewals,
    }
    formulas = {
        "final_runs": "(total - engineering) x runs a year x years, changed and discounted yearly",
        "experiments": "final runs x (experiment_factor - 1)",
        "engineering": "paid once",
        "upkeep": "engineering x upkeep a year x years",
        "hardware_refresh": "engineering x refresh share x new hardware generations",
    }
    inputs = {
        "final_runs": ("cost_usd_total.p50", f"runs_per_year={plan.runs_per_year:g}", f"years={plan.years:g}"),
        "experiments": ("programme.final_runs", f"experiment_factor={plan.experiment_factor:g}"),
        "engineering": ("people_usd.engineering",),
        "upkeep": ("people_usd.engineering", f"upkeep_frac={upkeep_frac:g}"),
        "hardware_refresh": ("people_usd.engineering", f"refresh_frac={team.refresh_frac:g}", f"refreshes={renewals}"),
    }
    lines = tuple(
        Line(f"programme.{k}", v, "USD", formulas[k], inputs[k], "assumed", "scenario.programme, scenario.team")
        for k, v in parts.items()
    )
    total = sum(parts.values())
    end = Line(
        "programme_usd", total, "USD", "sum of programme", tuple(x.id for x in lines), "assumed", "scenario.programme"
    )
    per_year = [machine_usd * plan.runs_per_year * plan.experiment_factor * w for w in weights]
    return {**parts, "total": total, "runs_usd_per_year": per_year}, (*lines, end)
