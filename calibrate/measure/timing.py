"""Sound timing on a GPU: graph replay so that launch gaps never count, rotated working sets, hot and cold states."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Sample = dict[str, Any]
L2_BYTES = 64e6


def state() -> dict[str, float | None]:
    """Clock (MHz), power (W) and temperature (C) now."""
    if not torch.cuda.is_available():
        return {"clock_mhz": None, "power_w": None, "temp_c": None}
    return {
        "clock_mhz": float(torch.cuda.clock_rate()),
        "power_w": torch.cuda.power_draw() / 1000.0,
        "temp_c": float(torch.cuda.temperature()),
    }


def quantiles(seconds: list[float]) -> dict[str, float]:
    """P10, P50 and P90 of repeated times."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        "p10_s": ordered[round(0.1 * last)],
        "p50_s": statistics.median(ordered),
        "p90_s": ordered[round(0.9 * last)],
    }


def copies_beyond_l2(working_set_bytes: float) -> int:
    """How many input sets to rotate so that none stays in the cache."""
    return int(min(16, max(1, -(-3 * L2_BYTES // max(working_set_bytes, 1.0)))))


def graph_time(calls: list[Callable[[], Any]], *, repeats: int, budget_s: float) -> tuple[list[float], dict[str, Any]]:
    """Seconds of one call, from replays of a graph that holds `repeats` rounds over `calls` (one per input set)."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            for call in calls:
                call()
    graph.replay()
    torch.cuda.synchronize()
    times: list[float] = []
    end = time.perf_counter() + budget_s
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 200):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1e3 / (repeats * len(calls)))
    return times, state()


def wall_time(call: Callable[[], Any], *, budget_s: float) -> tuple[list[float], dict[str, Any]]:
    """Wall seconds of one call with the device synchronised after each (eager code, host included)."""
    sync = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    for _ in range(3):
        call()
    sync()
    times: list[float] = []
    end = time.perf_counter() + budget_s
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 200):
        start = time.perf_counter()
        call()
        sync()
        times.append(time.perf_counter() - start)
    return times, state()


def queue_time(call: Callable[[], Any], *, calls: int, budget_s: float) -> tuple[list[float], dict[str, Any]]:
    """Device seconds of one call with the queue kept full: events around `calls` calls in a row."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    times: list[float] = []
    end = time.perf_counter() + budget_s
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 50):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1e3 / calls)
    return times, state()


def host_time(call: Callable[[], Any], *, budget_s: float) -> tuple[list[float], dict[str, Any]]:
    """Seconds the host needs to issue one call; the device is drained before each so that the queue never blocks."""
    sync = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    for _ in range(3):
        call()
    times: list[float] = []
    end = time.perf_counter() + budget_s
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 100):
        sync()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    sync()
    return times, state()
