"""The step as a recurrence: the graph of a plan walked once in a topological order, no event queue.

`step.py` evaluates the same plan by events; tests hold the two to each other.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from planner.simulate.plan import StepPlan, StepResult, block_runs
from planner.simulate.schedules import Kind, downstream, last_gradient_tasks, order, upstream

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
KINDS: dict[Kind, int] = {"forward": 0, "backward": 1, "weight": 2}


@dataclass(frozen=True, slots=True)
class _Graph:
    """Tasks of all stages in a topological order; index n stands for 'nothing before', at time zero."""

    stage: list[int]
    duration: list[int]  # index into the flat table [kind][stage][chunk]
    needs: list[int]
    sends: list[bool]
    stage_of: Ints
    duration_of: Ints
    needs_of: Ints
    before_of: Ints  # the task before it on its stage
    receives_of: npt.NDArray[np.bool_]
    sends_of: npt.NDArray[np.bool_]
    position: tuple[tuple[int, ...], ...]  # [stage][place in the stage's order] -> index
    first_forward: tuple[tuple[int, ...], ...]  # [stage][chunk] -> index
    last_gradient: tuple[tuple[tuple[int, int], ...], ...]  # [stage] -> (index, chunk) in order
    messages: Ints  # [stage]


class _Links:
    """Who waits and who sends, by group: the tasks of one kind, stage and chunk, numbered `(kind p + stage) v + chunk`.

    Attributes:
        needs: [group] the group whose task of the same micro-batch a task waits for, -1 for none.
        sends: [group] whether the task's output leaves its stage.
    """

    def __init__(self, *, schedule: str, p: int, v: int) -> None:
        self.needs = [-1] * (3 * p * v)
        self.sends = [False] * (3 * p * v)
        for s, c in ((s, c) for s in range(p) for c in range(v)):
            up = upstream(schedule=schedule, stages=p, chunks=v, stage=s, chunk=c)
            down = downstream(schedule=schedule, stages=p, chunks=v, stage=s, chunk=c)
            forward, backward = s * v + c, (p + s) * v + c
            self.needs[forward] = -1 if up is None else up[0] * v + up[1]
            self.needs[backward] = forward if down is None else (p + down[0]) * v + down[1]
            self.sends[forward] = down is not None and down[0] != s
            self.sends[backward] = up is not None and up[0] != s


def _walk(*, rows: list[tuple[list[int], list[int]]], links: _Links, micro_batches: int) -> tuple[list[int], ...]:
    """Stage, group and needed index (the number of tasks for none) of every task, each after its need.

    Args:
        rows: by stage, group and micro-batch of its tasks in order.
        links: who waits for whom.
        micro_batches: of a step.

    Raises:
        ValueError: the order waits for itself.
    """
    m, needs, total = micro_batches, links.needs, sum(len(groups) for groups, _ in rows)
    done, waiting = [-1] * (len(needs) * m), [-1] * (len(needs) * m)
    stage, group, needed = list[int](), list[int](), list[int]()
    at, ready, count = [0] * len(rows), list(reversed(range(len(rows)))), 0
    while ready:
        s = ready.pop()
        groups, batches = rows[s]
        i, end = at[s], len(groups)
        while i < end:
            g, batch = groups[i], batches[i]
            need, found = needs[g], total
            if need >= 0:
                need = need * m + batch
                found = done[need]
                if found < 0:
                    waiting[need] = s
                    break
            mine = g * m + batch
            done[mine] = count
            stage.append(s)
            group.append(g)
            needed.append(found)
            count += 1
            i += 1
            if waiting[mine] >= 0:
                ready.append(waiting[mine])
                waiting[mine] = -1
        at[s] = i
    if count != total:
        raise ValueError("the order of work waits for itself")
    return stage, group, needed


@lru_cache(maxsize=64)
def _graph(*, schedule: str, stages: int, micro_batches: int, chunks: int) -> _Graph:
    p, v = stages, chunks
    tasks = order(schedule=schedule, stages=p, micro_batches=micro_batches, chunks=v)
    links = _Links(schedule=schedule, p=p, v=v)
    base = {kind: k * p * v for kind, k in KINDS.items()}
    rows = [
        ([base[t.kind] + s * v + t.chunk for t in row], [t.micro_batch for t in row]) for s, row in enumerate(tasks)
    ]
    stage, group, needs = _walk(rows=rows, links=links, micro_batches=micro_batches)
    n = len(stage)
    stage_of, group_of = np.array(stage, dtype=np.intp), np.array(group, dtype=np.intp)
    needs_of = np.array(needs, dtype=np.intp)
    sends_of = np.array(links.sends, dtype=np.bool_)[group_of]
    # By stage and place: within a stage the walk goes in its order.
    position = np.split(np.argsort(stage_of, kind="stable"), np.cumsum([len(row) for row in tasks])[:-1])
    before = np.full(n, n, dtype=np.intp)
    for row in position:
        before[row[1:]] = row[:-1]
    places = tuple(tuple(row.tolist()) for row in position)
    first = [
        tuple(places[s][groups.index(base["forward"] + s * v + c)] for c in range(v))
        for s, (groups, _) in enumerate(rows)
    ]
    split = any(t.kind == "weight" for t in tasks[0])
    last = [tuple((places[s][i], c) for i, c in last_gradient_tasks(row, split=split)) for s, row in enumerate(tasks)]
    return _Graph(
        stage=stage,
        duration=group,
        needs=needs,
        sends=sends_of.tolist(),
        stage_of=stage_of,
        duration_of=group_of,
        needs_of=needs_of,
        before_of=before,
        receives_of=(needs_of < n) & (np.append(stage_of, -1)[needs_of] != stage_of),
        sends_of=sends_of,
        position=places,
        first_forward=tuple(first),
        last_gradient=tuple(last),
        messages=np.bincount(stage_of, weights=sends_of, minlength=p).astype(np.intp),
    )


@dataclass(slots=True)
class _Times:
    """When every task started, ended and had its output delivered; waits inside tasks and the state of each stage."""

    start: Floats
    end: Floats
    arrive: Floats
    gate: Floats
    lag: Floats
    compute: Floats  # [stage]
    waited: Floats  # [stage] for gathers inside tasks
    exchange: list[float]  # [stage] when its data-parallel stream is free
    link: list[float]  # [stage] seconds that stream has been busy


def _gates(*, plan: StepPlan, graph: _Graph) -> tuple[list[float], list[float]]:
    """Earliest start of every task for its parameter gather, and when each stage's gathers are done."""
    gate, done = [0.0] * len(graph.stage), []
    for s, row in enumerate(plan.param_gather_s):
        now = 0.0
        for chunk, seconds in enumerate(row):
            now += seconds
            if plan.gather_overlap and seconds:
                gate[graph.first_forward[s][chunk]] = now
        if not plan.gather_overlap:
            gate[graph.position[s][0]] = now
        done.append(now)
    return gate, done


