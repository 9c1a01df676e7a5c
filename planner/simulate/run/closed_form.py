"""Expected duration of a run in closed form (Daly 2006 and first-order terms), for forecasts and sliders.

The same `RunPlan` is simulated in `fleet.py`; a test holds the two together where failures are not so dense that the
first-order terms break down.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, lambertw, ndtr
from scipy.stats import poisson

from planner.catalog.reliability import FAILURE_CAUSES
from planner.simulate.run.plan import HARDWARE, LOSSES, RunPlan

RACK = ("network", "host")
# A run that waits this many times its own length is not finishing; the replications' horizon cuts it too.
MOST_WAITING = 20.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


@dataclass(frozen=True, slots=True)
class ExpectedRun:
    """Expected elapsed time; `losses` (of LOSSES) and goodput are shares of it and add up to one."""

    elapsed_s: float
    goodput: float
    interval_s: float
    interruptions: float
    losses: tuple[tuple[str, float], ...]


def checkpoint_bytes(*, params: float, bytes_per_param: float = 14.0) -> float:
    """Bytes of one checkpoint: bf16 weights, fp32 master, two Adam moments."""
    return params * bytes_per_param


def optimal_interval_s(*, rule: str, stall_s: float, mtti_s: float) -> float:
    """Productive time between checkpoints.

    Args:
        rule: young (1974), daly (2006, equation 37) or exact (tau = M [1 + W0(-exp(-1 - delta/M))]).
        stall_s: delta, work stops.
        mtti_s: M, mean time to interruption.
    """
    if rule == "young":
        return math.sqrt(2 * stall_s * mtti_s)
    if rule == "exact":
        return float(mtti_s * (1 + lambertw(-math.exp(-1 - stall_s / mtti_s)).real))
    if stall_s >= 2 * mtti_s:
        return mtti_s
    x = stall_s / (2 * mtti_s)
    return math.sqrt(2 * stall_s * mtti_s) * (1 + math.sqrt(x) / 3 + x / 9) - stall_s


def mean_failures_per_s(*, plan: RunPlan, over_s: float) -> float:
    """Rate of unexpected failures of the median cluster over the first `over_s` seconds, infant mortality included."""
    infant = 0.0
    if plan.infant_factor:
        share = plan.infant_s / over_s if over_s > 0 else 1.0
        infant = plan.infant_factor * share * -math.expm1(-over_s / plan.infant_s)
    return (plan.nodes * plan.node_failures_per_s * (1 + infant) + plan.job_failures_per_s) * plan.median_rate_factor


def expected_run(*, plan: RunPlan) -> ExpectedRun:
    """Elapsed time of `plan.work_s` productive seconds.

    Time running is the work over what evaluation, data, slow nodes, a shrunk gang and warm-up leave of it. Failures
    follow Daly: M exp(R/M) (exp((tau + delta)/M) - 1) Ts/tau, the lost part scaled by what peers and predictions save.
    """
    running, spent = _running(plan)
    stalls = plan.stall_s * running / plan.interval_s if math.isfinite(plan.interval_s) else 0.0
    rate = mean_failures_per_s(plan=plan, over_s=running)
    lost = _lost_s(plan=plan, rate_per_s=rate, running_s=running, stalls_s=stalls)
    hold = running + stalls + lost
    growth = math.expm1(min(600.0, plan.recovery_s * rate)) if rate else 0.0
    recovery = hold * growth
    parts = _recovery_parts(plan)
    for name, share in parts.items():
        spent[name] = spent.get(name, 0.0) + recovery * share
    spent["checkpoint"] = spent.get("checkpoint", 0.0) + stalls
    spent["lost_work"] = lost
    for name, value in _incidents(plan=plan, hold_s=hold, rate_per_s=rate).items():
        spent[name] = spent.get(name, 0.0) + value
    spent["queue"], spent["startup"] = plan.queue_s, plan.startup_s
    waited = spares_wait_s(plan=plan, failures_per_s=rate, without_s=plan.work_s + sum(spent.values()) - plan.queue_s)
    spent["replacement"] = spent.get("replacement", 0.0) + waited
    elapsed = plan.work_s + sum(spent.values())
    losses = tuple((name, spent.get(name, 0.0) / elapsed) for name in LOSSES)
    return ExpectedRun(elapsed, plan.work_s / elapsed, plan.interval_s, rate * (hold + recovery + waited), losses)


def spares_wait_s(*, plan: RunPlan, failures_per_s: float, without_s: float) -> float:
    """Time that a gang of fixed size waits for nodes because its spares are in repair.

    Nodes fail as a Poisson stream, waiting or not, and each is repaired by itself, so those in repair at time t are
    Poisson with mean a(t) = rate x integral of P(repair > u) over u < t, whatever the law of repair (M/G/inf, Takacs
    1962).
    The gang waits while more than `spares` of them are out. Where a node comes from elsewhere after `replacement_s`,
    a failure that finds all spares out (Erlang B, insensitive to the law of repair) waits for that or the first repair;
    the gang waits while any such wait goes on (M/G/inf again). Repairs that outlast the run make waiting runs wait on,
    which a mean over runs understates: docs/run.md gives the regime.

    Args:
        plan: its spares, repair and replacement; a pool that never runs dry and an elastic gang do not wait.
        failures_per_s: of the whole job, infant mortality included.
        without_s: elapsed time of the run if it never waited.
    """
    if plan.spares is None or plan.elastic or failures_per_s <= 0 or without_s <= 0:
        return 0.0
    hardware = sum(s for c, s in zip(FAILURE_CAUSES, plan.shares, strict=True) if c in HARDWARE) / sum(plan.shares)
    failing = failures_per_s * hardware * plan.nodes * plan.node_failures_per_s / plan.failures_per_s
    in_rack = sum(s for c, s in zip(FAILURE_CAUSES, plan.shares, strict=True) if c in RACK) / sum(plan.shares)
    taken = failing * (1 + plan.rack_frac * (plan.rack_nodes - 1) * in_rack / hardware if hardware else 1.0)

    spares = plan.spares
    each_s = _elsewhere_s(plan) if plan.replacement_s > 0 else 0.0

    def waiting(total_s: float) -> float:
        """Waiting time of a run that takes `total_s`."""
        out = taken * _open_repairs_s(plan=plan, at_s=total_s * (_NODES + 1) / 2)
        if plan.replacement_s > 0:
            blocked = poisson.pmf(spares, out) / poisson.cdf(spares, out)
            return total_s * float(_WEIGHTS @ -np.expm1(-failing * each_s * blocked)) / 2
        return total_s * float(_WEIGHTS @ gammainc(spares + 1, out)) / 2

    total = without_s
    for _ in range(60):
        total, before = min(without_s + waiting(total), MOST_WAITING * without_s), total
        if abs(total - before) < 1e-6 * total:
            break
    return total - without_s


def _elsewhere_s(plan: RunPlan) -> float:
    """Mean wait of a failure that finds all spares out: delivery, its own repair or the first of the spares'.

    Integral of the product of their chances to take longer; a spare that is out has the residual of a repair left.
    """
    median = plan.replacement_s * math.exp(-(plan.replacement_sigma**2) / 2)
    at = median * np.exp(plan.replacement_sigma * np.linspace(-6, 6, 241))
    left = 1 - _open_repairs_s(plan=plan, at_s=at) / plan.repair_mean_s
    sigma = max(plan.repair_sigma, 1e-6)
    own = ndtr(-np.log(at / plan.repair_median_s) / sigma)
    longer = ndtr(-np.log(at / median) / max(plan.replacement_sigma, 1e-6)) * own * left ** (plan.spares or 0)
    return float(at[0] + ((longer[1:] + longer[:-1]) / 2 * np.diff(at)).sum())


def _open_repairs_s(*, plan: RunPlan, at_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Integral of P(repair > u) for u up to each time: the log-normal's limited expected value."""
    sigma = plan.repair_sigma
    if sigma == 0:
        return np.minimum(at_s, plan.repair_mean_s)
    z = np.log(np.maximum(at_s, 1e-9) / plan.repair_median_s) / sigma
    return np.asarray(plan.repair_mean_s * ndtr(z - sigma) + at_s * ndtr(-z))


