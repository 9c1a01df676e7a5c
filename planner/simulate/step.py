"""The step clock: every pipeline stage a process with a compute, a data-parallel and a pipeline stream, on SimPy.

Evaluates the plan that `fast.py` evaluates and shares no arithmetic with it; tests hold the two to each other.
"""

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import simpy
from simpy.events import Event, Timeout

from planner.simulate.link import SharedLink
from planner.simulate.plan import BlockRun, StepPlan, StepResult, block_runs
from planner.simulate.recorder import Recorder
from planner.simulate.schedules import Task, downstream, last_gradient_tasks, upstream

Process = Generator[Event, Any, None]
Key = tuple[str, int, int]
NAMES = {"forward": "F", "backward": "B", "weight": "W"}


@dataclass(slots=True)
class _Message:
    """Output of a task on its way to another stage."""

    ended_s: float
    arrival: Event


class _Exchange:
    """The data-parallel stream of a stage: jobs one after another in the order they were put."""

    def __init__(
        self,
        *,
        env: simpy.Environment,
        jobs: int,
        track: str,
        recorder: Recorder | None,
        link: SharedLink | None = None,
    ) -> None:
        self.busy_s, self._link = 0.0, link
        self._env, self._left, self._track, self._recorder = env, jobs, track, recorder
        self._queue: deque[tuple[str, float, Event]] = deque()
        self._wake: Event | None = None
        self.process = env.process(self._run()) if jobs else None

    def put(self, name: str, seconds: float) -> Event:
        """Queue a job; the event fires at its end."""
        done = Event(self._env)
        self._queue.append((name, seconds, done))
        if self._wake is not None:
            self._wake.succeed()
            self._wake = None
        return done

    def _run(self) -> Process:
        while self._left:
            if not self._queue:
                self._wake = Event(self._env)
                yield self._wake
            name, seconds, done = self._queue.popleft()
            begin = self._env.now
            yield Timeout(self._env, seconds) if self._link is None else self._link.carry(seconds)
            self.busy_s += seconds
            self._left -= 1
            if self._recorder is not None:
                self._recorder.add(track=self._track, name=name, start_s=begin, end_s=self._env.now)
            done.succeed()


@dataclass(slots=True)
class _Meeting:
    """All parties leave when the last one has come."""

    parties: int
    door: Event
    came: int = 0

    def join(self) -> Event:
        """The event to wait for."""
        self.came += 1
        if self.came == self.parties:
            self.door.succeed()
        return self.door


@dataclass(slots=True)
class _Spent:
    """Where a stage's time went."""

    compute: float = 0.0
    bubble: float = 0.0
    dp: float = 0.0
    pp: float = 0.0
    link: float = 0.0
    dp_link: float = 0.0
    offset: float = 0.0
    finish: float | None = None


@dataclass(slots=True)
class _Shared:
    """What the stages of one step have in common."""

    env: simpy.Environment
    plan: StepPlan
    recorder: Recorder | None
    tail: _Meeting
    barrier: _Meeting
    stages: list["_Stage"] = field(default_factory=list)


