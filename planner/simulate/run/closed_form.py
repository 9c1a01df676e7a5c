"""Expected duration of a run with failures and checkpoints, in closed form (Daly 2006)."""

import math
from dataclasses import dataclass

# bf16 weights, fp32 master and two Adam moments (BLOOM 13.1, OPT 9.1 bytes a parameter measured).
CHECKPOINT_BYTES_PER_PARAM = 14.0


@dataclass(frozen=True, slots=True)
class RunRates:
    """What interrupts a run and what it costs.

    Attributes:
        failures_per_s: rate of interruptions of the whole job.
        stall_s: work stops this long for a checkpoint.
        durable_s: until the checkpoint can be used.
        recovery_s: from a failure to the next productive step.
        interval_s: productive seconds between checkpoints; None = Daly's optimum.
    """

    failures_per_s: float
    stall_s: float
    durable_s: float
    recovery_s: float
    interval_s: float | None = None


@dataclass(frozen=True, slots=True)
class ExpectedRun:
    """Expected elapsed time; losses and goodput add up to one."""

    elapsed_s: float
    goodput: float
    interval_s: float
    interruptions: float
    losses: tuple[tuple[str, float], ...]


def checkpoint_bytes(*, params: float) -> float:
    """Bytes of one checkpoint."""
    return params * CHECKPOINT_BYTES_PER_PARAM


def daly_interval_s(*, stall_s: float, mtti_s: float) -> float:
    """Daly's higher-order optimum of productive time between checkpoints (Daly 2006, equation 37)."""
    if stall_s >= 2 * mtti_s:
        return mtti_s
    x = stall_s / (2 * mtti_s)
    return math.sqrt(2 * stall_s * mtti_s) * (1 + math.sqrt(x) / 3 + x / 9) - stall_s


def expected_run(*, ideal_s: float, rates: RunRates) -> ExpectedRun:
    """Elapsed time of `ideal_s` productive seconds.

    W = M exp(R/M) (exp((tau + delta)/M) - 1) Ts/tau; lost work of an asynchronous save grows by the time until it is
    durable.
    """
    if rates.failures_per_s <= 0:
        tau = rates.interval_s or ideal_s
        stall = rates.stall_s * ideal_s / tau if rates.interval_s else 0.0
        total = ideal_s + stall
        return ExpectedRun(
            total, ideal_s / total, tau, 0.0, (("checkpoint", stall / total), ("lost_work", 0.0), ("recovery", 0.0))
        )
    mtti = 1 / rates.failures_per_s
    tau = rates.interval_s or max(daly_interval_s(stall_s=rates.stall_s, mtti_s=mtti), rates.durable_s, 60.0)
    exponent = min(700.0, (tau + rates.stall_s) / mtti)
    elapsed = mtti * math.exp(min(700.0, rates.recovery_s / mtti)) * math.expm1(exponent) * ideal_s / tau
    # A failure before the last save is durable falls back one interval more.
    late = max(0.0, rates.durable_s - rates.stall_s)
    elapsed += late * elapsed * rates.failures_per_s
    interruptions = elapsed * rates.failures_per_s
    stall = rates.stall_s * ideal_s / tau
    recovery = min(interruptions * rates.recovery_s, elapsed - ideal_s - stall)
    lost = max(0.0, elapsed - ideal_s - stall - recovery)
    losses = (("checkpoint", stall / elapsed), ("lost_work", lost / elapsed), ("recovery", recovery / elapsed))
    return ExpectedRun(elapsed, ideal_s / elapsed, tau, interruptions, losses)