def _running(plan: RunPlan) -> tuple[float, dict[str, float]]:
    """Time in which the job runs, checkpoint stalls aside, and where its unproductive part goes."""
    peer, evaluation, data = plan.overhead_parts
    keep = 1 - peer - evaluation - data
    slow_time = -math.expm1(-plan.slow_per_node_s * plan.nodes * plan.slow_detection_s)
    slow = plan.slow_frac * slow_time
    shrunk = 0.0
    if plan.elastic:
        missing = plan.nodes * plan.node_failures_per_s * plan.replacement_s * plan.unit_nodes
        shrunk = min(0.9, missing / plan.nodes)
    warm = plan.warmup_work_frac * (1 / plan.warmup_nodes_frac - 1)
    running = plan.work_s * (1 + warm) / (keep * (1 - slow) * (1 - shrunk))
    useful = running * keep
    fail_slow = useful * slow * (1 - shrunk)
    spent = {
        "checkpoint": peer * running,
        "evaluation": evaluation * running,
        "data": data * running,
        "fail_slow": fail_slow,
        "shrunk": useful - fail_slow - plan.work_s,
    }
    return running, spent


def _lost_s(*, plan: RunPlan, rate_per_s: float, running_s: float, stalls_s: float) -> float:
    """Work lost to failures and to preemptions without enough notice."""
    total = rate_per_s + plan.preemptions_per_s
    if total <= 0:
        return 0.0
    mtti = 1 / total
    cycle = plan.cycle_s if math.isfinite(plan.interval_s) else running_s
    cycles = running_s / plan.interval_s if math.isfinite(plan.interval_s) else 1.0
    again = mtti * math.expm1(min(600.0, cycle / mtti)) * cycles - running_s - stalls_s
    again += plan.late_s * (again + running_s + stalls_s) / mtti
    hardware = sum(s for c, s in zip(FAILURE_CAUSES, plan.shares, strict=True) if c in HARDWARE)
    nodes_share = plan.nodes * plan.node_failures_per_s / max(plan.failures_per_s, 1e-300)
    kept = plan.recall * hardware * nodes_share
    if plan.peer_interval_s:
        kept += (1 - kept) * plan.peer_frac * max(0.0, 1 - plan.peer_interval_s / min(cycle, 1e12))
    noticed = plan.notice_s >= max(plan.durable_s, plan.stall_s)
    lost = (rate_per_s * (1 - kept) + (0.0 if noticed else plan.preemptions_per_s)) / total
    return max(0.0, again) * lost


