"""Sound timing: graph replay so that launch gaps never count, working sets beyond the cache, hot and burst states."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Sample = dict[str, Any]
Measured = tuple[list[float], dict[str, Any]]
L2_BYTES = 64e6
POWER_INSTANT_FIELD = 186
_nvml: dict[str, Any] = {}


def nvml() -> tuple[Any, Any]:
    """NVML module and the handle of device 0, or (None, None) where there is none."""
    if "module" not in _nvml:
        try:
            import pynvml

            pynvml.nvmlInit()
            _nvml.update(module=pynvml, handle=pynvml.nvmlDeviceGetHandleByIndex(0))
        except Exception:
            _nvml.update(module=None, handle=None)
    return _nvml["module"], _nvml["handle"]


def state() -> dict[str, float | None]:
    """Clock (MHz), power (W, instantaneous where the driver gives it) and temperature (C) now."""
    module, handle = nvml()
    if module is None or not torch.cuda.is_available():
        return {"clock_mhz": None, "power_w": None, "temp_c": None}
    try:
        field = module.nvmlDeviceGetFieldValues(handle, [POWER_INSTANT_FIELD])[0]
        watts = field.value.uiVal / 1000.0 if field.nvmlReturn == 0 else 0.0
    except Exception:
        watts = 0.0
    return {
        "clock_mhz": float(module.nvmlDeviceGetClockInfo(handle, module.NVML_CLOCK_SM)),
        "power_w": watts or module.nvmlDeviceGetPowerUsage(handle) / 1000.0,
        "temp_c": float(module.nvmlDeviceGetTemperature(handle, module.NVML_TEMPERATURE_GPU)),
    }


def synchronize() -> None:
    """Drain the device where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def quantiles(seconds: list[float]) -> dict[str, float]:
    """P10, P50 and P90 of repeated times."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        "p10_s": ordered[round(0.1 * last)],
        "p50_s": statistics.median(ordered),
        "p90_s": ordered[round(0.9 * last)],
    }


def sample(
    *,
    kind: str,
    op: str,
    shape: dict[str, Any],
    measured: Measured,
    dtype: str = "",
    layout: str = "",
    phase: str = "step",
    heat: str = "hot",
    method: str = "graph",
) -> Sample:
    """One row of the profile."""
    times, at = measured
    return {
        "kind": kind,
        "op": op,
        "shape": shape,
        "dtype": dtype,
        "layout": layout,
        "phase": phase,
        "state": heat,
        "method": method,
        "n": len(times),
        **quantiles(times),
        **at,
    }


def copies_beyond_l2(working_set_bytes: float) -> int:
    """How many input sets to rotate so that none stays in the cache."""
    return int(min(16, max(1, -(-3 * L2_BYTES // max(working_set_bytes, 1.0)))))


def device_time(calls: list[Callable[[], Any]], *, budget_s: float, hot: bool = True) -> Measured:
    """Seconds of one call on the device: graph replay on a GPU, plain wall clock on a CPU.

    Hot runs for the whole budget and keeps the second half; not hot is a burst after a pause of 0.1 s.
    """
    if not torch.cuda.is_available():
        return wall_time(lambda: [call() for call in calls], budget_s=budget_s, per=len(calls))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            for call in calls:
                call()
        side.synchronize()
        start = time.perf_counter()
        for call in calls:
            call()
        side.synchronize()
        once = time.perf_counter() - start
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    repeats = max(1, min(64, int(0.008 / once)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            for call in calls:
                call()
    graph.replay()
    torch.cuda.synchronize()
    if not hot:
        time.sleep(0.1)
    times: list[float] = []
    at = state()
    end = time.perf_counter() + (budget_s if hot else 0.0)
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 400):
        start_event, stop_event = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start_event.record()
        graph.replay()
        stop_event.record()
        if len(times) % 8 == 4:
            at = state()
        stop_event.synchronize()
        times.append(start_event.elapsed_time(stop_event) / 1e3 / (repeats * len(calls)))
    del graph
    return (times[len(times) // 2 :] if hot and len(times) >= 10 else times), at


def queue_time(call: Callable[[], Any], *, calls: int, budget_s: float) -> Measured:
    """Device seconds of one call with the queue kept full, for code that no graph can hold."""
    if not torch.cuda.is_available():
        return wall_time(call, budget_s=budget_s)
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    times: list[float] = []
    at = state()
    end = time.perf_counter() + budget_s
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 50):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        at = state()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1e3 / calls)
    return times, at


def wall_time(call: Callable[[], Any], *, budget_s: float, per: int = 1) -> Measured:
    """Wall seconds of one call, the device drained after each."""
    for _ in range(2):
        call()
    synchronize()
    times: list[float] = []
    end = time.perf_counter() + budget_s
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 400):
        start = time.perf_counter()
        call()
        synchronize()
        times.append((time.perf_counter() - start) / per)
    return times, state()


def host_time(call: Callable[[], Any], *, budget_s: float, per: int = 1) -> Measured:
    """Seconds the host needs to issue one call; the device is drained before each so that the queue never blocks."""
    for _ in range(3):
        call()
    times: list[float] = []
    end = time.perf_counter() + budget_s
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 400):
        synchronize()
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) / per)
    synchronize()
    return times, state()
