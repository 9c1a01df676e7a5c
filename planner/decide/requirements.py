"""What a chosen cluster must bring along: spares, storage bandwidth, and the figures it must measure on delivery."""

import math
from collections.abc import Mapping
from typing import Any

from planner.catalog.reliability import FAILURE_CAUSES
from planner.cost.collective import collective_s
from planner.cost.kernels import matmul_s
from planner.cost.types import Group, Network
from planner.simulate.run.closed_form import checkpoint_bytes
from planner.simulate.run.plan import HARDWARE, RunPlan

MESSAGE_BYTES = (16 * 2**20, 256 * 2**20, 4 * 2**30)
MATMUL = (8192, 8192, 8192)
# Share of the run that checkpoints may cost at the most: sqrt(2 delta / M) for writes that stop work (Young 1974),
# delta / M of work lost beyond the interval for those that do not.
CHECKPOINT_LOSS_FRAC = 0.02


def spare_nodes(*, plan: RunPlan, probability: float) -> int:
    """Spares such that they do not run out, at a moment, with the given probability.

    Nodes in repair are on average N r MTTR (Little's law) with the *mean* of the heavy-tailed repair time and the share
    of failures that take a node. Their number spreads more than Poisson because the rate of a cluster is itself
    log-normal: a gamma of the same variance makes it negative binomial with shape 1 / (exp(sigma^2) - 1).
    """
    taking = sum(s for c, s in zip(FAILURE_CAUSES, plan.shares, strict=True) if c in HARDWARE)
    # A log-normal rate of median r has the mean r exp(sigma^2 / 2).
    rate = plan.node_failures_per_s * math.exp(plan.node_sigma**2 / 2) * taking
    mean = plan.nodes * rate * plan.repair_mean_s
    if mean <= 0:
        return 0
    shape = 1 / math.expm1(plan.node_sigma**2) if plan.node_sigma > 0 else math.inf
    return count_quantile(mean=mean, shape=shape, probability=probability)


def count_quantile(*, mean: float, shape: float, probability: float) -> int:
    """Smallest count that a negative binomial stays within: variance mean + mean^2 / shape, Poisson for shape inf."""
    poisson = math.isinf(shape)
    ratio = mean if poisson else mean / (shape + mean)
    term = math.exp(-mean) if poisson else math.exp(shape * math.log(shape / (shape + mean)))
    count, total = 0, term
    while total < probability and term > 1e-300:
        term *= ratio * (1.0 if poisson else shape + count) / (count + 1)
        count += 1
        total += term
    return count


def storage_write_bytes_per_s(
    *, plan: RunPlan, params: float, bytes_per_param: float, stops_work: bool
) -> tuple[float, float]:
    """Rate at which checkpoints must be written, and the seconds that a write may take.

    A write that stops work may take M f^2 / 2, so that sqrt(2 delta / M) = f at Young's interval; one that does not may
    take M f, as each failure loses that much beyond the interval, and not longer than the interval.
    """
    mtti = 1 / plan.failures_per_s if plan.failures_per_s else math.inf
    limit = mtti * CHECKPOINT_LOSS_FRAC**2 / 2 if stops_work else mtti * CHECKPOINT_LOSS_FRAC
    acceptable = min(limit, plan.interval_s, 3600.0)
    return checkpoint_bytes(params=params, bytes_per_param=bytes_per_param) / acceptable, acceptable


def acceptance(
    *, network: Network, gpu: str, gpus: int, dtype: str, step_s: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Figures that the delivered cluster must measure before it is paid.

    Bus bandwidth of all-reduce over all GPUs as nccl-tests prints it, the rate of a hot product in the plan's dtype,
    and the step at the forecast's P90. Rates are the forecast less one standard deviation of it.
    """
    out: list[dict[str, Any]] = []
    group = Group(size=gpus, per_domain=min(gpus, network.scaleup_domain_gpus))
    for size in MESSAGE_BYTES if gpus > 1 else ():
        found = collective_s(op="all_reduce", payload_bytes=size, group=group, network=network)
        rate = 2 * (gpus - 1) / gpus * size / found.seconds  # bus bandwidth by the definition of nccl-tests
        out.append(
            {
                "test": f"all-reduce bus bandwidth, {size // 2**20} MiB over {gpus} GPUs",
                "value": rate / math.exp(found.spread_frac) / 1e9,
                "unit": "GB/s",
                "rule": "at_least",
                "forecast": rate / 1e9,
                "label": found.label,
            }
        )
    m, n, k = MATMUL
    product = matmul_s(gpu=gpu, dtype=dtype, m=m, n=n, k=k, state="hot")
    flops = 2.0 * m * n * k / product.seconds
    out.append(
        {
            "test": f"{dtype} product {m} x {n} x {k}, hot (after 60 s of load)",
            "value": flops / math.exp(product.spread_frac) / 1e12,
            "unit": "TFLOP/s",
            "rule": "at_least",
            "forecast": flops / 1e12,
            "label": product.label,
        }
    )
    out.append(
        {
            "test": "P90 of 1,000 steps of the recommended plan",
            "value": step_s["p90"],
            "unit": "s",
            "rule": "at_most",
            "forecast": step_s["p50"],
            "label": "assumed",
        }
    )
    return out
