"""What to check before, while and after a step of the road goes in: generated from its mechanism, not from its name."""

from dataclasses import dataclass

from planner import catalog
from planner.catalog.optimisations import Optimisation, optimisation
from planner.simulate.stack_step import memory_bytes
from planner.workload.transforms import Stack

HEADROOM_FRAC = 0.20
ROLLBACK_S = 600.0
LENGTH_FACTORS = (0.5, 1.0, 1.5, 2.0)
# Relative and absolute tolerance of a piecewise comparison: defaults of torch.testing.assert_close for its dtypes; for
# 8-bit and 4-bit formats half a unit in the last place of the coarser format used (E5M2: 2 mantissa bits; E2M1: 1).
TOLERANCE = {
    "fp32": (1.3e-6, 1e-5),
    "tf32": (1e-3, 1e-5),
    "fp16": (1e-3, 1e-5),
    "bf16": (1.6e-2, 1e-5),
    "fp8": (0.125, 1e-3),
    "fp8_rowwise": (0.125, 1e-3),
    "fp8_block": (0.125, 1e-3),
    "mxfp8": (0.125, 1e-3),
    "nvfp4": (0.25, 1e-2),
}
SWITCH = {
    "flag": "a start-up flag, both paths kept in the code",
    "config": "the old configuration kept beside the new one; checkpoints load in both layouts",
    "module": "the old module kept and chosen by name",
    "restart": "the last checkpoint from before the change; the run restarts from it",
    "rewrite": "the old stack kept running on a proxy until three releases have passed",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a checklist: what to do, and what must hold to go on."""

    topic: str
    action: str
    passes_when: str


def headroom_curve(stack: Stack) -> tuple[tuple[int, float], ...]:
    """(sequence length, free share of the GPU's memory) along a curve of lengths around the planned one."""
    capacity = catalog.gpu(stack.gpu).mem_bytes
    out = []
    for factor in LENGTH_FACTORS:
        length = max(1, round(stack.layout.sequence * factor))
        longer = stack.with_layout(sequence=length)
        out.append((length, 1 - memory_bytes(longer) / capacity))
    return tuple(out)


def _numerics(*, entry: Optimisation, stack: Stack) -> list[Check]:
    dtype = stack.layout.precision
    relative, absolute = TOLERANCE[dtype]
    out = [
        Check(
            "numerics",
            "compare old and new piece by piece (each kernel, each layer, forward and backward) on the same inputs and "
            "weights, then the loss over 1,000 steps from one checkpoint",
            f"largest difference within {relative:g} relative and {absolute:g} absolute ({dtype}), loss inside the "
            "spread of three seeds",
        ),
        Check(
            "nan switch",
            "count non-finite losses and gradients on every rank; stop, save the batch and fall back on the first",
            "none in 10,000 steps; the switch was tried with an injected NaN",
        ),
    ]
    if entry.quality_may_change:
        out.append(
            Check(
                "quality",
                "train a proxy to the end both ways and compare loss at equal tokens and at equal time",
                "fewer steps times longer steps is below one, (1 - g)(1 + c) < 1, outside the seed spread",
            )
        )
    return out


def _memory(stack: Stack) -> Check:
    curve = ", ".join(f"{length}: {100 * free:.0f} %" for length, free in headroom_curve(stack))
    return Check(
        "memory",
        f"measure the peak of the fullest rank at each length and after 1,000 steps (forecast of free memory: {curve})",
        f"at least {100 * HEADROOM_FRAC:.0f} % free at the planned length, no growth between steps 100 and 1,000",
    )


def _races(entry: Optimisation) -> list[Check]:
    axes = {axis for axis, _ in entry.mechanism}
    out = []
    if axes & {"streams", "wire", "schedule"}:
        out.append(
            Check(
                "races",
                "run 1,000 steps with blocking launches and with normal ones from one seed; vary rank start-up delays",
                "the same losses bit for bit where the kernels are deterministic, else within the numerical tolerance",
            )
        )
    if axes & {"memory", "launches"}:
        out.append(
            Check(
                "leaks",
                "log allocated and reserved bytes, allocator retries and graph pools each 100 steps",
                "flat lines over an hour; no retries",
            )
        )
    return out


def checklist(*, key: str, stack: Stack) -> tuple[Check, ...]:
    """The checks of one optimisation on the stack that it leads to.

    Raises:
        CatalogError: an unknown key.
    """
    entry = optimisation(key)
    out = _numerics(entry=entry, stack=stack)
    out.append(_memory(stack))
    out += _races(entry)
    out += [
        Check(
            "rollback",
            f"switch back by {SWITCH[entry.reversibility]}; rehearse it on the real cluster",
            f"the old path trains again within {ROLLBACK_S / 60:.0f} minutes",
        ),
        Check(
            "versions",
            "lock framework, driver, compiler and communication library; record them with the checkpoint",
            "a fresh node built from the lock gives the same step time within 1 %",
        ),
        Check(
            "libraries",
            f"try checkpoint, evaluation, profiler and data loader with it; it ties you to: {entry.lock_in}",
            "all of them run; conflicts listed in the catalogue are off: "
            + (", ".join(sorted(entry.conflicts)) or "none"),
        ),
        Check(
            "monitoring",
            "per-GPU clock, temperature, power, memory, errors and step time in one log with rank and step",
            "the slowest rank is within 3 % of the median, and an alarm fires in a rehearsal",
        ),
        Check(
            "metrics",
            "tokens per millisecond, memory-bandwidth use and time waiting for communication, before and after, "
            "5 to 15 runs a side on the same machine",
            "the forecast gain is inside the measured interval; else revise the forecast before the next step",
        ),
    ]
    return tuple(out)


def migration_checklist(*, stack: Stack, keys: tuple[str, ...]) -> tuple[Check, ...]:
    """One list for a whole move (preset stack to engineered): the checks of its steps, each once, strictest first."""
    seen: dict[tuple[str, str], Check] = {}
    for key in keys:
        for check in checklist(key=key, stack=stack):
            seen.setdefault((check.topic, check.action), check)
    return tuple(seen.values())
