"""Step times of the memory rows: plain Megatron on a test host, whose speed is the one site constant."""

import hashlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from planner.catalog.types import ModelSpec
from planner.simulate.assemble import forecast_step
from planner.simulate.durations import Machine
from planner.workload.layout import Layout

Row = Mapping[str, str]
EAGER_HOST_SCALE = 1.0  # plain Megatron launches operator by operator, as eager PyTorch does; no captured graphs
HOST_SCALES = (1.0, 2.0, 3.0, 4.0, 6.0)


def fold_of(shape: str) -> int:
    """Half of a shape-and-layout group, 0 or 1, by hash."""
    return hashlib.sha256(shape.encode()).digest()[0] % 2


def step_s(*, model: ModelSpec, layout: Layout, machine: Machine, capacity_bytes: float, host_scale: float) -> float:
    """Seconds of one step on a host `host_scale` times as slow as the reference."""
    slow = replace(machine, software=replace(machine.software, host_scale=host_scale))
    return forecast_step(model=model, layout=layout, machine=slow, capacity_bytes=capacity_bytes).step_s


def fit_host_scale(*, rows: Sequence[Row], seconds: Callable[[Row, float], float | None]) -> float | None:
    """The host scale at which the median of log(predicted / measured) over `rows` is nearest to zero.

    `seconds(row, scale)` gives a forecast or None for a row that is skipped. None with fewer than three usable rows.
    """
    best: tuple[float, float] | None = None
    last: tuple[float, float] | None = None
    for scale in HOST_SCALES:
        errors = [math.log(s / float(r["measured"])) for r in rows if (s := seconds(r, scale)) is not None]
        if len(errors) < 3:
            return None
        middle = statistics.median(errors)
        if last is not None and last[1] < 0 <= middle:
            return last[0] + (scale - last[0]) * last[1] / (last[1] - middle)
        if best is None or abs(middle) < abs(best[1]):
            best = (scale, middle)
        last = (scale, middle)
    return best[0] if best else None