class _Stage:
    """One pipeline stage."""

    def __init__(self, *, shared: _Shared, stage: int) -> None:
        plan = shared.plan
        self.shared, self.env, self.plan, self.index = shared, shared.env, plan, stage
        self.tasks = plan.order()[stage]
        self.inbox: dict[Key, _Message] = {}
        self.waiting: dict[Key, Event] = {}
        self.spent = _Spent()
        self.link_free_s = 0.0
        runs = block_runs(plan=plan, stage=stage)
        self.runs = iter(runs)
        self.ahead: deque[BlockRun] = deque(run for row in runs for run in row)
        self.gathers: deque[Event | None] = deque()
        self.gates: dict[int, Event] = {}
        self.last = {} if plan.fsdp else dict(last_gradient_tasks(self.tasks, split=plan.split))
        self.routes = {(kind, c): self._route(kind, c) for kind in ("forward", "backward") for c in range(plan.chunks)}
        gathers = sum(s > 0 for s in plan.param_gather_s[stage])
        buckets = sum(map(len, plan.grad_bucket_s[stage])) if self.last else 0
        blocks = sum((run.gather_s > 0) + (run.reduce_s > 0) for run in self.ahead)
        track = f"stage {stage}/data parallel"
        jobs = gathers + buckets + blocks
        link = SharedLink(self.env) if plan.shared_link else None
        self.exchange = _Exchange(env=self.env, jobs=jobs, track=track, recorder=shared.recorder, link=link)
        # Overlapped boundary messages that share the link queue on a stream of their own.
        self.outbox: _Exchange | None = None
        if link is not None and plan.p2p_overlap:
            sends = sum(t.kind in NAMES and self.routes.get((t.kind, t.chunk), (False, None))[1] is not None
                        for t in self.tasks)  # fmt: skip
            track = f"stage {stage}/pipeline"
            self.outbox = _Exchange(env=self.env, jobs=sends, track=track, recorder=shared.recorder, link=link)
        self.env.process(self._run())

    def _route(self, kind: str, chunk: int) -> tuple[bool, tuple[int, int] | None]:
        """Whether a task receives from another stage, and the stage and chunk that its output goes to."""
        plan = self.plan
        size = {"schedule": plan.schedule, "stages": plan.stages, "chunks": plan.chunks}
        before = upstream(stage=self.index, chunk=chunk, **size)  # type: ignore[arg-type]
        after = downstream(stage=self.index, chunk=chunk, **size)  # type: ignore[arg-type]
        if kind == "backward":
            before, after = after, before
        receives = before is not None and before[0] != self.index
        return receives, after if after is not None and after[0] != self.index else None

    def _record(self, stream: str, name: str, begin: float, end: float) -> None:
        if self.shared.recorder is not None:
            self.shared.recorder.add(track=f"stage {self.index}/{stream}", name=name, start_s=begin, end_s=end)

    def _run(self) -> Process:
        self._gather()
        yield from self._compute()
        yield from self._close()

    def _gather(self) -> None:
        """Queue the gathers of the step; those that are not overlapped hold the first task."""
        done = None
        for chunk, seconds in enumerate(self.plan.param_gather_s[self.index]):
            if seconds > 0:
                done = self.gates[chunk] = self.exchange.put(f"gather c{chunk}", seconds)
        for _ in range(min(self.plan.prefetch + 1, len(self.ahead))):
            self._gather_block()
        if done is not None and not self.plan.gather_overlap:
            self.gates = {self.tasks[0].chunk: done}

    def _gather_block(self) -> None:
        run = self.ahead.popleft()
        self.gathers.append(self.exchange.put(f"gather b{run.block}", run.gather_s) if run.gather_s > 0 else None)

    def _compute(self) -> Process:
        env, plan, spent = self.env, self.plan, self.spent
        tables = {"forward": plan.forward_s, "backward": plan.backward_s, "weight": plan.weight_s}
        row = {kind: table[self.index] for kind, table in tables.items()}
        apart = 0.0 if plan.p2p_overlap else plan.send_s
        nowhere = (False, None)
        sent = False
        for place, task in enumerate(self.tasks):
            kind, chunk = task.kind, task.chunk
            receives, target = self.routes.get((kind, chunk), nowhere)
            if receives:
                yield from self._receive(task, apart=apart, sent=sent)
            elif sent and apart:
                yield Timeout(env, apart)
                spent.pp += apart
            if self.gates and kind == "forward" and chunk in self.gates:
                yield from self._gate(chunk)
            if place == 0 and not plan.optimizer_barrier:
                self._stagger()
            begin = env.now
            if plan.fsdp is not None:
                yield from self._blocks(task)
            else:
                seconds = row[kind][chunk]
                if place in self.last:
                    self._release(chunk, seconds)
                yield Timeout(env, seconds)
                spent.compute += seconds
            if self.shared.recorder is not None:
                self._record("compute", f"{NAMES[kind]}{task.micro_batch}.{chunk}", begin, env.now)
            sent = target is not None
            if target is not None:
                self._send(task, target)
        if sent and apart:
            yield Timeout(env, apart)
            spent.pp += apart

    def _stagger(self) -> None:
        """Without a barrier the stage's step starts when its first task can: forget the wait before it."""
        spent, now = self.spent, self.env.now
        first = self.tasks[0].chunk
        gathers = self.plan.param_gather_s[self.index]
        if self.plan.gather_overlap:
            gathers = gathers[: first + 1] if gathers[first] else ()
        spent.bubble, spent.pp, spent.dp = 0.0, 0.0, sum(gathers)
        spent.offset = now - spent.dp

    def _receive(self, task: Task, *, apart: float, sent: bool) -> Process:
        """Wait for a task's input: the peer's work is bubble, the wire is exposed."""
        env, spent, begin = self.env, self.spent, self.env.now
        key = (task.kind, task.micro_batch, task.chunk)
        message = self.inbox.get(key)
        if message is None:
            self.waiting[key] = told = Event(env)
            yield told
            message = self.inbox[key]
        del self.inbox[key]
        if apart:
            late = env.now - begin
            yield Timeout(env, apart)
            overlap = max(0.0, apart - late) if sent else apart
            spent.pp += 2 * apart - overlap
            spent.bubble += late + overlap - apart
            return
        if message.arrival.callbacks is not None:
            yield message.arrival
        peer = max(message.ended_s, begin)
        spent.bubble += peer - begin
        spent.pp += env.now - peer

    def _send(self, task: Task, target: tuple[int, int]) -> None:
        """Put a task's output on the pipeline stream."""
        env, seconds, now = self.env, self.plan.send_s, self.env.now
        self.spent.link += seconds
        name = f"{NAMES[task.kind]}{task.micro_batch}.{task.chunk} to {target[0]}"
        begin = max(now, self.link_free_s)
        self.link_free_s = begin + seconds
        shared = self.outbox
        arrival = Timeout(env, self.link_free_s - now) if shared is None else shared.put(name, seconds)
        key = (task.kind, task.micro_batch, target[1])
        peer = self.shared.stages[target[0]]
        peer.inbox[key] = _Message(ended_s=now, arrival=arrival)
        told = peer.waiting.pop(key, None)
        if told is not None:
            told.succeed()
        if self.shared.recorder is not None and shared is None:
            self._record("pipeline", name, begin, self.link_free_s)

    def _gate(self, chunk: int) -> Process:
        gate, begin = self.gates.pop(chunk), self.env.now
        if gate.callbacks is not None:
            yield gate
        self.spent.dp += self.env.now - begin

    def _blocks(self, task: Task) -> Process:
        """Run a task block by block, each when its gather is done."""
        env, spent = self.env, self.spent
        for run in next(self.runs):
            gather, begin = self.gathers.popleft(), env.now
            if gather is not None and gather.callbacks is not None:
                yield gather
                spent.dp += env.now - begin
            yield Timeout(env, run.compute_s)
            spent.compute += run.compute_s
            if run.reduce_s > 0:
                self.exchange.put(f"reduce b{run.block}", run.reduce_s)
            if self.ahead:
                self._gather_block()

    def _release(self, chunk: int, seconds: float) -> None:
        """Queue each gradient bucket when the running backward pass has come far enough."""
        buckets = self.plan.grad_bucket_s[self.index][chunk]
        if not self.plan.dp_overlap:
            return

        def put(i: int) -> Callable[[Event], None]:
            def queue(_: Event) -> None:
                self.exchange.put(f"bucket c{chunk}.{i}", buckets[i])

            return queue

        for i in range(len(buckets)):
            ready = Timeout(self.env, seconds * ((i + 1) / len(buckets)))
            ready.callbacks.append(put(i))

    def _close(self) -> Process:
        """Finish the exchange, meet the other stages, update the parameters."""
        env, plan, spent, begin = self.env, self.plan, self.spent, self.env.now
        if not plan.dp_overlap:
            for chunk in self.last.values():
                for i, seconds in enumerate(plan.grad_bucket_s[self.index][chunk]):
                    self.exchange.put(f"bucket c{chunk}.{i}", seconds)
        if self.exchange.process is not None:
            yield self.exchange.process
        spent.dp += env.now - begin
        spent.dp_link = self.exchange.busy_s
        begin = env.now
        if plan.has_tail and self.index in {0, plan.stages - 1}:
            yield self.shared.tail.join()
            met = env.now
            yield Timeout(env, plan.tail_s)
            spent.bubble += met - begin
            spent.dp += plan.tail_s
            spent.dp_link += plan.tail_s
            self._record("data parallel", "tail", met, env.now)
        begin = env.now
        if plan.optimizer_barrier:
            yield self.shared.barrier.join()
            spent.bubble += env.now - begin
        begin = env.now
        yield Timeout(env, plan.optimizer_s[self.index])
        self._record("compute", "optimizer", begin, env.now)
        spent.finish = env.now


