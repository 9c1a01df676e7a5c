"""What people cost: engineering of a strategy, its upkeep and refresh, operation of the machines."""

import math

from planner.catalog.labour import labour
from planner.catalog.optimisations import Optimisation
from planner.scenario.team import Team

UPKEEP_FRAC = {"early": 0.4, "growing": 0.3, "mature": 0.2}  # assumed: a young code base moves under its tuning
APPLICATION_SPEED = 0.5  # assumed: an application engineer at systems work against a systems engineer
# Engineering judgement, not measurement: a team without the role learns on the job; a young code base is quick to
# change; a mature one pays for changes that touch the whole run.
NO_ROLE_EFFORT = 2.0
STAGE_EFFORT = {"early": 0.7, "growing": 1.0, "mature": 1.0}
MATURE_GLOBAL_EFFORT = 1.5
ROLE_BY_CLASS = {
    "kernel": "systems",
    "glue": "systems",
    "memory": "systems",
    "parallelism": "systems",
    "precision": "systems",
    "algorithm": "algorithm",
}


def role_of(entry: Optimisation) -> str:
    """Who does it: configuration needs no specialist, kernels and overlap need systems people, quality researchers."""
    if entry.cut == "B" or entry.cls == "algorithm":
        return "algorithm"
    if entry.reversibility in {"flag", "config"} and entry.effort_weeks[1] <= 1.0:
        return "application"
    return ROLE_BY_CLASS[entry.cls]


def effort(*, entry: Optimisation, team: Team) -> tuple[float, float, float]:
    """Person-weeks for this team: low, geometric middle, high."""
    factor = STAGE_EFFORT[team.stage]
    if team.stage == "mature" and entry.risk_scope == "global":
        factor *= MATURE_GLOBAL_EFFORT
    if not getattr(team, role_of(entry)):
        factor *= NO_ROLE_EFFORT
    low, high = entry.effort_weeks
    return factor * low, factor * entry.effort_mid_weeks, factor * high


def operator_usd_per_year() -> float:
    """Loaded year of a cluster operator: base wage x benefits (rows L09, L13)."""
    return labour("L09").value * labour("L13").value


def operations_usd(*, gpu_hours: float, fte_per_1000_gpus: float, usd_per_year: float) -> float:
    """Operators for the time that the GPUs are held."""
    return gpu_hours / 8760 / 1000 * fte_per_1000_gpus * usd_per_year


def calendar_weeks(*, weeks: float, systems: int, application: int) -> float | None:
    """Weeks on the calendar until the engineering is done; None where nobody can do it."""
    hands = systems + APPLICATION_SPEED * application
    if weeks == 0:
        return 0.0
    return weeks / hands if hands else None


def refreshes(*, years: float, refresh_years: float) -> int:
    """Hardware generations that begin within the programme, the first one apart."""
    return max(0, math.ceil(years / refresh_years) - 1)


def yearly_weights(*, years: float, change_frac: float, discount_frac: float) -> tuple[float, ...]:
    """Weight of each year's cost: its share of a year x price change x discount, both from the second year on."""
    out = []
    for year in range(math.ceil(years)):
        share = min(1.0, years - year)
        out.append(share * (1 + change_frac) ** year / (1 + discount_frac) ** year)
    return tuple(out)
