"""One run as SimPy processes: the same rules as `fleet.py`, an incident at a time, to check it against.

Covers failures by rate, detection, restart, manual repair, checkpoints with their durable time, preemption of the gang,
and pauses as shares of running time. What `fleet.py` adds (replacement, spares, peers, predictions, elastic, phases,
maintenance) is not here.
"""

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from planner.simulate.run.plan import RunPlan


@dataclass(slots=True)
class RunTrace:
    """What one run came to; losses and productive time add up to elapsed_s."""

    elapsed_s: float = 0.0
    productive_s: float = 0.0
    failures: int = 0
    preemptions: int = 0
    losses_s: dict[str, float] = field(default_factory=dict)

    def lose(self, name: str, seconds: float) -> None:
        """Add to a loss."""
        self.losses_s[name] = self.losses_s.get(name, 0.0) + seconds


def run_by_events(*, plan: RunPlan, seed: int) -> RunTrace:
    """One replication.

    Args:
        plan: the run; node_sigma and job_sigma are not drawn.
        seed: of its generator.
    """
    env = simpy.Environment()
    job = _Job(env, plan, random.Random(seed))
    env.run(env.process(job.work()))
    job.trace.elapsed_s = env.now
    return job.trace


class _Job:
    """The job's own process and the streams that interrupt it."""

    def __init__(self, env: simpy.Environment, plan: RunPlan, rng: random.Random) -> None:
        self.env, self.plan, self.rng = env, plan, rng
        self.trace = RunTrace()
        peer, evaluation, data = plan.overhead_parts
        self.keep_frac = 1 - peer - evaluation - data
        self.evaluation_frac, self.data_frac = evaluation, data
        self.usable_s = 0.0  # productive time that a usable checkpoint holds

    def _next_failure_s(self) -> float:
        rate = self.plan.failures_per_s
        return self.rng.expovariate(rate) if rate else math.inf

    def _next_preemption_s(self) -> float:
        rate = self.plan.preemptions_per_s
        return self.rng.expovariate(rate) if rate else math.inf

    def work(self) -> Generator[Any, Any, None]:
        plan, trace = self.plan, self.trace
        while trace.productive_s < plan.work_s * (1 - 1e-9):
            failure_s, preemption_s = self._next_failure_s(), self._next_preemption_s()
            stopped = yield self.env.process(self._cycles(until_s=min(failure_s, preemption_s)))
            if not stopped:
                break
            lost = trace.productive_s - self.usable_s
            trace.productive_s = self.usable_s
            trace.lose("lost_work", lost)
            if preemption_s < failure_s:
                trace.preemptions += 1
                yield from self._spend("preempted", self.rng.expovariate(1 / plan.preemption_wait_s))
                yield from self._recover(detect=False)
            else:
                trace.failures += 1
                yield from self._recover(detect=True)

    def _cycles(self, *, until_s: float) -> Generator[Any, Any, bool]:
        """Run and checkpoint until an incident or the end; True = incident."""
        plan, trace = self.plan, self.trace
        end = self.env.now + until_s
        pending: list[tuple[float, float]] = []  # (usable at, productive time it holds)
        stopped = False
        while trace.productive_s < plan.work_s * (1 - 1e-9):
            run_s = min(plan.interval_s, (plan.work_s - trace.productive_s) / self.keep_frac)
            done = yield from self._until(end, run_s)
            trace.productive_s += done * self.keep_frac
            trace.lose("evaluation", done * self.evaluation_frac)
            trace.lose("data", done * self.data_frac)
            if done < run_s:
                stopped = True
                break
            if trace.productive_s >= plan.work_s * (1 - 1e-9):
                break
            stalled = yield from self._until(end, plan.stall_s)
            trace.lose("checkpoint", stalled)
            if stalled < plan.stall_s:
                stopped = True
                break
            pending.append((self.env.now + plan.late_s, trace.productive_s))
        for usable_at, held in pending:
            if usable_at <= self.env.now:
                self.usable_s = held
        return stopped

    def _until(self, end: float, seconds: float) -> Generator[Any, Any, float]:
        """Wait, at most until `end`; returns the time spent."""
        spent = min(seconds, max(0.0, end - self.env.now))
        yield self.env.timeout(spent)
        return spent

    def _spend(self, name: str, seconds: float) -> Generator[Any, Any, None]:
        yield self.env.timeout(seconds)
        self.trace.lose(name, seconds)

    def _recover(self, *, detect: bool) -> Generator[Any, Any, None]:
        """Detection, replacement and restart; a failure in that time begins them again."""
        plan = self.plan
        while True:
            hit_s = self._next_failure_s()
            ready = plan.ready_s
            if detect and self.rng.random() >= plan.automatic_frac:
                draw = self.rng.gauss(0.0, plan.manual_sigma)
                ready += plan.manual_s * math.exp(draw - plan.manual_sigma**2 / 2)
            detection = plan.detection_s if detect else 0.0
            spent = min(hit_s, detection + ready)
            yield self.env.timeout(spent)
            self.trace.lose("detection", min(spent, detection))
            self.trace.lose("restart", max(0.0, spent - detection))
            if hit_s >= detection + ready:
                return
            self.trace.failures += 1
            detect = True
