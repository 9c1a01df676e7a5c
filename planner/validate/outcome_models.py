"""Forecasts of how whole runs ended, from what a source says of the run: a band for each quantity.

Rates of failure leave out the row's own source. What a row does not say (efficiency, convention of energy, price) is a
distribution over published cases, so the band is wide where the row says little.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from planner import catalog
from planner.catalog.facility import carbon_intensity
from planner.catalog.nodes import nodes as catalog_nodes
from planner.catalog.prices import rental_rows
from planner.catalog.reliability import Rate, fitted_rate, rate_rows, spot_market
from planner.money.own import robust_sigma
from planner.money.power import mean_draw, reported_kwh
from planner.simulate.assemble import peak_flops
from planner.simulate.run.closed_form import checkpoint_bytes, expected_run, optimal_interval_s
from planner.simulate.run.plan import RunPlan
from planner.validate.runs import mfu_spread
from planner.validate.setup import SkipRowError, number

Row = Mapping[str, str]
Z80 = 1.2815515655446004
DAY_S, HOUR_S = 86_400.0, 3600.0
GPUS_PER_NODE = 8
# Defaults of scenario.run and of an engineered strategy.
DETECTION_S, RESTART_S, MANUAL_S, AUTOMATIC_FRAC, STORAGE_BYTES_PER_S = 600.0, 600.0, 7200.0, 0.9, 50e9
# Published storage behind checkpoints runs from 10 GB/s to 2 TB/s, published recoveries from minutes to hours.
STORAGE_SIGMA, RECOVERY_SIGMA = 1.2, 0.7
# Reported carbon factors for one grid differ by 374 to 429 g/kWh.
GRID_SIGMA = 0.08


@dataclass(frozen=True, slots=True)
class Band:
    """P10, P50 and P90 of a quantity, in its own unit, and what had to be assumed."""

    p10: float
    p50: float
    p90: float
    assumed: tuple[str, ...] = ()

    @classmethod
    def lognormal(cls, value: float, sigma: float, assumed: tuple[str, ...] = ()) -> "Band":
        """Around a median."""
        factor = math.exp(Z80 * sigma)
        return cls(value / factor, value, value * factor, assumed)

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.log(self.p90 / self.p10) / (2 * Z80)


def need(row: Row, *columns: str) -> tuple[float, ...]:
    """Values of `cfg_` columns.

    Raises:
        SkipRowError: one is missing.
    """
    out = []
    for column in columns:
        value = number(row, f"cfg_{column}")
        if not value:
            raise SkipRowError("setting_missing", f"cfg_{column}")
        out.append(value)
    return tuple(out)


def nodes_of(row: Row) -> float:
    """Nodes of the job; 8 GPUs each unless stated."""
    stated = number(row, "cfg_nodes")
    if stated:
        return stated
    return max(1.0, need(row, "gpus")[0] / GPUS_PER_NODE)


def _rates(row: Row) -> tuple[Rate, Rate]:
    """Rates a node and a job, fitted without any row of the same source (first word of its name)."""
    word = (row.get("source") or "").split()[0].split("-")[0].lower()
    own = tuple(r.source for r in rate_rows() if word and r.source.lower().startswith(word))
    return fitted_rate("per_node", own), fitted_rate("per_job", own)


def failures_per_day(row: Row) -> Band:
    """Unexpected failures a day of a job of the row's size, log-normal between clusters."""
    node, job = _rates(row)
    parts = (nodes_of(row) * node.per_day, job.per_day)
    total = sum(parts)
    variance = sum((p / total * r.sigma) ** 2 for p, r in zip(parts, (node, job), strict=True))
    return Band.lognormal(total, math.sqrt(variance))


def interruptions(row: Row) -> Band:
    """Count of unexpected failures in a window: spread of clusters and of a Poisson count."""
    if "planned" in (row.get("what") or "") and "unplanned" not in (row.get("what") or ""):
        raise SkipRowError("setting_missing", "planned stops are policy, not failures")
    rate = failures_per_day(row)
    mean = rate.p50 * need(row, "days")[0]
    return Band.lognormal(mean, math.hypot(rate.sigma, 1 / math.sqrt(mean)))


