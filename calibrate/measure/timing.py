"""Sound timing on a GPU: graph replay or a prefilled queue so that launch gaps never count, rotated working sets."""

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Sample = dict[str, Any]
Call = Callable[[], Any]
L2_BYTES = 64e6
SLEEP_CYCLES_PER_S = 1.9e9


def on_gpu() -> bool:
    """Whether a CUDA device is there; without one every timer falls back to the wall clock."""
    return torch.cuda.is_available()


def synchronize() -> None:
    """Wait for the device (nothing to wait for on a CPU)."""
    if on_gpu():
        torch.cuda.synchronize()


def state() -> dict[str, float | None]:
    """Clock (MHz), power (W) and temperature (C) now."""
    if not on_gpu():
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


def sample(
    *, kind: str, op: str, shape: dict[str, Any], dtype: str, phase: str, measured: dict[str, Any], layout: str = "",
    heat: str = "hot",
) -> Sample:  # fmt: skip
    """One record of contract 6 from what a timer returned."""
    times = measured["times"]
    figures = {k: float(f"{v:.5g}") for k, v in quantiles(times).items()}
    return {
        "kind": kind, "op": op, "shape": shape, "dtype": dtype, "layout": layout, "phase": phase, "state": heat,
        "method": measured["method"], "n": len(times), **figures, **measured["at"],
    }  # fmt: skip


def copies_beyond_l2(working_set_bytes: float, *, most: int = 16) -> int:
    """How many input sets to rotate so that none stays in the cache."""
    return int(min(most, max(1, -(-3 * L2_BYTES // max(working_set_bytes, 1.0)))))


def capture(calls: list[Call], *, repeats: int) -> torch.cuda.CUDAGraph:
    """A graph that holds `repeats` rounds over `calls`, warmed up on a side stream first."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            for call in calls:
                call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    gc.collect()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            for call in calls:
                call()
    return graph


def replay(graph: Any, *, per_replay: int, budget_s: float, warm_s: float = 0.0) -> dict[str, Any]:
    """Seconds of one call from back-to-back replays; clock and power are read while the device is still at work."""
    graph.replay()
    torch.cuda.synchronize()
    began = time.perf_counter()
    graph.replay()
    torch.cuda.synchronize()
    once = max(time.perf_counter() - began, 1e-6)
    for _ in range(min(4000, int(warm_s / once))):
        graph.replay()
    count = int(min(60, max(5, budget_s / once)))
    inner = max(1, int(budget_s / once / count))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    marks[0].record()
    for mark in marks[1:]:
        for _ in range(inner):
            graph.replay()
        mark.record()
    marks[int(count * 0.7)].synchronize()
    at = state()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) / 1e3 / per_replay / inner for a, b in zip(marks, marks[1:], strict=False)]
    return {"times": times, "at": at, "method": "graph"}


def graph_time(
    calls: list[Call], *, repeats: int = 1, budget_s: float, warm_s: float = 0.0, split: int = 1
) -> dict[str, Any]:
    """Device seconds of one call (of one of `split` equal parts of it) by graph replay; wall clock on a CPU."""
    if not on_gpu():
        return wall_time(lambda: [call() for call in calls], budget_s=budget_s, split=split * len(calls))
    graph = capture(calls, repeats=repeats)
    return replay(graph, per_replay=repeats * len(calls) * split, budget_s=budget_s, warm_s=warm_s)


def cold_time(calls: list[Call], *, bursts: int = 5) -> dict[str, Any]:
    """Device seconds of a short burst after a rest: the clock has not yet come down to the power cap."""
    if not on_gpu():
        return wall_time(lambda: [call() for call in calls], budget_s=0.0, split=len(calls))
    graph = capture(calls, repeats=1)
    graph.replay()
    times: list[float] = []
    at = state()
    for _ in range(bursts):
        torch.cuda.synchronize()
        time.sleep(0.03)
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(200_000)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        at = state()
        times.append(start.elapsed_time(stop) / 1e3 / len(calls))
    return {"times": times, "at": at, "method": "graph"}


def queue_time(call: Call, *, calls: int, budget_s: float, head_start_s: float = 0.02) -> dict[str, Any]:
    """Device seconds of one call; the device sleeps first, so that the host is ahead and launch gaps do not count."""
    if not on_gpu():
        return wall_time(call, budget_s=budget_s)
    for _ in range(2):
        call()
    times: list[float] = []
    at = state()
    end = time.perf_counter() + budget_s
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 60):
        torch.cuda.synchronize()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int(head_start_s * SLEEP_CYCLES_PER_S))
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        at = state()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1e3 / calls)
    return {"times": times, "at": at, "method": "queue"}


def wall_time(call: Call, *, budget_s: float, split: int = 1) -> dict[str, Any]:
    """Wall seconds of one call with the device synchronised after each (host included)."""
    call()
    synchronize()
    times: list[float] = []
    end = time.perf_counter() + budget_s
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 200):
        start = time.perf_counter()
        call()
        synchronize()
        times.append((time.perf_counter() - start) / split)
    return {"times": times, "at": state(), "method": "wall"}


def host_time(call: Call, *, budget_s: float, split: int = 1, before: Call | None = None) -> dict[str, Any]:
    """Seconds the host needs to issue one call; the device is drained before each, so the queue never blocks."""
    for _ in range(3):
        if before is not None:
            before()
        call()
    times: list[float] = []
    end = time.perf_counter() + budget_s
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 100):
        if before is not None:
            before()
        synchronize()
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) / split)
    synchronize()
    return {"times": times, "at": state(), "method": "wall"}
