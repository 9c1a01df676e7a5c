"""Operators of any sharded layer read off a calibration profile: products, attention and traffic.

For stacks whose kernels are not those of PyTorch's own step (`workload.torch_step`): fused Megatron layers, experts,
context parallelism. Memory-bound work is its traffic at the copy rate of the profile.
"""

from functools import lru_cache

from planner.cost.profiled import CLOCK_SHARE, ProfiledCosts, profiled_costs, step_clock_mhz
from planner.cost.types import Estimate
from planner.profile.hosttime import host_times
from planner.profile.surfaces import Reading, SurfaceError
from planner.workload.operators import Operator
from planner.workload.torch_step import Kernel, StepShape, layer_kernels

BF16_LIKE = frozenset({"bf16", "fp16"})
EIGHT_BITS = {"fp8": "tensorwise", "fp8_rowwise": "rowwise"}
# A layer whose launches stand for a framework's calls: host time a launch hardly depends on its size.
TYPICAL = StepShape("llama", 1, 2048, 16, 16, 5632, 32000, 1, 2048)


def profiled_operator(*, op: Operator, dtype: str, attention: str, profile: str) -> Estimate | None:
    """Seconds of one operator as measured; None where the profile cannot say.

    Args:
        op: product, attention or memory operator.
        dtype: precision of the product.
        attention: kernel family of the software; unfused attention is measured as such.
        profile: shipped name or path.
    """
    costs = profiled_costs(profile)
    try:
        reading = _reading(op=op, dtype=dtype, attention=attention, costs=costs)
    except SurfaceError:
        return None
    if reading is None:
        return None
    # Samples ran alone at their own clock; in a mixed step products and attention clock higher.
    clock = reading.clock_mhz if op.kind != "memory" else None
    faster = (clock / mixed_clock_mhz(profile)) ** CLOCK_SHARE["matmul"] if clock else 1.0
    return Estimate(reading.seconds * faster, reading.label, max(0.02, reading.spread_frac), f"profile {profile}")


def _reading(*, op: Operator, dtype: str, attention: str, costs: ProfiledCosts) -> Reading | None:
    if op.kind == "matmul":
        return _product(op=op, dtype=dtype, costs=costs)
    if op.kind == "attention":
        return _attention(op=op, attention=attention, costs=costs)
    if op.kind != "memory":
        return None
    base = costs.surfaces.stream(nbytes=op.nbytes)
    floor = costs.surfaces.stream(nbytes=1.0).seconds
    return Reading(base.seconds + max(0.0, op.launches - 1) * floor, base.label, base.spread_frac)


def _product(*, op: Operator, dtype: str, costs: ProfiledCosts) -> Reading | None:
    phase = "dgrad" if op.name.endswith("_dgrad") else "wgrad" if op.name.endswith("_wgrad") else "fwd"
    m, n, k = (max(1, round(x)) for x in (op.m, op.n, op.k))
    # Shapes of a profile are those of the forward product.
    m, n, k = {"fwd": (m, n, k), "dgrad": (m, k, n), "wgrad": (k, m, n)}[phase]
    if dtype in BF16_LIKE:
        kernel = Kernel("matmul", "matmul", phase, "bf16", m=m, n=n, k=k)
    elif dtype in EIGHT_BITS:
        kernel = Kernel("matmul", EIGHT_BITS[dtype], phase, "fp8", m=m, n=n, k=k)
    else:
        kernel = Kernel("matmul", "matmul", phase, dtype, m=m, n=n, k=k)
    time = costs.time(kernel=kernel, shape=TYPICAL)
    seconds = time.seconds * op.batch
    if dtype in EIGHT_BITS:
        seconds += costs.surfaces.stream(nbytes=3.0 * op.m * op.k * op.batch).seconds
    label = "interpolated" if time.label == "measured" and op.batch != 1 else time.label
    return Reading(seconds, label, time.spread_frac, time.clock_mhz)  # type: ignore[arg-type]


def _attention(*, op: Operator, attention: str, costs: ProfiledCosts) -> Reading | None:
    if op.seq_q != op.seq_kv or not op.causal:
        return None

    def read(phase: str) -> Reading:
        return costs.surfaces.attention(
            op="math_causal" if attention == "unfused" else "default_causal",
            batch=max(1, round(op.batch)),
            heads=max(1, round(op.heads)),
            kv_heads=max(1, round(op.kv_heads)),
            seq=round(op.seq_q),
            head_dim=round(op.head_dim),
            phase=phase,
        )

    if not op.backward_pass:
        return read("fwd")
    both = read("step")
    return Reading(max(0.0, both.seconds - read("fwd").seconds), both.label, both.spread_frac, both.clock_mhz)


@lru_cache(maxsize=8)
def mixed_clock_mhz(profile: str) -> float:
    """Clock of a busy mixed layer: that which the mean power of its kernels allows."""
    costs = profiled_costs(profile)
    try:
        kernels = [k for phase in layer_kernels(TYPICAL) for k in phase]
        times = [costs.time(kernel=k, shape=TYPICAL) for k in kernels]
    except SurfaceError:
        return costs.power.full_mhz
    return step_clock_mhz(times=times, idle_s=0.0, power=costs.power)


@lru_cache(maxsize=8)
def host_call_s(profile: str) -> float | None:
    """Host seconds of one framework call: an eager autocast layer over its launches; None where not measured."""
    costs = profiled_costs(profile)
    try:
        host = host_times(costs.profile, kind="llama", precision="amp", mode="eager", recompute=False)
    except SurfaceError:
        return None
    forward, backward = layer_kernels(TYPICAL)
    return (host.forward_s + host.backward_s) / (len(forward) + len(backward))