def mttf_h(row: Row) -> Band:
    """Mean time to failure of the job."""
    rate = failures_per_day(row)
    return Band(24 / rate.p90, 24 / rate.p50, 24 / rate.p10)


def goodput(row: Row) -> Band:
    """Productive share of elapsed time, checkpoints and recovery of an engineered run unless stated."""
    rate = failures_per_day(row)
    params = number(row, "cfg_params") or 1e11
    interval_min, restart_min = number(row, "cfg_ckpt_interval_min"), number(row, "cfg_restart_min")
    recovery = restart_min * 60 if restart_min else DETECTION_S + RESTART_S + (1 - AUTOMATIC_FRAC) * MANUAL_S
    durable_s = checkpoint_bytes(params=params) / STORAGE_BYTES_PER_S

    def at(z: float) -> float:
        per_s = rate.p50 * math.exp(z * rate.sigma) / DAY_S
        factor = 1.0 if restart_min else math.exp(z * RECOVERY_SIGMA)
        stall = min(5.0, durable_s)
        best = max(optimal_interval_s(rule="daly", stall_s=stall, mtti_s=1 / per_s), durable_s, 60.0)
        plan = RunPlan(
            work_s=30 * DAY_S,
            nodes=1,
            node_failures_per_s=per_s,
            restart_s=recovery * factor,
            interval_s=interval_min * 60 if interval_min else best,
            stall_s=stall,
            durable_s=durable_s,
        )
        return expected_run(plan=plan).goodput

    # Rate and recovery are independent: one joint deviation at P90 of their sum of squares.
    joint = 1 / math.sqrt(2) if not restart_min else 1.0
    assumed = tuple(n for n, v in (("checkpoint", interval_min), ("recovery", restart_min)) if not v)
    return Band(at(Z80 * joint), at(0.0), at(-Z80 * joint), assumed)


def gpu_hours(row: Row) -> Band:
    """GPU-hours of a run: 6 N D over the rate that packaged runs of that part reach, over goodput.

    A missing GPU count means that scale is unknown; hours then carry the goodput of a mid-sized job.
    """
    stated, days = number(row, "cfg_gpu_hours"), number(row, "cfg_days")
    if stated:
        return Band.lognormal(stated, 0.0)
    if days and row.get("quantity") != "gpu_hours":
        return Band.lognormal(need(row, "gpus")[0] * days * 24, 0.0)
    params, tokens = need(row, "params", "tokens")
    active = number(row, "cfg_active_params") or params
    gpu = _gpu(row)
    mfu, sigma = mfu_spread(gpu)
    given = number(row, "cfg_mfu")
    if given:
        mfu, sigma = given, 0.05
    productive = goodput(row) if number(row, "cfg_gpus") else Band(0.85, 0.93, 0.98)
    hours = 6 * active * tokens / (peak_flops(gpu=gpu, precision="bf16") * mfu) / HOUR_S
    assumed = () if given else ("mfu",)
    return Band.lognormal(hours / productive.p50, math.hypot(sigma, productive.sigma), assumed)


def days(row: Row) -> Band:
    """Calendar days."""
    hours = gpu_hours(row)
    gpus = need(row, "gpus")[0]
    return Band(hours.p10 / gpus / 24, hours.p50 / gpus / 24, hours.p90 / gpus / 24, hours.assumed)


def _gpu(row: Row) -> str:
    name = row.get("cfg_gpu") or ""
    if not name:
        raise SkipRowError("gpu", "no part named")
    try:
        return catalog.gpu(name).name
    except catalog.CatalogError as error:
        raise SkipRowError("gpu", str(error)) from error


