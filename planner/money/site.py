"""The place where a cluster stands: its network parts, hall, electricity and grid, closed from a scenario."""

import math
from dataclasses import dataclass
from datetime import date

from planner import catalog
from planner.catalog.facility import Fact, carbon_intensity, electricity_price, exchange_rate, fact
from planner.catalog.types import GpuSpec, NodeSpec
from planner.money.fabric import FabricBill, fat_tree
from planner.money.power import (
    AIR_RACK_W,
    LIQUID_ABOVE_W,
    LIQUID_RACK_W,
    OPTIC_W,
    STORAGE_IT_FRAC,
    SWITCH_W,
    Hall,
    hall,
    node_max_w,
)
from planner.money.rent import price_warnings
from planner.scenario import Scenario
from planner.scenario.pricing import Pricing

PORT_BYTES_PER_S = 50e9  # one 400 Gb/s port, the unit in which switches and links are priced (rows PP080, PP084)


@dataclass(frozen=True, slots=True)
class Figure:
    """A value with where it comes from."""

    value: float
    label: str
    source: str


@dataclass(frozen=True, slots=True)
class Site:
    """Everything about the place that the bill needs.

    Attributes:
        gpus: GPUs installed, used or not.
        used_frac: GPUs used over GPUs installed; whole nodes are paid.
        gpu_shares: GPUs as they are bought or rented, each with its share; one unless the fleet is mixed.
    """

    node: NodeSpec
    gpu: GpuSpec
    nodes: int
    gpus: int
    used_frac: float
    fabric: FabricBill
    hall: Hall
    cooling: str
    pue: Figure
    usd_per_kwh: Figure
    grid_g_per_kwh: Figure
    carbon_free_frac: Figure
    warnings: tuple[str, ...]
    gpu_shares: tuple[tuple[str, float], ...]


def fabric_of(scenario: Scenario) -> FabricBill:
    """Switches and links between the scenario's nodes, in ports of 400 Gb/s."""
    cluster, own = scenario.cluster, scenario.pricing.own
    node, fabric = catalog.node(cluster.node), cluster.fabric
    rate = (fabric.node_bytes_per_s if fabric else None) or node.scaleout_bytes_per_s
    if cluster.nodes < 2 or rate <= 0:
        return FabricBill(0, 0, 0)
    return fat_tree(
        endpoints=cluster.nodes * math.ceil(rate / PORT_BYTES_PER_S),
        radix=own.switch_ports,
        planes=own.network_planes,
        oversubscription=fabric.oversubscription if fabric else 1.0,
    )


def _label(found: Fact) -> str:
    return "measured" if found.provenance == "measured" else "published"


def currency_rate(pricing: Pricing) -> tuple[float, str | None, str]:
    """Dollars per unit of the scenario's currency, with day and source."""
    if pricing.usd_per_currency is not None:
        return pricing.usd_per_currency, pricing.currency_date, "own rate"
    found = exchange_rate(pricing.currency)
    return found.usd_per_unit, found.date, found.source


def _electricity(pricing: Pricing) -> tuple[Figure, tuple[str, ...]]:
    if pricing.usd_per_kwh is not None:
        return Figure(pricing.usd_per_kwh, "published", "scenario.pricing"), ()
    found = electricity_price(pricing.region)
    rate = exchange_rate(found.unit.partition("/")[0])
    country = carbon_intensity(pricing.region).country
    warnings = () if found.country == country else (f"no electricity price of {country}: {found.region} taken",)
    source = found.cited if rate.currency == "USD" else f"{found.cited} x {rate.usd_per_unit} USD ({rate.date})"
    return Figure(found.known * rate.usd_per_unit, "published", source), warnings


def _cooling(*, pricing: Pricing, node_w: float) -> tuple[str, Figure]:
    cooling = pricing.cooling or ("liquid" if node_w > LIQUID_ABOVE_W else "air")
    row = fact("F038" if cooling == "liquid" else "F036")
    if pricing.pue is not None:
        return cooling, Figure(pricing.pue, "published", "scenario.pricing")
    return cooling, Figure(row.known, _label(row), row.cited)


def _carbon(pricing: Pricing) -> tuple[Figure, Figure]:
    grid = carbon_intensity(pricing.region)
    intensity = (
        Figure(grid.known, _label(grid), f"{grid.region}: {grid.cited}")
        if pricing.grid_g_per_kwh is None
        else Figure(pricing.grid_g_per_kwh, "published", "scenario.pricing")
    )
    if pricing.carbon_basis == "location":
        return intensity, Figure(0.0, "published", "location basis: contracts do not count")
    if pricing.carbon_free_frac is not None:
        return intensity, Figure(pricing.carbon_free_frac, "published", "scenario.pricing")
    return intensity, Figure(grid.carbon_free_frac or 0.0, "published", f"hourly score of {grid.region}: {grid.cited}")


def site_of(*, scenario: Scenario, today: date) -> Site:
    """Close the place's open fields: cooling by power, PUE by cooling, electricity and grid by region."""
    pricing, goals, cluster = scenario.pricing, scenario.goals, scenario.cluster
    node = catalog.node(cluster.node)
    gpu = catalog.gpu(node.gpu)
    node_w = node_max_w(node=node, gpu=gpu)
    cooling, pue = _cooling(pricing=pricing, node_w=node_w)
    fabric = fabric_of(scenario)
    rack_w = goals.rack_kw * 1e3 if goals.rack_kw else (LIQUID_RACK_W if cooling == "liquid" else AIR_RACK_W)
    other_w = fabric.switches * SWITCH_W + 2 * fabric.links * OPTIC_W + STORAGE_IT_FRAC * node_w * cluster.nodes
    space = hall(nodes=cluster.nodes, node_w=node_w, other_w=other_w, rack_w=rack_w, pue=pue.value)
    usd_per_kwh, warnings = _electricity(pricing)
    if cooling == "air" and min(rack_w, node_w * max(1, space.nodes_per_rack)) > LIQUID_ABOVE_W:
        warnings += (f"racks above {LIQUID_ABOVE_W / 1e3:.0f} kW are beyond air cooling",)
    if goals.power_kw is not None and space.facility_w > goals.power_kw * 1e3:
        warnings += (f"the cluster needs {space.facility_w / 1e3:,.0f} kW, the site has {goals.power_kw:,.0f} kW",)
    if pricing.currency.upper() != "USD":
        what = f"exchange rate of {pricing.currency.upper()}"
        warnings += price_warnings(day=currency_rate(pricing)[1], today=today, what=what)
    intensity, free = _carbon(pricing)
    return Site(
        node=node,
        gpu=gpu,
        nodes=cluster.nodes,
        gpus=cluster.nodes * node.gpus_per_node,
        used_frac=(cluster.gpus_per_node_used or node.gpus_per_node) / node.gpus_per_node,
        fabric=fabric,
        hall=space,
        cooling=cooling,
        pue=pue,
        usd_per_kwh=usd_per_kwh,
        grid_g_per_kwh=intensity,
        carbon_free_frac=free,
        warnings=warnings,
        gpu_shares=tuple((catalog.node(name).gpu, share) for name, share in cluster.node_shares()),
    )
