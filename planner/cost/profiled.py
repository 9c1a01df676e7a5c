"""Seconds of a step's kernels read off a calibration profile, and the clock that their mean power allows.

Isolated samples were taken under their own load: a product alone holds the part at its power cap, a mixed step draws
less and clocks higher. Every kernel carries the clock of its samples; the step's clock follows from its mean power.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from planner.profile.load import load_profile
from planner.profile.schema import Profile
from planner.profile.surfaces import Label, Reading, SurfaceError, Surfaces
from planner.workload.torch_step import Kernel, StepShape

# Time of a kernel against the clock, t ~ f^-share: products and attention, then kernels bound by memory. H200 products
# of 8192^3: 1.405 ms at 1980 MHz, 1.638 ms at 1478 MHz (power samples of the shipped profile).
CLOCK_SHARE = {"matmul": 0.52, "attention": 0.52}
POWER_EXPONENT = 1.5
# The last stage of a generated reduction: 2.2 us and the gap before it (kernel traces, H200).
REDUCTION_S = 3e-6


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Device seconds of one kernel at the clock of its samples.

    Attributes:
        group: matmul, attention or memory.
        clock_mhz: clock of the samples.
    """

    seconds: float
    group: str
    clock_mhz: float
    label: str
    spread_frac: float


@dataclass(frozen=True, slots=True)
class PowerModel:
    """How power follows the clock: P(f) = idle + (P - idle) (f / f_measured)^1.5.

    A product or attention measured below full clock ran at the cap, so its power there is known without a meter. The
    exponent agrees with duty-cycle samples of an H200: products of 8192^3 at a quarter of the time draw 340 W.
    """

    idle_w: float
    cap_w: float
    full_mhz: float
    lowest_mhz: float
    memory_w: float

    def at(self, *, time: "KernelTime", clock_mhz: float) -> float:
        """Watts of a kernel at a clock."""
        if time.group == "memory":
            watts, reference = self.memory_w, self.full_mhz
        else:
            watts, reference = self.cap_w, time.clock_mhz
        return self.idle_w + (watts - self.idle_w) * float((clock_mhz / reference) ** POWER_EXPONENT)


def power_model(profile: Profile) -> PowerModel:
    """Cap and clocks of the part, and the watts of a copy, from the profile."""
    full, cap = profile.device.max_clock_mhz or 1980.0, profile.device.power_limit_w or 700.0
    copies = [s.power_w for s in profile.samples if s.kind == "power" and s.op == "copy" and s.power_w]
    return PowerModel(0.15 * cap, cap, full, 0.5 * full, copies[-1] if copies else 0.7 * cap)


def scaled_s(*, time: KernelTime, clock_mhz: float) -> float:
    """Seconds of a kernel at another clock."""
    return time.seconds * float((time.clock_mhz / clock_mhz) ** CLOCK_SHARE.get(time.group, 0.0))


def step_clock_mhz(*, times: Sequence[KernelTime], idle_s: float, power: PowerModel) -> float:
    """The highest clock at which the mean power of busy and idle time stays within the cap (bisection)."""

    def mean_w(clock: float) -> float:
        busy = energy = 0.0
        for t in times:
            seconds = scaled_s(time=t, clock_mhz=clock)
            busy += seconds
            energy += seconds * power.at(time=t, clock_mhz=clock)
        return (energy + idle_s * power.idle_w) / max(busy + idle_s, 1e-12)

    low, high = power.lowest_mhz, power.full_mhz
    if mean_w(high) <= power.cap_w:
        return high
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if mean_w(middle) <= power.cap_w else (low, middle)
    return low