def energy_kwh(row: Row) -> Band:
    """Energy: modelled IT draw x PUE and the conventions that papers print, their median: a row does not say which."""
    hours = gpu_hours(row)
    name = _gpu(row)
    gpu = catalog.gpu(name)
    pue = number(row, "cfg_pue") or 1.1
    node = next((n for n in catalog_nodes().values() if n.gpu == name), None)
    printed = [reported_kwh(convention=c, gpu_hours=hours.p50, gpu=name, tdp_w=gpu.tdp_w, pue=pue) for c in _PRINTED]
    if node is not None:
        draw = mean_draw(node=node, gpu=gpu, load_frac=0.75, switches_per_gpu=0.0, links_per_gpu=0.0)
        printed.append(hours.p50 * draw.it_w / 1e3 * pue)
    spread = math.exp(Z80 * hours.sigma)
    assumed = ("convention", *(() if number(row, "cfg_pue") else ("pue",)))
    return Band(min(printed) * 0.98 / spread, statistics.median(printed), max(printed) * 1.02 * spread, assumed)


_PRINTED = ("gpu_tdp", "gpu_tdp_pue", "server_factor")


def carbon_t(row: Row) -> Band:
    """Tonnes of CO2 equivalent, location based."""
    stated = number(row, "cfg_energy_kwh")
    energy = Band.lognormal(stated, 0.01) if stated else energy_kwh(row)
    grid = number(row, "cfg_ci_g_per_kwh")
    assumed = energy.assumed if grid else (*energy.assumed, "grid")
    factor = grid or carbon_intensity(None).known
    spread = 1.0 if grid else math.exp(Z80 * GRID_SIGMA)
    return Band(
        energy.p10 * factor / 1e6 / spread, energy.p50 * factor / 1e6, energy.p90 * factor / 1e6 * spread, assumed
    )


def cloud_usd(row: Row) -> Band:
    """Rent of the run at the stated price, else at the catalogue's prices of that part."""
    hours = gpu_hours(row)
    price = number(row, "cfg_price")
    if price:
        return Band.lognormal(hours.p50 * price, math.hypot(hours.sigma, 0.05))
    found = rental_rows(gpu=_gpu(row), tenure="on_demand")
    if not found:
        raise SkipRowError("setting_missing", "no price of that part")
    offers = [p.usd_per_gpu_hour for p in found]
    sigma = robust_sigma(offers) or 0.5
    return Band.lognormal(hours.p50 * statistics.median_low(offers), math.hypot(hours.sigma, sigma), ("price",))


def checkpoint_s(row: Row) -> Band:
    """Time of a save: bytes over storage, or the stall alone where the row speaks of blocked training."""
    write = checkpoint_bytes(params=need(row, "params")[0]) / STORAGE_BYTES_PER_S
    what = row.get("what") or ""
    if "stall" in what or "blocked" in what:
        return Band.lognormal(min(5.0, write), 1.5, ("snapshot",))
    return Band.lognormal(write * (2.5 if "load" in what else 1.0), STORAGE_SIGMA, ("storage",))


def restart_s(row: Row) -> Band:
    """From a failure to the next productive step."""
    del row
    return Band.lognormal(DETECTION_S + RESTART_S, RECOVERY_SIGMA * 2, ("recovery",))


def power_kw(row: Row) -> Band:
    """Facility power of the stated GPUs: between modelled load and rated maximum."""
    gpu = catalog.gpu(_gpu(row))
    node = next((n for n in catalog_nodes().values() if n.gpu == gpu.name), None)
    rated = (node.max_power_w or 0) / node.gpus_per_node if node and node.max_power_w else 1.8 * gpu.tdp_w
    pue = number(row, "cfg_pue") or 1.2
    gpus = need(row, "gpus")[0]
    return Band(gpus * gpu.tdp_w * 0.8 / 1e3, gpus * rated * 0.85 * pue / 1e3, gpus * rated * 1.4 / 1e3)


def spot_availability(row: Row) -> Band:
    """Share of time in which a gang is available: published markets differ by more than sizes do."""
    market = spot_market()
    if (row.get("source") or "").startswith(market.source.split("@")[0][:30]):
        raise SkipRowError("setting_missing", "the only market known is this row's own")
    middle = market.availability_frac
    return Band(0.4 * middle, middle, 1 - 0.4 * (1 - middle), ("market",))
