"""Epoch AI's cost method, to compare with their published estimates; the bill does not use it.

Value of a server at the start of training falls 0.14 orders of magnitude a year from availability (row PP104); a run
is charged k ln 10 of that value a year, the rate at which progress makes replacement optimal; a cluster is its servers
over 1 - 0.19 for interconnect (PP103); energy is TDP x server factor x 0.75 x PUE (arXiv 2405.21015, its public code).
"""

import math
from dataclasses import dataclass
from datetime import date

from planner.catalog.purchase import purchase_prices
from planner.money.power import reported_kwh

HOURS_PER_YEAR = 24 * 365.25


@dataclass(frozen=True, slots=True)
class EpochCost:
    """Dollars of one final run, and of the whole cluster."""

    acquisition_usd: float
    capital_usd: float
    energy_usd: float

    @property
    def amortised_usd(self) -> float:
        """Capital charged to the run, with energy."""
        return self.capital_usd + self.energy_usd


def epoch_cost(
    *,
    server_usd_per_chip: float,
    chips: int,
    chip_hours: float,
    available: date,
    start: date,
    gpu: str,
    tdp_w: float,
    pue: float,
    usd_per_kwh: float,
) -> EpochCost:
    """Cost of a run by that method, in dollars of its own day."""
    ratios = {p.id: float(p.ratio or 0.0) for p in purchase_prices()}
    decline, interconnect = ratios["PP104"], ratios["PP103"]
    years = max(0, (start - available).days) / 365.25
    value = server_usd_per_chip * 10 ** (-decline * years)
    hourly = value * decline * math.log(10) / HOURS_PER_YEAR
    energy = reported_kwh(convention="server_factor", gpu_hours=chip_hours, gpu=gpu, tdp_w=tdp_w, pue=pue)
    return EpochCost(
        acquisition_usd=chips * server_usd_per_chip / (1 - interconnect),
        capital_usd=hourly * chip_hours / (1 - interconnect),
        energy_usd=energy * usd_per_kwh,
    )
