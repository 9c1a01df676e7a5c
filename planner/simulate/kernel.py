"""The kernel clock: a host thread that launches, streams that run what was launched, in order.

An operation costs the host `host_s` and its stream `gpu_s`. It starts when the host has issued it, its stream is free
and the streams it waits for have done what was issued to them before. `sync` makes the host wait for its end.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy
from simpy.events import Event, Timeout

from planner.simulate.recorder import Recorder

COMPUTE = "compute"
HOST = "host"


@dataclass(frozen=True, slots=True)
class Op:
    """One launch.

    Attributes:
        name: what the trace shows.
        host_s: host time to issue it.
        gpu_s: time on its stream.
        stream: the stream; `host` for work that launches nothing (its `gpu_s` is ignored).
        waits_for: streams whose work so far must be done first.
        sync: the host goes on only when the operation has ended (and, on `host`, when the streams waited for have).
    """

    name: str
    host_s: float
    gpu_s: float = 0.0
    stream: str = COMPUTE
    waits_for: tuple[str, ...] = ()
    sync: bool = False


@dataclass(frozen=True, slots=True)
class KernelResult:
    """Times of a list of operations; compute busy, launch gap, wait and tail add up to `total_s`.

    Attributes:
        total_s: until host and all streams are done.
        gpu_busy_s: compute stream running.
        launch_gap_s: compute stream idle because the host had not issued the next operation.
        wait_s: compute stream idle for another stream.
        tail_s: after the last compute operation.
        host_busy_s: host thread issuing.
        stream_busy_s: busy seconds of every stream, by name.
    """

    total_s: float
    gpu_busy_s: float
    launch_gap_s: float
    wait_s: float
    tail_s: float
    host_busy_s: float
    stream_busy_s: tuple[tuple[str, float], ...]

    @property
    def idle_s(self) -> float:
        """Compute stream idle, for whatever reason."""
        return self.launch_gap_s + self.wait_s + self.tail_s


def _streams(ops: Sequence[Op]) -> list[str]:
    return sorted({COMPUTE} | {op.stream for op in ops if op.stream != HOST} | {s for op in ops for s in op.waits_for})


def kernel_fast(ops: Sequence[Op]) -> KernelResult:
    """Evaluate operations by a recurrence."""
    free = dict.fromkeys(_streams(ops), 0.0)
    busy = dict.fromkeys(free, 0.0)
    host = host_busy = launch = wait = 0.0
    for op in ops:
        host += op.host_s
        host_busy += op.host_s
        depends = max((free[s] for s in op.waits_for), default=0.0)
        if op.stream == HOST:
            host = max(host, depends) if op.sync else host
            continue
        idle = free[op.stream]
        start = max(idle, host, depends)
        if op.stream == COMPUTE:
            launch += start - max(idle, depends)
            wait += max(0.0, depends - idle)
        free[op.stream] = start + op.gpu_s
        busy[op.stream] += op.gpu_s
        if op.sync:
            host = free[op.stream]
    total = max(host, *free.values())
    return KernelResult(total, busy[COMPUTE], launch, wait, total - free[COMPUTE], host_busy, tuple(busy.items()))


class _Stream:
    """Runs issued operations one after another."""

    def __init__(self, *, env: simpy.Environment, name: str, recorder: Recorder | None) -> None:
        self.env, self.name, self.recorder = env, name, recorder
        self.busy_s = self.launch_gap_s = self.wait_s = self.end_s = 0.0
        self.last: Event | None = None  # end of what was issued last

    def issue(self, op: Op, after: list[Event]) -> Event:
        """Put an operation behind the last one; the event fires at its end."""
        before, done = self.last, Event(self.env)
        self.last = done
        self.env.process(self._run(op, before, after, done))
        return done

    def _run(self, op: Op, before: Event | None, after: list[Event], done: Event) -> Generator[Event, Any, None]:
        if before is not None and before.callbacks is not None:
            yield before
        free = self.end_s
        for event in after:
            if event.callbacks is not None:
                yield event
        depends = max((float(event.value or 0.0) for event in after), default=0.0)
        start = self.env.now
        self.launch_gap_s += start - max(free, depends)
        self.wait_s += max(0.0, depends - free)
        yield Timeout(self.env, op.gpu_s)
        self.busy_s += op.gpu_s
        self.end_s = self.env.now
        if self.recorder is not None:
            self.recorder.add(track=f"gpu/{self.name}", name=op.name, start_s=start, end_s=self.end_s)
        done.succeed(self.end_s)


def _host(
    *, env: simpy.Environment, ops: Sequence[Op], streams: dict[str, _Stream], recorder: Recorder | None
) -> Generator[Event, Any, None]:
    for op in ops:
        begin = env.now
        yield Timeout(env, op.host_s)
        if recorder is not None:
            recorder.add(track="gpu/host", name=op.name, start_s=begin, end_s=env.now)
        after = [last for last in (streams[s].last for s in op.waits_for) if last is not None]
        waits = after if op.stream == HOST else [streams[op.stream].issue(op, after)]
        for event in waits if op.sync else ():
            if event.callbacks is not None:
                yield event


def kernel_events(ops: Sequence[Op], recorder: Recorder | None = None) -> KernelResult:
    """Evaluate operations by events.

    Args:
        ops: operations in the order that the host issues them.
        recorder: takes every span when given.
    """
    env = simpy.Environment()
    streams = {name: _Stream(env=env, name=name, recorder=recorder) for name in _streams(ops)}
    env.process(_host(env=env, ops=ops, streams=streams, recorder=recorder))
    env.run()
    compute, total = streams[COMPUTE], float(env.now)
    return KernelResult(
        total_s=total,
        gpu_busy_s=compute.busy_s,
        launch_gap_s=compute.launch_gap_s,
        wait_s=compute.wait_s,
        tail_s=total - compute.end_s,
        host_busy_s=sum(op.host_s for op in ops),
        stream_busy_s=tuple((name, stream.busy_s) for name, stream in streams.items()),
    )