def _run(*, plan: StepPlan, graph: _Graph) -> _Times:
    """The recurrence for plans whose tasks have one duration each."""
    n, send = len(graph.stage), plan.send_s
    flat = [*_flat(plan.forward_s), *_flat(plan.backward_s), *_flat(plan.weight_s)]
    gate, gathered = _gates(plan=plan, graph=graph)
    lag = _lag(plan=plan, graph=graph)
    start, end, arrive = [0.0] * n, [0.0] * (n + 1), [0.0] * (n + 1)
    free, link = [0.0] * plan.stages, [0.0] * plan.stages
    rows = zip(graph.stage, graph.duration, graph.needs, graph.sends, gate, lag.tolist(), strict=True)
    for i, (s, d, need, sends, opens, wait) in enumerate(rows):
        begin = free[s] + wait
        if arrive[need] > begin:  # noqa: PLR1730 - max() doubles the loop's time
            begin = arrive[need]
        if opens > begin:  # noqa: PLR1730
            begin = opens
        start[i] = begin
        free[s] = end[i] = done = begin + flat[d]
        if sends:
            if link[s] > done:  # noqa: PLR1730
                done = link[s]
            done += send
            link[s] = done
        arrive[i] = done
    compute = _by_stage(plan=plan, graph=graph, weights=np.array(flat)[graph.duration_of])
    busy = [sum(row) for row in plan.param_gather_s]
    waited = np.zeros(plan.stages)
    return _Times(
        np.array(start), np.array(end), np.array(arrive), np.array(gate), lag, compute, waited, gathered, busy
    )


