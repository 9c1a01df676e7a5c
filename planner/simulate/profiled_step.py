"""One training step on a calibrated GPU: its kernels behind the host thread that issues them.

Device times come from the profile at the clock that the step's mean power allows; host times from the profile too. The
kernel clock (`planner.simulate.kernel`) joins them, so whether a step is bound by launches follows and is not typed in.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.cost.profiled import KernelTime, ProfiledCosts, scaled_s, step_clock_mhz
from planner.profile.hosttime import HostTimes, host_times, update_s
from planner.simulate.kernel import KernelResult, Op, kernel_events, kernel_fast
from planner.workload.torch_step import (
    Kernel,
    StepShape,
    accumulate_kernels,
    embedding_kernels,
    head_kernels,
    layer_kernels,
    update_kernels,
)


@dataclass(frozen=True, slots=True)
class Part:
    """A run of kernels that the host issues together, `repeat` times; `pieces` launches stand behind each kernel."""

    name: str
    kernels: tuple[Kernel, ...]
    host_s: float
    repeat: int = 1
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class ProfiledStep:
    """The forecast of one step.

    Attributes:
        device_s: kernels alone, at `clock_mhz`.
        host_s: the host thread alone.
        parts_s: device seconds by part of the step.
        groups_s: device seconds of matmul, attention and memory-bound kernels.
        labels: share of device seconds by label.
        sigma: one standard deviation of the logarithm of the step time.
    """

    step_s: float
    device_s: float
    host_s: float
    clock_mhz: float
    parts_s: tuple[tuple[str, float], ...]
    groups_s: tuple[tuple[str, float], ...]
    labels: tuple[tuple[str, float], ...]
    result: KernelResult
    sigma: float


def step_parts(*, costs: ProfiledCosts, shape: StepShape) -> tuple[Part, ...]:
    """The parts of a step in the order of launch, with the host seconds of each."""
    profile = costs.profile
    host = host_times(profile, kind=shape.kind, precision=shape.precision, mode=shape.mode, recompute=shape.recompute)
    forward, backward = layer_kernels(shape)
    if "pointwise" in shape.fused and shape.mode == "eager":
        host = _fewer_launches(host=host, shape=shape, launches=len(forward) + len(backward))
    embedding, head = embedding_kernels(shape), head_kernels(shape)
    layers, third = shape.layers, host.rest_s / 3
    micro = [
        Part("embedding", tuple(embedding[:1]), 0.5 * third),
        Part("forward", tuple(forward), host.forward_s, layers),
        Part("head", tuple(head), 2 * third),
        Part("backward", tuple(backward), host.backward_s, layers),
        Part("embedding", tuple(embedding[1:]), 0.5 * third),
    ]
    update = update_s(profile, variant=shape.optimizer, precision=shape.precision, tensors=shape.tensors)
    parts = list(micro)
    for _ in range(shape.accumulation - 1):
        parts += [Part("accumulate", tuple(accumulate_kernels(shape)), 6e-6 * shape.tensors), *micro]
    pieces = shape.tensors if shape.optimizer == "loop" else UPDATE_PIECES
    parts.append(Part("update", tuple(update_kernels(shape)), update, pieces=pieces))
    return _captured(costs=costs, parts=parts) if shape.graph else tuple(parts)


def _fewer_launches(*, host: HostTimes, shape: StepShape, launches: int) -> HostTimes:
    """Host times of an eager layer with fused kernels in it: those of the plain one by the number of launches."""
    plain = layer_kernels(replace(shape, fused=shape.fused - {"pointwise"}))
    share = launches / (len(plain[0]) + len(plain[1]))
    return replace(host, forward_s=share * host.forward_s, backward_s=share * host.backward_s)


def _captured(*, costs: ProfiledCosts, parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts as one graph: a single launch, shared by its kernels."""
    kernels = sum(len(part.kernels) * part.pieces * part.repeat for part in parts)
    share = costs.graph_launch_s(kernels=kernels) / kernels
    return tuple(replace(part, host_s=share * len(part.kernels) * part.pieces) for part in parts)


