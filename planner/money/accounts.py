"""The bill's buckets as lines: rent, ownership, people, and the spread of their sum."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from planner.catalog.facility import fact
from planner.catalog.line import Line
from planner.money.ownership import Ownership
from planner.money.people import operations_usd, operator_usd_per_year
from planner.money.rent import Rent
from planner.money.site import Site
from planner.scenario.pricing import Pricing

DAYS_PER_MONTH = 365 / 12
RENT_INCLUDES = "included in the rent"


@dataclass(frozen=True, slots=True)
class RunHours:
    """What the run clock hands over.

    Attributes:
        paid_gpu_hours: hours of all GPUs of the nodes held, used or not.
        working_frac: share of the time under full load, lost work included.
    """

    gpu_hours: float
    paid_gpu_hours: float
    days: float
    goodput: float
    working_frac: float


def usd_line(
    bucket: str, value: float, *, formula: str, inputs: tuple[str, ...] = (), label: str = "assumed", source: str = ""
) -> Line:
    """A bucket of the bill."""
    return Line(f"cost_usd.{bucket}", value, "USD", formula, inputs, label, source)


def rent_lines(*, pricing: Pricing, run: RunHours, rent: Rent, stored_bytes: float) -> tuple[Line, ...]:
    """Rented machines and storage; the rent includes network, power and facility."""
    used = pricing.commitment_used_frac if pricing.tenure.startswith("reserved") else 1.0
    compute = run.paid_gpu_hours * rent.usd_per_gpu_hour / used
    per_gb = fact("F203").known if pricing.storage_usd_per_gb_month is None else pricing.storage_usd_per_gb_month
    size_gb = stored_bytes / 1e9
    premium = pricing.managed_premium_frac if pricing.operations == "managed" else 0.0
    storage_source = fact("F203").cited if pricing.storage_usd_per_gb_month is None else "scenario.pricing"
    nothing = tuple(
        usd_line(b, 0.0, formula=RENT_INCLUDES, inputs=(), label=rent.label, source=rent.source)
        for b in ("network", "power", "facility")
    )
    return (
        usd_line(
            "compute",
            compute,
            formula=f"paid GPU-hours x price / share of the commitment used; price: {rent.formula}",
            inputs=(
                "gpu_hours",
                f"paid_gpu_hours={run.paid_gpu_hours:.6g}",
                f"usd_per_gpu_hour={rent.usd_per_gpu_hour:.4g}",
                f"commitment_used_frac={used:g}",
            ),
            label=rent.label,
            source=rent.source,
        ),
        usd_line(
            "storage",
            size_gb * per_gb * run.days / DAYS_PER_MONTH,
            formula="(checkpoints kept x 14 B x parameters + tokens x bytes) x price x months",
            inputs=(f"gb={size_gb:.4g}", f"usd_per_gb_month={per_gb:g}", "days.p50"),
            label="assumed",
            source=storage_source,
        ),
        usd_line(
            "support",
            compute * premium,
            formula="compute x managed premium",
            inputs=("cost_usd.compute", f"premium={premium:g}"),
            label="assumed",
            source="row L20",
        ),
        *nothing,
    )


def owned_lines(*, run: RunHours, owned: Ownership, site: Site) -> tuple[Line, ...]:
    """A run's part of a bought cluster."""
    formulas = {
        "compute": "CRF (C - S/(1+i)^n) + maintenance of servers and spares",
        "network": "the same of switches and links",
        "storage": "the same of storage and front-end",
        "power": "IT watts x PUE x price, idle hours included",
        "facility": "racks, installation, and colocation per contracted kW or the building",
        "support": "managed premium on everything",
    }
    inputs = {
        "compute": (f"server_usd_per_gpu={owned.server.value:.6g}",),
        "network": (f"switches={site.fabric.switches}", f"links={site.fabric.links}"),
        "power": ("it_watts_per_gpu", f"usd_per_kwh={site.usd_per_kwh.value:g}", f"pue={site.pue.value:g}"),
        "facility": (f"racks={site.hall.racks}", f"contracted_kw={site.hall.contracted_w / 1e3:.4g}"),
    }
    return tuple(
        usd_line(
            bucket,
            owned.usd(bucket=bucket, gpu_hours=run.paid_gpu_hours),
            formula=f"({formula}) x hours of the run over used hours of a year",
            inputs=(
                "gpu_hours",
                f"usd_per_year={owned.fixed_usd_per_year[bucket]:.6g}",
                f"utilization={owned.utilization_frac:g}",
                *inputs.get(bucket, ()),
            ),
            label=owned.server.label if bucket == "compute" else "assumed",
            source=owned.server.source if bucket == "compute" else "scenario.pricing.own",
        )
        for bucket, formula in formulas.items()
    )


def people_lines(*, pricing: Pricing, engineering_weeks: float, run: RunHours, owned: Ownership) -> tuple[Line, ...]:
    """Engineering of the strategy and operation of the machines."""
    engineering = engineering_weeks * pricing.usd_per_person_week
    wage = operator_usd_per_year() if pricing.usd_per_operator_year is None else pricing.usd_per_operator_year
    if pricing.tenure == "own":
        operations = owned.usd(bucket="people", gpu_hours=run.paid_gpu_hours)
    elif pricing.operations == "self_run":
        operations = operations_usd(
            gpu_hours=run.paid_gpu_hours,
            fte_per_1000_gpus=pricing.operations_fte_per_1000_gpus,
            usd_per_year=wage,
        )
    else:
        operations = 0.0
    return (
        Line(
            "people_usd.engineering",
            engineering,
            "USD",
            "engineering_weeks x usd_per_person_week",
            (f"engineering_weeks={engineering_weeks:g}", f"usd_per_person_week={pricing.usd_per_person_week}"),
            "assumed",
            "scenario.pricing",
        ),
        Line(
            "people_usd.operations",
            operations,
            "USD",
            "GPU-years held x operators per GPU x loaded wage" if operations else "operators are not paid apart",
            ("gpu_hours", f"fte_per_1000_gpus={pricing.operations_fte_per_1000_gpus:g}", f"usd_per_year={wage:.6g}"),
            "assumed",
            "rows L09, L13, L19",
        ),
        usd_line(
            "people",
            engineering + operations,
            formula="engineering + operations",
            inputs=("people_usd.engineering", "people_usd.operations"),
            label="assumed",
            source="",
        ),
    )


def total_sigma(
    *, cost: Mapping[str, float], engineering: float, days_sigma: float, price_sigma: Mapping[str, float]
) -> float:
    """Spread of the total: the run's length moves all but engineering, each price its own bucket."""
    total = sum(cost.values())
    if total <= 0:
        return 0.0
    timed = days_sigma * (total - engineering) / total
    priced = sum(cost[b] * s for b, s in price_sigma.items()) / total
    return math.hypot(timed, priced)
