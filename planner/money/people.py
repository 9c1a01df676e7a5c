"""What people cost: engineering of a strategy, its upkeep and refresh, operation of the machines."""

import math

from planner.catalog.labour import labour

UPKEEP_FRAC = {"early": 0.4, "growing": 0.3, "mature": 0.2}  # assumed: a young code base moves under its tuning
APPLICATION_SPEED = 0.5  # assumed: an application engineer at systems work against a systems engineer


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