def _operations(parts: Sequence[Part], times: dict[Kernel, KernelTime], clock_mhz: float) -> list[Op]:
    ops = []
    for part in parts:
        share = part.host_s / max(1, len(part.kernels) * part.pieces)
        for _ in range(part.repeat):
            for kernel in part.kernels:
                seconds = scaled_s(time=times[kernel], clock_mhz=clock_mhz) / part.pieces
                ops += [Op(part.name, share, seconds)] * part.pieces
    return ops


def profiled_step(*, costs: ProfiledCosts, shape: StepShape, engine: str = "fast") -> ProfiledStep:
    """Seconds of one step on the profiled GPU.

    Raises:
        SurfaceError: the profile lacks what the step needs.
    """
    parts = step_parts(costs=costs, shape=shape)
    times = {k: costs.time(kernel=k, shape=shape) for part in parts for k in part.kernels}
    repeated = [times[k] for part in parts for k in part.kernels * part.repeat]
    host_s = sum(part.host_s * part.repeat for part in parts)
    clock, idle = costs.power.full_mhz, 0.0
    for _ in range(3):  # idle time and clock depend on each other
        clock = step_clock_mhz(times=repeated, idle_s=idle, power=costs.power)
        result = kernel_fast(_operations(parts, times, clock))
        idle = result.idle_s
    if engine == "events":
        result = kernel_events(_operations(parts, times, clock))
    return _answer(parts=parts, times=times, clock=clock, host_s=host_s, result=result)


def drained_s(*, costs: ProfiledCosts, shape: StepShape, clock_mhz: float) -> tuple[float, float]:
    """Seconds of forward with backward, and of the update, where the host waits for the device between the two."""
    parts = step_parts(costs=costs, shape=shape)
    times = {k: costs.time(kernel=k, shape=shape) for part in parts for k in part.kernels}
    last = [part for part in parts if part.name == "update"]
    rest = [part for part in parts if part.name != "update"]
    before, after = (kernel_fast(_operations(some, times, clock_mhz)).total_s for some in (rest, last))
    return before, after


def _answer(
    *, parts: Sequence[Part], times: dict[Kernel, KernelTime], clock: float, host_s: float, result: KernelResult
) -> ProfiledStep:
    by_part: dict[str, float] = {}
    groups: dict[str, float] = {}
    labels: dict[str, float] = {}
    variance = 0.0
    for part in parts:
        for kernel in part.kernels:
            time = times[kernel]
            seconds = scaled_s(time=time, clock_mhz=clock) * part.repeat
            by_part[part.name] = by_part.get(part.name, 0.0) + seconds
            groups[time.group] = groups.get(time.group, 0.0) + seconds
            labels[time.label] = labels.get(time.label, 0.0) + seconds
            variance += (seconds * KERNEL_SIGMA[time.label]) ** 2
    device = result.gpu_busy_s
    bound = max(0.0, 1.0 - device / result.total_s)
    sigma = ((STEP_SIGMA**2 + variance / device**2) * (1 - bound) + (HOST_SIGMA * min(1.0, 4 * bound)) ** 2) ** 0.5
    return ProfiledStep(
        step_s=result.total_s,
        device_s=device,
        host_s=host_s,
        clock_mhz=clock,
        parts_s=tuple(by_part.items()),
        groups_s=tuple(groups.items()),
        labels=tuple((k, v / device) for k, v in labels.items()),
        result=result,
        sigma=sigma,
    )


# Standard deviations of logarithms: of single kernels by label (leaving each shape out), of a whole kernel-bound step,
# and of host time between two machines of the same kind (`docs/calibration.md`).
UPDATE_PIECES = 8  # launches of a fused or foreach update, about
KERNEL_SIGMA = {"measured": 0.02, "interpolated": 0.05, "assumed": 0.15}
STEP_SIGMA = 0.022
HOST_SIGMA = 0.18