def step_events(plan: StepPlan, recorder: Recorder | None = None) -> StepResult:
    """Seconds of one step by events, and where each stage spends them.

    Args:
        plan: durations of the step.
        recorder: takes every span of every stream when given.
    """
    env = simpy.Environment()
    shared = _Shared(
        env=env, plan=plan, recorder=recorder, tail=_Meeting(2, Event(env)), barrier=_Meeting(plan.stages, Event(env))
    )
    shared.stages += [_Stage(shared=shared, stage=s) for s in range(plan.stages)]
    env.run()
    all_spent = [stage.spent for stage in shared.stages]
    finish = [s.finish for s in all_spent if s.finish is not None]
    if len(finish) != plan.stages:
        raise ValueError("the order of work waits for itself")
    step = max(f - s.offset for f, s in zip(finish, all_spent, strict=True))
    rest = [step - (f - s.offset) for f, s in zip(finish, all_spent, strict=True)]
    return StepResult(
        step_s=step,
        compute_busy_s=tuple(s.compute for s in all_spent),
        bubble_s=tuple(s.bubble + r for s, r in zip(all_spent, rest, strict=True)),
        exposed_dp_s=tuple(s.dp for s in all_spent),
        exposed_pp_s=tuple(s.pp for s in all_spent),
        optimizer_s=plan.optimizer_s,
        dp_link_busy_s=tuple(s.dp_link for s in all_spent),
        pp_link_busy_s=tuple(s.link for s in all_spent),
        finish_s=tuple(finish),
    )
