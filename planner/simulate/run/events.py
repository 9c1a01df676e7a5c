"""One run as SimPy processes: the rules of `fleet.py`, an incident at a time, to read them and to check it against.

Streams of failures, slow nodes, false alarms, loss spikes and preemptions interrupt one training process, which runs,
checkpoints, loses work and recovers.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy

from planner.catalog.reliability import FAILURE_CAUSES
from planner.simulate.run.fleet import HORIZON_FACTOR, RATE_Z
from planner.simulate.run.plan import COUNTED, HARDWARE, LOSSES, RunPlan

Process = Generator[Any, Any, None]


@dataclass(slots=True)
class RunTrace:
    """What one run came to; losses and productive time add up to elapsed_s. `log` holds (seconds, cause)."""

    elapsed_s: float = 0.0
    productive_s: float = 0.0
    losses_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LOSSES, 0.0))
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    log: list[tuple[float, str]] = field(default_factory=list)


def run_by_events(*, plan: RunPlan, seed: int) -> RunTrace:
    """One replication, to the last token or to the horizon of `fleet.py`.

    Args:
        plan: the run.
        seed: of its generator.
    """
    job = _Job(plan, seed)
    job.env.run(until=job.env.any_of([job.training, job.env.timeout(HORIZON_FACTOR * plan.work_s + 86_400.0)]))
    job.trace.elapsed_s, job.trace.productive_s = job.env.now, job.done
    return job.trace


class _Job:
    """Clock, progress, the training process and the streams that interrupt it."""

    def __init__(self, plan: RunPlan, seed: int) -> None:
        self.plan, self.env, self.trace = plan, simpy.Environment(), RunTrace()
        self.rng = np.random.default_rng(seed)
        self.done = self.usable = 0.0  # productive seconds: reached, and in the newest usable checkpoint
        self.ran = self.usable_ran = self.taken_ran = 0.0  # running seconds: so far, there, at the last checkpoint
        self.life = 0  # a checkpoint of a life that ended never becomes usable
        self.phase = "down"  # running, recovering (only failures strike) or down (nothing does)
        self.maintenance_at = self.slow_until = self.on_demand_at = math.inf
        self.spares = [0.0] * (plan.spares or 0)
        self.away: list[float] = []
        z = np.clip(self.rng.standard_normal(2), -RATE_Z, RATE_Z)
        self.training = self.env.process(self._train())
        for kind, rate in (
            ("node", plan.node_failures_per_s * math.exp(plan.node_sigma * z[0]) * plan.nodes),
            ("job", plan.job_failures_per_s * math.exp(plan.job_sigma * z[1])),
            ("slow", plan.slow_per_node_s * plan.nodes),
            ("false_alarm", plan.false_alarms_per_s),
            ("spike", plan.spikes_per_s),
            ("preemption", plan.preemptions_per_s),
        ):
            if rate > 0:
                self.env.process(self._stream(kind, rate))

    def _stream(self, kind: str, rate: float) -> Process:
        """A Poisson stream; memoryless, so what falls into a time when it cannot strike is simply dropped."""
        infant = self.plan.infant_factor if kind == "node" else 0.0
        strikes = ("running", "recovering") if kind in {"node", "job"} else ("running",)
        while True:
            yield self.env.timeout(self.rng.exponential(1 / (rate * (1 + infant))))
            keep = (1 + infant * math.exp(-self.env.now / self.plan.infant_s)) / (1 + infant)
            if kind in {"node", "slow"} and self.phase == "running":
                keep *= self._size()
            on_demand = kind == "preemption" and self.env.now >= self.on_demand_at
            if self.phase in strikes and not on_demand and self.rng.random() < keep:
                self.training.interrupt(kind)

    def _size(self) -> float:
        p = self.plan
        return p.warmup_nodes_frac if self.done < p.warmup_work_frac * p.work_s * (1 - 1e-9) else 1.0

    def _lose(self, bucket: str, seconds: float) -> None:
        self.trace.losses_s[bucket] += seconds

    def _count(self, cause: str) -> None:
        self.trace.counts[cause] += 1
        self.trace.log.append((self.env.now, cause))

    # Running.

    def _train(self) -> Process:
        p, env = self.plan, self.env
        queue = self.rng.exponential(p.queue_s) if p.queue_s else 0.0
        yield env.timeout(queue + p.startup_s)
        self._lose("queue", queue)
        self._lose("startup", p.startup_s)
        self.maintenance_at = env.now + p.maintenance_interval_s
        while not self._through():
            try:
                self.phase = "running"
                yield from self._run()
                if self.ran - self.taken_ran >= p.interval_s * (1 - 1e-9) and not self._through():
                    yield from self._checkpoint()
                self.phase = "down"
                yield from self._appointments()
            except simpy.Interrupt as interrupt:
                self.phase = "down"
                yield from self._serve(str(interrupt.cause))

    def _through(self) -> bool:
        return self.done >= self.plan.work_s * (1 - 1e-9)

    def _run(self) -> Process:
        """Run until the next checkpoint, change of speed, appointment or the last token."""
        p, env = self.plan, self.env
        peer, evaluation, data = p.overhead_parts
        keep = 1 - peer - evaluation - data
        size = self._size()
        self.away = [t for t in self.away if t > env.now]
        full = max(0.0, size - len(self.away) * p.unit_nodes / p.nodes)
        slow = p.slow_frac if env.now < self.slow_until < math.inf else 0.0
        speed = full * (1 - slow) * keep
        goal = p.work_s if size == 1.0 else p.warmup_work_frac * p.work_s
        ends = [self.taken_ran + p.interval_s - self.ran, self.maintenance_at - env.now, self.slow_until - env.now]
        ends += [t - env.now for t in self.away]
        ends += [(goal - self.done) / speed] if speed > 0 else []
        start, span = env.now, max(0.0, min(ends))
        ran = span
        try:
            yield env.timeout(span)
        except simpy.Interrupt:
            ran = env.now - start
            raise
        finally:
            self.ran += ran
            self.done += ran * speed
            for bucket, frac in (("checkpoint", peer), ("evaluation", evaluation), ("data", data)):
                self._lose(bucket, frac * ran)
            self._lose("fail_slow", ran * keep * full * slow)
            self._lose("shrunk", ran * keep * (1 - full))

    def _checkpoint(self) -> Process:
        start = self.env.now
        try:
            yield self.env.timeout(self.plan.stall_s)
        finally:
            self._lose("checkpoint", self.env.now - start)
        self.taken_ran = self.ran
        self.env.process(self._becomes_usable(self.done, self.ran, self.life))

    def _becomes_usable(self, done: float, ran: float, life: int) -> Process:
        yield self.env.timeout(self.plan.late_s)
        if life == self.life:
            self.usable, self.usable_ran = done, ran

    def _appointments(self) -> Process:
        """Maintenance, a slow node found out, a missing unit back: stops that were seen coming."""
        p, now = self.plan, self.env.now
        if now >= self.maintenance_at:
            yield from self._leave(wait_s=p.maintenance_s)
            self.maintenance_at = now + p.maintenance_s + p.maintenance_interval_s
        elif now >= self.slow_until:
            self.slow_until = math.inf
            yield from self._leave()
        elif any(t <= now for t in self.away):
            yield from self._recover(ready_s=p.resize_s)

    # What stops it.

    def _serve(self, kind: str) -> Process:
        p = self.plan
        if kind in {"node", "job"}:
            yield from self._fail(job=kind == "job")
        elif kind == "slow":
            since = self.env.now if self.slow_until == math.inf else self.slow_until
            self.slow_until = since + p.slow_detection_s
        elif kind == "false_alarm":
            yield from self._leave()
        elif kind == "spike":
            self._count("software")
            self._roll_back(min(self.done, max(self.done - self.usable, p.spike_rollback_s)), "rollback")
            yield from self._recover(ready_s=p.ready_s)
        else:
            yield from self._preempted()

    def _roll_back(self, seconds: float, bucket: str) -> None:
        """Lose productive work; what is left counts as saved."""
        self._lose(bucket, seconds)
        self.done -= seconds
        self.usable, self.usable_ran, self.taken_ran = self.done, self.ran, self.ran
        self.life += 1

    def _leave(self, wait_s: float = 0.0) -> Process:
        """A stop seen coming: a checkpoint first, nothing lost."""
        self._count("planned")
        yield from self._save()
        yield from self._recover(wait_s=wait_s, wait_bucket="planned", ready_s=self.plan.ready_s)

    def _save(self) -> Process:
        yield self.env.timeout(self.plan.stall_s)
        self._lose("checkpoint", self.plan.stall_s)
        self._roll_back(0.0, "lost_work")

    def _preempted(self) -> Process:
        p, now = self.plan, self.env.now
        self._count("preemption")
        saved = p.notice_s >= max(p.durable_s, p.stall_s)
        self._roll_back(0.0 if saved else self.done - self.usable, "lost_work")
        wait = self.rng.exponential(p.preemption_wait_s) if p.preemption_wait_s else 0.0
        if p.deadline_s is not None:
            need = (p.work_s - self.done) / (1 - sum(p.overhead_parts)) * (1 + p.stall_s / p.interval_s)
            slack = max(0.0, p.deadline_s - now - need - 2 * p.ready_s)
            if wait >= slack:
                self.on_demand_at, wait = now + slack, slack
        yield from self._recover(wait_s=wait, wait_bucket="preempted", ready_s=p.ready_s)

    def _fail(self, *, job: bool) -> Process:
        p, rng = self.plan, self.rng
        cause = self._cause(job)
        self.slow_until = math.inf
        seen = cause in HARDWARE and rng.random() < p.recall
        peer = False
        if seen:
            yield from self._save()
        else:
            peer = p.peer_interval_s is not None and rng.random() < p.peer_frac
            if peer:
                self._back_to_peer()
            else:
                self._roll_back(self.done - self.usable, "lost_work")
        if rng.random() < p.silent_frac:
            self._roll_back(min(self.done, p.silent_s), "rollback")
        detect, wait, ready = self._recovery(cause)
        yield from self._recover(
            detect_s=0.0 if seen else detect, wait_s=wait, ready_s=ready - (p.load_s if peer else 0.0)
        )

    def _back_to_peer(self) -> None:
        """Back to the newest copy in a peer's memory, which the next failure may not survive."""
        p, since = self.plan, self.ran - self.usable_ran
        lost_ran = since % (p.peer_interval_s or math.inf)
        lost = (self.done - self.usable) * lost_ran / since if since > 0 else 0.0
        self._lose("lost_work", lost)
        self.done -= lost
        self.ran -= lost_ran
        if math.isfinite(p.interval_s):
            self.taken_ran = self.usable_ran + (self.ran - self.usable_ran) // p.interval_s * p.interval_s

    # Getting going again.

    def _cause(self, job: bool) -> str:
        shares = np.array(self.plan.shares) / sum(self.plan.shares)
        cause = "software" if job else str(FAILURE_CAUSES[self.rng.choice(len(shares), p=shares)])
        self._count(cause)
        return cause

    def _recovery(self, cause: str) -> tuple[float, float, float]:
        """Detection, wait for nodes, and restart with what a person adds."""
        p, rng = self.plan, self.rng
        ready = p.ready_s
        if rng.random() >= p.automatic_frac:
            ready += p.manual_s * rng.lognormal(-(p.manual_sigma**2) / 2, p.manual_sigma)
        needs_node = cause in HARDWARE and (p.spares is not None or p.replacement_s > 0)
        return p.detection_s, self._replacement(cause) if needs_node else 0.0, ready

    def _replacement(self, cause: str) -> float:
        """Wait until the failed nodes are replaced; an elastic job shrinks instead."""
        p, rng, now = self.plan, self.rng, self.env.now
        ready_at = now + p.replacement_s * rng.lognormal(-(p.replacement_sigma**2) / 2, p.replacement_sigma)
        if p.spares is not None:
            rack = cause in {"network", "host"} and rng.random() < p.rack_frac
            spare_at = max(self._spare() for _ in range(p.rack_nodes if rack else 1))
            ready_at = min(ready_at, max(now, spare_at)) if p.replacement_s > 0 else max(now, spare_at)
        missing = len([t for t in self.away if t > now])
        if p.elastic and ready_at > now and missing < 16 and (missing + 1) * p.unit_nodes < p.nodes:
            self.away.append(ready_at)
            return 0.0
        return max(0.0, ready_at - now)

    def _spare(self) -> float:
        """When a spare, or the failed node itself, is ready; the failed node joins the spares once repaired."""
        p, now = self.plan, self.env.now
        repaired = now + p.repair_median_s * self.rng.lognormal(0.0, p.repair_sigma)
        if not self.spares:
            return repaired
        earliest = min(self.spares)
        if repaired >= earliest and (earliest <= now or p.replacement_s == 0):
            self.spares[self.spares.index(earliest)] = repaired
        return min(repaired, earliest)

    def _recover(
        self, *, detect_s: float = 0.0, wait_s: float = 0.0, wait_bucket: str = "replacement", ready_s: float
    ) -> Process:
        """Serve the phases of a recovery; a failure in that time begins it again."""
        phases = {"detection": detect_s, wait_bucket: wait_s, "restart": ready_s}
        while sum(phases.values()) > 0:
            try:
                for bucket in phases:
                    yield from self._spend(bucket, phases)
            except simpy.Interrupt as interrupt:
                self.phase = "down"
                left = phases.get("replacement", 0.0)
                detect, fresh, ready = self._recovery(self._cause(str(interrupt.cause) == "job"))
                phases = {"detection": detect, "replacement": max(left, fresh), "restart": ready}
        self.phase = "down"

    def _spend(self, bucket: str, phases: dict[str, float]) -> Process:
        """Serve one phase, or the part of it before an interrupt."""
        self.phase = "down" if bucket in {"planned", "preempted"} else "recovering"
        start, seconds = self.env.now, phases[bucket]
        spent = seconds
        try:
            yield self.env.timeout(seconds)
        except simpy.Interrupt:
            spent = self.env.now - start
            raise
        finally:
            self._lose(bucket, spent)
            phases[bucket] = max(0.0, seconds - spent)