class ProfiledCosts:
    """Kernel times of one profile."""

    def __init__(self, profile: Profile) -> None:
        self.profile, self.surfaces = profile, Surfaces(profile)
        self.power = power_model(profile)

    def time(self, *, kernel: Kernel, shape: StepShape) -> KernelTime:
        """Device seconds of one kernel of a step.

        Raises:
            SurfaceError: the profile holds nothing to read it from.
        """
        if kernel.kind == "matmul":
            return self._time(self._product(kernel), "matmul")
        if kernel.kind == "attention":
            return self._attention(phase=kernel.phase, shape=shape)
        return self._time(self._memory(kernel), "memory")

    def _product(self, kernel: Kernel) -> Reading:
        """16-bit products are measured in all three phases, others forward: their gradients keep the 16-bit ratio."""
        matmul = partial(self.surfaces.matmul, m=kernel.m, n=kernel.n, k=kernel.k)
        plain = matmul(phase=kernel.phase)
        if kernel.dtype == "bf16":
            return plain
        layout = kernel.op if kernel.dtype == "fp8" else ""
        other = matmul(dtype=kernel.dtype, layout=layout)
        if kernel.phase == "fwd":
            return other
        ratio = plain.seconds / matmul().seconds
        label: Label = "assumed" if other.label == "assumed" else "interpolated"
        return Reading(other.seconds * ratio, label, max(other.spread_frac, plain.spread_frac), other.clock_mhz)

    def graph_launch_s(self, *, kernels: int) -> float:
        """Host seconds to launch one captured graph of so many kernels."""
        return self.surfaces.graph_launch(kernels=kernels).seconds

    def _time(self, reading: Reading, group: str) -> KernelTime:
        clock = reading.clock_mhz or self.power.full_mhz
        return KernelTime(reading.seconds, group, clock, reading.label, reading.spread_frac)

    def _attention(self, *, phase: str, shape: StepShape) -> KernelTime:
        layout = "views" if shape.kind == "gpt" else "rotated"

        def read(which: str) -> Reading:
            return self.surfaces.attention(
                op=shape.attention,
                batch=shape.micro_batch,
                heads=shape.rank_heads,
                kv_heads=shape.rank_kv_heads,
                seq=shape.sequence,
                head_dim=shape.head_dim,
                phase=which,
                layout=layout,
            )

        forward = read("fwd")
        return self._time(forward if phase == "fwd" else _less(read("step"), forward), "attention")

    def _memory(self, kernel: Kernel) -> Reading:
        surfaces = self.surfaces
        if kernel.kind == "reduction":
            return Reading(REDUCTION_S, "assumed", 0.3)
        if kernel.kind == "pointwise":
            return surfaces.stream(nbytes=kernel.nbytes)
        if kernel.kind == "loss":
            layout = "compile" if kernel.op == "compile" else ""
            return surfaces.loss(tokens=kernel.m, vocab=kernel.n, layout=layout)
        if kernel.kind == "optimizer":
            return surfaces.optimizer(
                params=kernel.elements, tensors=kernel.m, variant=kernel.op, precision=kernel.dtype
            )
        if kernel.kind == "embedding":
            return self._embedding(kernel)
        if kernel.kind == "rows":
            return self._rows(kernel)
        if kernel.kind != "table":
            raise SurfaceError(f"no reading of kernel kind {kernel.kind!r}")
        elements = max(1, round(kernel.elements))
        forward = surfaces.memory(op=kernel.op, elements=elements, dtype=kernel.dtype)
        if kernel.phase == "fwd":
            return forward
        return _less(surfaces.memory(op=kernel.op, elements=elements, dtype=kernel.dtype, phase="step"), forward)

    def _embedding(self, kernel: Kernel) -> Reading:
        def read(phase: str) -> Reading:
            return self.surfaces.embedding(
                tokens=kernel.m, vocab=kernel.n, hidden=kernel.k, dtype=kernel.dtype, phase=phase
            )

        return read("fwd") if kernel.phase == "fwd" else _less(read("step"), read("fwd"))

    def _rows(self, kernel: Kernel) -> Reading:
        def read(phase: str) -> Reading:
            return self.surfaces.rows(op=kernel.op, rows=kernel.m, width=kernel.n, dtype=kernel.dtype, phase=phase)

        return read("fwd") if kernel.phase == "fwd" else _less(read("step"), read("fwd"))


@lru_cache(maxsize=8)
def profiled_costs(name_or_path: str) -> ProfiledCosts:
    """Kernel times of a profile by shipped name or path, read once.

    Raises:
        ProfileError: it cannot be used.
    """
    return ProfiledCosts(load_profile(name_or_path))


def _less(both: Reading, forward: Reading) -> Reading:
    """Backward alone: forward with backward, less forward."""
    return Reading(max(0.0, both.seconds - forward.seconds), both.label, both.spread_frac, both.clock_mhz)