def _by_stage(*, plan: StepPlan, graph: _Graph, weights: Floats) -> Floats:
    return np.bincount(graph.stage_of, weights=weights, minlength=plan.stages).astype(np.float64)


def _flat(table: tuple[tuple[float, ...], ...]) -> list[float]:
    return [x for row in table for x in row]


def _lag(*, plan: StepPlan, graph: _Graph) -> Floats:
    """How long a boundary exchange that is not overlapped holds the compute stream before a task."""
    if plan.p2p_overlap:
        return np.zeros(len(graph.stage))
    sent = np.append(graph.sends_of, False)[graph.before_of]
    return np.where(sent | graph.receives_of, plan.send_s, 0.0)


class _Sharded:
    """Compute and exchange stream of one stage of fully sharded blocks."""

    def __init__(self, *, plan: StepPlan, stage: int) -> None:
        runs = block_runs(plan=plan, stage=stage)
        self.tasks = iter(runs)
        flat = [run for row in runs for run in row]
        self.gather = [run.gather_s for run in flat]
        self.ahead = plan.prefetch + 1
        self.gathered = [0.0] * len(flat)
        self.run = 0
        self.free = sum(plan.param_gather_s[stage])
        self.busy = self.free + sum(run.gather_s + run.reduce_s for run in flat)
        self.compute = sum(run.compute_s for run in flat)
        self.waited = 0.0
        for j in range(min(self.ahead, len(flat))):
            self._start_gather(j, 0.0)

    def _start_gather(self, j: int, now: float) -> None:
        if self.gather[j] > 0:
            self.free = max(self.free, now) + self.gather[j]
            self.gathered[j] = self.free

    def task(self, now: float) -> float:
        """End of the next task, given its start."""
        for run in next(self.tasks):
            wait = self.gathered[self.run] - now
            if wait > 0:
                self.waited += wait
                now = self.gathered[self.run]
            now += run.compute_s
            if run.reduce_s > 0:
                self.free = max(self.free, now) + run.reduce_s
            if self.run + self.ahead < len(self.gathered):
                self._start_gather(self.run + self.ahead, now)
            self.run += 1
        return now


def _run_sharded(*, plan: StepPlan, graph: _Graph) -> _Times:
    """The recurrence for plans of fully sharded blocks."""
    n = len(graph.stage)
    gate, _ = _gates(plan=plan, graph=graph)
    lag = _lag(plan=plan, graph=graph)
    waits = lag.tolist()
    start, end, arrive = [0.0] * n, [0.0] * (n + 1), [0.0] * (n + 1)
    free, link = [0.0] * plan.stages, [0.0] * plan.stages
    shards = [_Sharded(plan=plan, stage=s) for s in range(plan.stages)]
    for i, s in enumerate(graph.stage):
        start[i] = max(free[s] + waits[i], arrive[graph.needs[i]], gate[i])
        free[s] = end[i] = arrive[i] = shards[s].task(start[i])
        if graph.sends[i]:
            arrive[i] = link[s] = max(link[s], free[s]) + plan.send_s
    return _Times(
        np.array(start), np.array(end), np.array(arrive), np.array(gate), lag,
        np.array([x.compute for x in shards]), np.array([x.waited for x in shards]),
        [x.free for x in shards], [x.busy for x in shards],
    )  # fmt: skip


