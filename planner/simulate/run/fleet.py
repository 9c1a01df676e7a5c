"""Many replications of a run at once: numpy over replications, one pass an incident, closed form in between.

Rules (the same ones, one replication by events, in `events.py`):

- Failures, slow nodes, false alarms, loss spikes and preemptions arrive as independent Poisson streams while the job
  runs, each at its rate at the start of a pass, which a time bin bounds. Each replication draws its cluster's rates
  once.
- Between incidents the run cycles: `interval_s` of running, then `stall_s` of checkpoint, usable `late_s` after that.
- A failure loses what no usable checkpoint holds, then costs detection, replacement and restart; another failure in
  that time starts the recovery again.
- Every elapsed second goes to exactly one of productive work and LOSSES.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.catalog.reliability import FAILURE_CAUSES
from planner.simulate.run.plan import COUNTED, HARDWARE, LOSSES, RunPlan

F = NDArray[np.float64]
B = NDArray[np.bool_]
Index = NDArray[np.int64]
AT = {name: i for i, name in enumerate(LOSSES)}
COUNT = {name: i for i, name in enumerate(COUNTED)}
TAKES_NODE = np.array([c in HARDWARE for c in FAILURE_CAUSES])
IN_RACK = np.array([c in {"network", "host"} for c in FAILURE_CAUSES])
BINS = 20
# A run that is not through after this many times its ideal duration is reported as not finishing.
HORIZON_FACTOR = 4.0
# Clusters beyond P1 and P99 of the published spread are not drawn: a rate ten times the median is not a cluster anybody
# would go on with.
RATE_Z = 2.326


@dataclass(frozen=True, slots=True)
class RunSamples:
    """Outcomes by replication.

    Attributes:
        elapsed_s: (replications,) from the request for nodes to the last token, or to the horizon.
        productive_s: (replications,) equals `work_s` where finished.
        losses_s: (replications, len(LOSSES)); with productive_s they add up to elapsed_s.
        counts: (replications, len(COUNTED)) incidents by cause.
        node_s: (replications,) node-seconds held, spares included, queue not.
        on_demand_s: (replications,) part of elapsed_s after leaving spot.
        finished: (replications,) whether the last token came before the horizon.
        bin_s: width of a time bin of `utilization`, shape (BINS,): productive share of the runs still going.
    """

    elapsed_s: F
    productive_s: F
    losses_s: F
    counts: F
    node_s: F
    on_demand_s: F
    finished: B
    bin_s: float
    utilization: F


@dataclass(slots=True)
class _State:
    """One row a replication that is still going."""

    row: NDArray[np.int64]
    now: F
    done: F
    at: F  # time into the checkpoint cycles since the newest usable checkpoint
    ran: F  # running time that no usable checkpoint holds
    open: F  # productive part of `ran`
    node_rate: F
    job_rate: F
    slow_until: F
    next_maintenance: F
    on_demand_at: F
    losses: F
    counts: F
    spares: F  # (n, spares) when each spare is ready
    away: F  # (n, slots) when each missing unit is back
    node_s: F
    down: B  # in a recovery that another failure began again
    detect: F
    wait: F
    ready: F
    wait_at: Index

    def keep(self, mask: B) -> "_State":
        """The rows of a mask."""
        return _State(*(getattr(self, f.name)[mask] for f in fields(self)))


def simulate_runs(
    *, plan: RunPlan, replications: int, seed: int, horizon_s: float | None = None, max_passes: int = 200_000
) -> RunSamples:
    """Monte Carlo of a run.

    Args:
        plan: the run.
        replications: how many.
        seed: of the generator; the same seed gives the same samples.
        horizon_s: stop here whether finished or not (to count incidents in a window); None = HORIZON_FACTOR x work.
        max_passes: guard against a run that cannot progress.
    """
    return _Fleet(plan, replications, seed, horizon_s).simulate(max_passes)


class _Fleet:
    """The loop and its constants."""

    def __init__(self, plan: RunPlan, replications: int, seed: int, horizon_s: float | None) -> None:
        self.plan = plan
        self.rng = np.random.default_rng(seed)
        self.horizon_s = horizon_s if horizon_s is not None else HORIZON_FACTOR * plan.work_s + 86_400.0
        peer, evaluation, data = plan.overhead_parts
        self.parts = (peer, evaluation, data)
        self.keep_frac = 1 - peer - evaluation - data
        self.bin_s = min(1.5 * plan.work_s + plan.queue_s, self.horizon_s) / BINS
        self.busy = np.zeros(BINS)
        self.alive = np.zeros(BINS)
        n = replications
        self.out = RunSamples(
            np.zeros(n),
            np.zeros(n),
            np.zeros((n, len(LOSSES))),
            np.zeros((n, len(COUNTED))),
            np.zeros(n),
            np.zeros(n),
            np.zeros(n, dtype=bool),
            self.bin_s,
            self.busy,
        )
        self.state = self._start(n)

    def _start(self, n: int) -> _State:
        p, rng = self.plan, self.rng
        node = p.node_failures_per_s * np.exp(p.node_sigma * np.clip(rng.standard_normal(n), -RATE_Z, RATE_Z))
        job = p.job_failures_per_s * np.exp(p.job_sigma * np.clip(rng.standard_normal(n), -RATE_Z, RATE_Z))
        queue = rng.exponential(1.0, n) * p.queue_s
        losses = np.zeros((n, len(LOSSES)))
        losses[:, AT["queue"]] = queue
        losses[:, AT["startup"]] = p.startup_s
        now = queue + p.startup_s
        return _State(
            row=np.arange(n),
            now=now,
            done=np.zeros(n),
            at=np.zeros(n),
            ran=np.zeros(n),
            open=np.zeros(n),
            node_rate=node,
            job_rate=job,
            slow_until=np.zeros(n),
            next_maintenance=now + p.maintenance_interval_s,
            on_demand_at=np.full(n, np.inf),
            losses=losses,
            counts=np.zeros((n, len(COUNTED))),
            spares=np.zeros((n, p.spares or 0)),
            away=np.full((n, 16 if p.elastic else 0), -np.inf),
            node_s=np.zeros(n),
            down=np.zeros(n, dtype=bool),
            detect=np.zeros(n),
            wait=np.zeros(n),
            ready=np.zeros(n),
            wait_at=np.full(n, AT["replacement"]),
        )

    def simulate(self, max_passes: int) -> RunSamples:
        for _ in range(max_passes):
            s = self.state
            if not s.row.size:
                break
            self._pass()
            ended = (self.plan.work_s - s.done <= 1e-6 * self.plan.work_s) | (s.now >= self.horizon_s)
            # Rows that ended stay in the arrays until enough gather: copying each time would cost more.
            if ended.any():
                self._store(ended)
        if self.state.row.size:
            self._store(np.ones(self.state.row.size, dtype=bool))
        np.divide(self.busy, self.alive, out=self.busy, where=self.alive > 0)
        return self.out

    def _store(self, ended: B) -> None:
        s, o, p = self.state, self.out, self.plan
        rows = s.row[ended]
        o.elapsed_s[rows] = s.now[ended]
        o.productive_s[rows] = s.done[ended]
        o.losses_s[rows] = s.losses[ended]
        o.counts[rows] = s.counts[ended]
        o.node_s[rows] = s.node_s[ended] + (p.spares or 0) * (s.now[ended] - s.losses[ended, AT["queue"]])
        o.on_demand_s[rows] = np.maximum(0.0, s.now[ended] - s.on_demand_at[ended])
        o.finished[rows] = p.work_s - s.done[ended] <= 1e-6 * p.work_s
        self.state = s.keep(~ended)

    # One pass: each replication runs until its next incident and serves it, or goes on with a recovery hit again.
    # Serving such chains in an inner loop would make every pass as long as the unluckiest replication.

    def _infant(self, t: F) -> F | float:
        if self.plan.infant_factor == 0:
            return 1.0
        return 1 + self.plan.infant_factor * np.exp(-t / self.plan.infant_s)

    def _size(self) -> tuple[F | float, F]:
        """Share of the nodes in use and speed of the job."""
        p, s = self.plan, self.state
        size: F | float = 1.0
        if p.warmup_work_frac > 0:
            size = np.where(s.done < p.warmup_work_frac * p.work_s * (1 - 1e-9), p.warmup_nodes_frac, 1.0)
        missing: F | float = 0.0
        if p.elastic:
            missing = (s.away > s.now[:, None]).sum(axis=1) * p.unit_nodes / p.nodes
        speed = np.maximum(0.0, size - missing) * np.where(s.slow_until > s.now, 1 - p.slow_frac, 1.0)
        return size, speed

    def _pass(self) -> None:
        p, s, rng = self.plan, self.state, self.rng
        n = s.row.size
        size, speed = self._size()
        nodes = p.nodes * size
        spot = (s.on_demand_at > s.now) if p.preemptions_per_s else np.zeros(n, dtype=bool)
        ones = np.ones(n)
        rates = np.stack(
            [
                s.node_rate * nodes * self._infant(s.now),
                s.job_rate,
                p.slow_per_node_s * nodes * ones,
                p.false_alarms_per_s * ones,
                p.spikes_per_s * ones,
                p.preemptions_per_s * spot,
            ]
        )
        edges = np.cumsum(rates, axis=0)
        total = edges[-1]
        with np.errstate(divide="ignore", over="ignore"):
            random_s = np.where(total > 0, rng.exponential(1.0, n) / total, np.inf)
        productive_frac = speed * self.keep_frac
        soft = self._until_soft(productive_frac=productive_frac)
        step = np.minimum(random_s, soft)
        step = np.minimum(step, np.maximum(0.0, s.next_maintenance - s.now))
        finish = self._until(work=p.work_s - s.done, productive_frac=productive_frac)
        step = np.minimum(np.minimum(step, finish), np.maximum(0.0, self.horizon_s - s.now))
        through = ~s.down & (step >= finish)
        stop = ~through & ~s.down & (s.now + step < self.horizon_s)
        planned = stop & (s.now + step >= s.next_maintenance)
        incident = stop & ~planned & (random_s <= step)
        self._advance(step=np.where(s.down, 0.0, step), speed=speed, size=size, through=through)
        self._serve(edges=edges, incident=incident, planned=planned)

    def _until(self, *, work: F, productive_frac: F) -> F:
        """Elapsed time until `work` more productive seconds are done, checkpoints included."""
        p, s = self.plan, self.state
        with np.errstate(divide="ignore", invalid="ignore"):
            running = np.where(productive_frac > 0, work / productive_frac, np.inf)
        if not np.isfinite(p.interval_s):
            return np.asarray(running)
        end = s.at - self._stalls(s.at) + running
        with np.errstate(invalid="ignore"):
            stalls = np.maximum(0.0, np.ceil(end / p.interval_s - 1e-12) - 1)
        return np.asarray(np.maximum(0.0, end + stalls * p.stall_s - s.at))

    def _stalls(self, at: F) -> F:
        """Time in checkpoint stalls of the first `at` seconds of the cycles."""
        p = self.plan
        if not np.isfinite(p.interval_s):
            return np.zeros_like(at)
        whole = np.floor(at / p.cycle_s)
        return whole * p.stall_s + np.maximum(0.0, at - whole * p.cycle_s - p.interval_s)

    def _until_soft(self, *, productive_frac: F) -> F:
        """Next change of speed or of time bin, which is no incident."""
        p, s = self.plan, self.state
        soft = (np.floor(s.now / self.bin_s) + 1) * self.bin_s * (1 + 1e-12) - s.now
        if p.slow_per_node_s > 0:
            soft = np.where(s.slow_until > s.now, np.minimum(soft, s.slow_until - s.now), soft)
        if p.elastic:
            back = np.where(s.away > s.now[:, None], s.away, np.inf).min(axis=1)
            soft = np.minimum(soft, back - s.now)
        if p.warmup_work_frac > 0:
            left = p.warmup_work_frac * p.work_s - s.done
            until = self._until(work=np.maximum(left, 0.0), productive_frac=productive_frac)
            soft = np.where(left > 1e-9 * p.work_s, np.minimum(soft, until), soft)
        return np.maximum(soft, 1e-6)

    def _advance(self, *, step: F, speed: F, size: Any, through: B) -> None:
        p, s = self.plan, self.state
        end = s.at + step
        stalled = self._stalls(end) - self._stalls(s.at)
        running = np.maximum(0.0, step - stalled)
        useful = running * self.keep_frac
        productive = np.where(through, p.work_s - s.done, useful * speed)
        slow = np.where(s.slow_until > s.now, p.slow_frac, 0.0)
        full = np.divide(speed, 1 - slow, out=np.zeros_like(speed), where=slow < 1)
        peer, evaluation, data = self.parts
        s.losses[:, AT["checkpoint"]] += stalled + peer * running
        s.losses[:, AT["evaluation"]] += evaluation * running
        s.losses[:, AT["data"]] += data * running
        s.losses[:, AT["fail_slow"]] += useful * full * slow
        # What is left over keeps the sum exact.
        s.losses[:, AT["shrunk"]] += useful - productive - useful * full * slow
        usable = held = np.zeros_like(end)
        if np.isfinite(p.interval_s):
            usable = np.maximum(0.0, np.floor((end - p.late_s) / p.cycle_s + 1e-12))
            held = usable * p.interval_s
        ran = np.maximum(0.0, s.ran + running - held)
        before = np.divide(s.open, s.ran, out=np.zeros_like(ran), where=s.ran > 0)
        s.open = np.where(
            ran <= running, ran * speed * self.keep_frac, productive + np.maximum(0.0, ran - running) * before
        )
        s.ran = ran
        s.at = np.maximum(0.0, end - usable * p.cycle_s) if np.isfinite(p.interval_s) else end
        s.done = s.done + productive
        s.node_s += step * p.nodes * size
        self._tally(now=s.now, step=step, productive=productive)
        s.now = s.now + step

    def _tally(self, *, now: F, step: F, productive: F | float) -> None:
        at = np.minimum(((now + step / 2) / self.bin_s).astype(np.int64), BINS - 1)
        self.alive += np.bincount(at, weights=step, minlength=BINS)
        if np.any(productive):
            self.busy += np.bincount(at, weights=productive * np.ones_like(step), minlength=BINS)

    def _serve(self, *, edges: F, incident: B, planned: B) -> None:
        """Losses and recovery of whatever stopped each replication."""
        p, s, rng = self.plan, self.state, self.rng
        n = s.row.size
        pick = rng.random(n) * edges[-1]
        kind = (pick[None, :] >= edges).sum(axis=0)
        kind = np.where(incident, kind, -1)
        failed = (kind == 0) | (kind == 1)
        wait_at = np.full(n, AT["replacement"])
        detect, wait, ready = np.zeros(n), np.zeros(n), np.zeros(n)
        if failed.any():
            detect, wait, ready = self._fail(failed=failed, job=kind == 1)
        if p.slow_per_node_s > 0:
            onset = kind == 2
            s.slow_until = np.where(onset, np.maximum(s.slow_until, s.now) + p.slow_detection_s, s.slow_until)
            caught = ~failed & ~s.down & (s.slow_until > 0) & (s.slow_until <= s.now + 1e-6)
            s.slow_until = np.where(caught | failed, 0.0, s.slow_until)
            ready = np.where(caught, ready + self._leave(caught), ready)
        if p.false_alarms_per_s:
            ready = np.where(kind == 3, self._leave(kind == 3), ready)
        if p.spikes_per_s:
            ready = np.where(kind == 4, self._spike(kind == 4), ready)
        if p.preemptions_per_s:
            gone = kind == 5
            wait = np.where(gone, self._preempt(gone), wait)
            ready = np.where(gone, p.ready_s, ready)
            wait_at = np.where(gone, AT["preempted"], wait_at)
        if planned.any():
            wait = np.where(planned, p.maintenance_s, wait)
            ready = np.where(planned, self._leave(planned), ready)
            wait_at = np.where(planned, AT["planned"], wait_at)
            s.next_maintenance = np.where(
                planned, s.now + p.maintenance_s + p.maintenance_interval_s, s.next_maintenance
            )
        if p.elastic:
            back = ~s.down & (np.abs(s.away - s.now[:, None]) < 1e-3).any(axis=1)
            ready = np.where(back, np.maximum(ready, p.resize_s), ready)
        s.detect, s.wait, s.ready = (
            np.where(s.down, old, new) for old, new in ((s.detect, detect), (s.wait, wait), (s.ready, ready))
        )
        s.wait_at = np.where(s.down, s.wait_at, wait_at)
        self._recover()

    def _leave(self, mask: B) -> F:
        """A stop that was seen coming: a checkpoint first, nothing lost. Returns the restart time."""
        p, s = self.plan, self.state
        s.counts[:, COUNT["planned"]] += mask
        stall = np.where(mask, p.stall_s, 0.0)
        s.losses[:, AT["checkpoint"]] += stall
        self._tally(now=s.now, step=stall, productive=0.0)
        s.node_s += stall * p.nodes
        s.now = s.now + stall
        self._saved(mask)
        return np.full(s.row.size, p.ready_s)

    def _saved(self, mask: B) -> None:
        s = self.state
        s.at, s.ran, s.open = (np.where(mask, 0.0, x) for x in (s.at, s.ran, s.open))

    def _roll_back(self, *, lost: F, bucket: str) -> None:
        s = self.state
        s.done = s.done - lost
        s.losses[:, AT[bucket]] += lost
        at = np.minimum((s.now / self.bin_s).astype(np.int64), BINS - 1)
        self.busy -= np.bincount(at, weights=lost, minlength=BINS)

    def _spike(self, mask: B) -> F:
        """A diverging loss: back by the stated work, to a usable checkpoint."""
        p, s = self.plan, self.state
        s.counts[:, COUNT["software"]] += mask
        lost = np.where(mask, np.minimum(s.done, np.maximum(s.open, p.spike_rollback_s)), 0.0)
        self._roll_back(lost=lost, bucket="rollback")
        self._saved(mask)
        return np.full(s.row.size, p.ready_s)

    def _preempt(self, mask: B) -> F:
        """The gang is taken; a notice long enough for a usable checkpoint saves the work. Returns the wait."""
        p, s = self.plan, self.state
        s.counts[:, COUNT["preemption"]] += mask
        if p.notice_s < max(p.durable_s, p.stall_s):
            self._roll_back(lost=np.where(mask, s.open, 0.0), bucket="lost_work")
        self._saved(mask)
        wait = self.rng.exponential(1.0, s.row.size) * p.preemption_wait_s
        if p.deadline_s is not None:
            need = (p.work_s - s.done) / self.keep_frac * (1 + p.stall_s / p.interval_s) + 2 * p.ready_s
            slack = np.maximum(0.0, p.deadline_s - s.now - need)
            switch = mask & (wait >= slack)
            wait = np.where(switch, slack, wait)
            s.on_demand_at = np.where(switch, s.now + slack, s.on_demand_at)
        return wait

    def _fail(self, *, failed: B, job: B) -> tuple[F, F, F]:
        """Loses work, finds nodes. Returns detection, wait for a node and restart time."""
        p, s, rng = self.plan, self.state, self.rng
        n = s.row.size
        rows = np.flatnonzero(failed)
        cause = self._count(rows=rows, job=job[rows])
        hardware = np.zeros(n, dtype=bool)
        hardware[rows] = TAKES_NODE[cause]
        seen = hardware & (rng.random(n) < p.recall) if p.recall else np.zeros(n, dtype=bool)
        keep = np.zeros(n)
        peer = np.zeros(n, dtype=bool)
        if p.peer_interval_s:
            peer = failed & ~seen & (rng.random(n) < p.peer_frac)
            lost_run = np.mod(s.ran, p.peer_interval_s)
            keep = np.where(peer, 1 - np.divide(lost_run, s.ran, out=np.zeros(n), where=s.ran > 0), 0.0)
        self._roll_back(lost=np.where(failed & ~seen, s.open * (1 - keep), 0.0), bucket="lost_work")
        s.losses[:, AT["checkpoint"]] += np.where(seen, p.stall_s, 0.0)
        s.node_s += np.where(seen, p.stall_s, 0.0) * p.nodes
        s.now = s.now + np.where(seen, p.stall_s, 0.0)
        s.open, s.ran = np.where(failed, s.open * keep, s.open), np.where(failed, s.ran * keep, s.ran)
        self._saved(seen)
        position = s.ran + (np.floor(s.ran / p.interval_s) * p.stall_s if np.isfinite(p.interval_s) else 0.0)
        s.at = np.where(failed, position, s.at)
        if p.silent_frac:
            silent = failed & (rng.random(n) < p.silent_frac)
            self._roll_back(lost=np.where(silent, np.minimum(s.done - s.open, p.silent_s), 0.0), bucket="rollback")
        detect, wait, ready = np.zeros(n), np.zeros(n), np.zeros(n)
        detect[rows], wait[rows], ready[rows] = self._recovery(rows=rows, cause=cause)
        return np.where(seen, 0.0, detect), wait, np.where(peer, ready - p.load_s, ready)

    def _count(self, *, rows: Index, job: B) -> Index:
        """Cause of a failure of each of these replications, counted."""
        edges = np.cumsum(self.plan.shares)
        cause = np.minimum(np.searchsorted(edges, self.rng.random(rows.size) * edges[-1]), len(FAILURE_CAUSES) - 1)
        cause = np.where(job, COUNT["software"], cause)
        self.state.counts[rows, cause] += 1.0
        return cause

    def _recovery(self, *, rows: Index, cause: Index) -> tuple[F, F, F]:
        """Detection, wait for a node and restart of failures of these replications."""
        p, rng = self.plan, self.rng
        ready = np.full(rows.size, p.ready_s)
        if p.automatic_frac < 1:
            manual = rng.random(rows.size) >= p.automatic_frac
            draw = p.manual_s * np.exp(p.manual_sigma * rng.standard_normal(rows.size) - p.manual_sigma**2 / 2)
            ready = ready + np.where(manual, draw, 0.0)
        wait = np.zeros(rows.size)
        if TAKES_NODE[cause].any() and (p.spares is not None or p.replacement_s > 0):
            hardware, rack = np.zeros((2, self.state.row.size), dtype=bool)
            hardware[rows], rack[rows] = TAKES_NODE[cause], IN_RACK[cause]
            wait = self._replace(hardware=hardware, rack=rack)[rows]
        return np.full(rows.size, p.detection_s), wait, ready

    def _replace(self, *, hardware: B, rack: B) -> F:
        """Time until the nodes that failed are replaced; an elastic job shrinks instead of waiting."""
        p, s, rng = self.plan, self.state, self.rng
        n = hardware.size
        ready_at = s.now + p.replacement_s * np.exp(
            p.replacement_sigma * rng.standard_normal(n) - p.replacement_sigma**2 / 2
        )
        if p.spares is not None:
            whole = hardware & rack & (rng.random(n) < p.rack_frac) if p.rack_frac else np.zeros(n, dtype=bool)
            spare_at = s.now.copy()
            for k in range(p.rack_nodes):
                taking = np.flatnonzero(hardware if k == 0 else whole)
                if taking.size:
                    spare_at[taking] = np.maximum(spare_at[taking], self._spare(taking))
            # Dry spares wait for a repair, or for a node from elsewhere where replacement_s says how long that takes.
            ready_at = np.minimum(ready_at, spare_at) if p.replacement_s > 0 else spare_at
        wait = np.where(hardware, np.maximum(0.0, ready_at - s.now), 0.0)
        if not p.elastic:
            return wait
        slot = s.away.argmin(axis=1)
        free = s.away[np.arange(n), slot] <= s.now
        room = ((s.away > s.now[:, None]).sum(axis=1) + 1) * p.unit_nodes < p.nodes
        shrink = (wait > 0) & free & room
        s.away[np.arange(n)[shrink], slot[shrink]] = ready_at[shrink]
        return np.where(shrink, 0.0, wait)

    def _spare(self, taking: Index) -> F:
        """When the earliest of the spares and the failed node itself is ready; the failed node joins the spares.

        Where nodes come from elsewhere too, a spare that is not at hand is not reserved.
        """
        p, s = self.plan, self.state
        now = s.now[taking]
        repaired = now + p.repair_median_s * np.exp(p.repair_sigma * self.rng.standard_normal(taking.size))
        if not p.spares:
            return repaired
        slot = s.spares[taking].argmin(axis=1)
        earliest = s.spares[taking, slot]
        put = repaired >= earliest
        if p.replacement_s > 0:
            put &= earliest <= now
        s.spares[taking[put], slot[put]] = repaired[put]
        return np.asarray(np.minimum(repaired, earliest))

    def _recover(self) -> None:
        """Serve detection, wait and restart; a failure in that time begins the recovery again, in the next pass."""
        p, s, rng = self.plan, self.state, self.rng
        total = s.detect + s.wait + s.ready
        node = s.node_rate * p.nodes * self._infant(s.now)
        rate = node + s.job_rate
        # Nobody holds the nodes of a preempted gang or one under maintenance, so nothing fails there.
        shielded = np.where(s.wait_at == AT["replacement"], 0.0, s.wait)
        with np.errstate(divide="ignore", over="ignore"):
            hit = rng.exponential(1.0, rate.size) / rate + shielded
        spent = np.minimum(np.minimum(hit, total), np.maximum(0.0, self.horizon_s - s.now))
        first = np.minimum(spent, s.detect)
        second = np.minimum(spent - first, s.wait)
        s.losses[:, AT["detection"]] += first
        s.losses[np.arange(s.row.size), s.wait_at] += second
        s.losses[:, AT["restart"]] += spent - first - second
        s.node_s += p.nodes * (spent - np.where(s.wait_at == AT["preempted"], second, 0.0))
        self._tally(now=s.now, step=spent, productive=0.0)
        s.now = s.now + spent
        s.down = (hit < total) & (s.now < self.horizon_s)
        rows = np.flatnonzero(s.down)
        if rows.size:
            cause = self._count(rows=rows, job=rng.random(rows.size) * rate[rows] >= node[rows])
            s.detect[rows], fresh, s.ready[rows] = self._recovery(rows=rows, cause=cause)
            s.wait[rows] = np.maximum(np.maximum(0.0, s.wait - second)[rows], fresh)