def _recovery_parts(plan: RunPlan) -> dict[str, float]:
    """Shares of a failure's recovery."""
    wait = plan.replacement_wait_s
    total = plan.recovery_s
    if total <= 0:
        return {"restart": 1.0}
    return {
        "detection": plan.detection_s / total,
        "replacement": wait / total,
        "restart": (total - plan.detection_s - wait) / total,
    }


def _incidents(*, plan: RunPlan, hold_s: float, rate_per_s: float) -> dict[str, float]:
    """Stops that are no failures: maintenance, false alarms, slow nodes found, spikes, preemptions, corruption."""
    planned = plan.maintenance_s / plan.maintenance_interval_s if math.isfinite(plan.maintenance_interval_s) else 0.0
    windows = hold_s / plan.maintenance_interval_s if math.isfinite(plan.maintenance_interval_s) else 0.0
    leaves = windows + hold_s * (plan.false_alarms_per_s + plan.slow_per_node_s * plan.nodes)
    spikes = hold_s * plan.spikes_per_s
    gone = hold_s * plan.preemptions_per_s
    return {
        "planned": hold_s * planned,
        "checkpoint": leaves * plan.stall_s,
        "restart": (leaves + spikes + gone) * plan.ready_s,
        "preempted": gone * plan.preemption_wait_s,
        "rollback": spikes * plan.spike_rollback_s + hold_s * rate_per_s * plan.silent_frac * plan.silent_s,
    }