def _exposed(*, plan: StepPlan, graph: _Graph, times: _Times) -> tuple[Floats, Floats]:
    """Seconds by stage that compute stood still for the data-parallel and the pipeline exchange between tasks."""
    before, peer = times.end[graph.before_of], times.end[graph.needs_of]
    arrive = times.arrive[graph.needs_of]
    receives = graph.receives_of
    late = np.maximum(peer - before, 0.0)
    if plan.p2p_overlap:
        pp = np.where(receives, np.maximum(arrive - np.maximum(before, peer), 0.0), 0.0)
    else:
        sent = np.append(graph.sends_of, False)[graph.before_of]
        pp = times.lag + np.where(receives & sent, np.minimum(plan.send_s, late), 0.0)
    dp = np.maximum(times.gate - np.maximum(before + times.lag, np.where(receives, arrive, 0.0)), 0.0)
    if not plan.optimizer_barrier:
        first = [row[0] for row in graph.position]
        pp[first], dp[first] = 0.0, times.gate[first]
    waited = _by_stage(plan=plan, graph=graph, weights=dp) + times.waited
    return waited, _by_stage(plan=plan, graph=graph, weights=pp)


def _exchange(*, plan: StepPlan, graph: _Graph, times: _Times, free: list[float]) -> list[float]:
    """When each stage's gradients are exchanged; adds the buckets to `times.link`."""
    done = []
    for s, stream in enumerate(times.exchange):
        now = stream if plan.dp_overlap else max(stream, free[s])
        for index, chunk in graph.last_gradient[s]:
            buckets = plan.grad_bucket_s[s][chunk]
            begin, end = float(times.start[index]), float(times.end[index])
            for i, seconds in enumerate(buckets):
                release = begin + (end - begin) * ((i + 1) / len(buckets))
                now = max(now, release) + seconds
            times.link[s] += sum(buckets)
        done.append(max(now, free[s]))
    return done


def step_fast(plan: StepPlan) -> StepResult:
    """Seconds of one step, and where each stage spends them."""
    graph = _graph(schedule=plan.schedule, stages=plan.stages, micro_batches=plan.micro_batches, chunks=plan.chunks)
    times = (_run if plan.fsdp is None else _run_sharded)(plan=plan, graph=graph)
    exposed_dp, exposed_pp = _exposed(plan=plan, graph=graph, times=times)
    last = [row[-1] for row in graph.position]
    free = [float(x) for x in times.end[last]]
    if not plan.p2p_overlap:
        held = np.where(graph.sends_of[last], plan.send_s, 0.0)
        exposed_pp += held
        free = [a + float(b) for a, b in zip(free, held, strict=True)]
    ready = _exchange(plan=plan, graph=graph, times=times, free=free)
    exposed_dp += np.array(ready) - np.array(free)
    if plan.has_tail:
        ready[0] = ready[-1] = max(ready[0], ready[-1]) + plan.tail_s
        for s in (0, -1):
            exposed_dp[s] += plan.tail_s
            times.link[s] += plan.tail_s
    if plan.optimizer_barrier:
        ready = [max(ready)] * plan.stages
    finish = [a + b for a, b in zip(ready, plan.optimizer_s, strict=True)]
    if plan.optimizer_barrier:
        step = max(finish)
    else:
        first = [row[0] for row in graph.position]
        offset = times.start[first] - times.gate[first]
        step = max(f - float(o) for f, o in zip(finish, offset, strict=True))
    bubble = step - times.compute - exposed_dp - exposed_pp - np.array(plan.optimizer_s)
    return StepResult(
        step_s=step,
        compute_busy_s=tuple(times.compute.tolist()),
        bubble_s=tuple(np.maximum(bubble, 0.0).tolist()),
        exposed_dp_s=tuple(exposed_dp.tolist()),
        exposed_pp_s=tuple(exposed_pp.tolist()),
        optimizer_s=plan.optimizer_s,
        dp_link_busy_s=tuple(times.link),
        pp_link_busy_s=tuple((graph.messages * plan.send_s).tolist()),
        finish_s=tuple(finish),
    )
