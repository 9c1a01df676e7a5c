"""Durations of one optimizer step: the only numbers that both evaluators read, and the answer that both give.

What the numbers mean (both `fast` and `step` follow this, and tests hold them to each other):

- A stage's compute stream runs the tasks of `schedules.order` one after another.
- A boundary message leaves when its task ends. Overlapped, it queues on its sender's pipeline stream and the next task
  runs beside it. Not overlapped, it holds the sender's compute stream for `send_s`, and the receiver's from the moment
  that both are ready; sending and receiving at the same boundary run at once (`send_forward_recv_backward`).
- The data-parallel stream of a stage runs in order: parameter gathers, then gradient buckets. Bucket i of n is ready at
  fraction (i + 1) / n of the task that completes its chunk's gradients.
- FSDP block runs number j = 0, 1, ... over a stage's whole step. Gather j may start when block run j - prefetch - 1 is
  done (so prefetch + 1 gathered blocks exist at most); a block that has just run is not gathered again. The
  reduce-scatter of a backward joins the same stream, ahead of the gather that its end releases.
- Then: exchange done, tail between first and last stage, (barrier of the gradient norm,) optimizer.
"""

from dataclasses import dataclass

from planner.simulate.schedules import SPLIT, Task, check, last_gradient_tasks, order

Table = tuple[tuple[float, ...], ...]
Buckets = tuple[tuple[tuple[float, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class FsdpBlock:
    """One sharded block: compute of its passes, and its collectives."""

    forward_s: float
    backward_s: float
    gather_s: float
    reduce_s: float


Fsdp = tuple[tuple[tuple[FsdpBlock, ...], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """Durations of one step; tables are [stage][chunk], seconds for one micro-batch unless said otherwise.

    Attributes:
        schedule: one of `schedules.SCHEDULES`.
        stages: pipeline stages.
        micro_batches: micro-batches of the step.
        chunks: model chunks on each stage.
        forward_s: forward pass (ignored where `fsdp` is given, like `backward_s`).
        backward_s: backward pass, recompute included, weight gradient included unless the schedule splits it.
        weight_s: weight gradient of split schedules.
        send_s: transfer of one boundary message; activation and gradient take the same.
        p2p_overlap: transfers run beside compute.
        grad_bucket_s: gradient buckets of a step, in the order they become ready.
        dp_overlap: buckets run beside the backward pass; else after the stage's last task.
        param_gather_s: gather of a chunk's parameters, once a step, before its first forward pass.
        gather_overlap: gathers run beside the compute of earlier chunks; else all of them before the first task.
        fsdp: fully sharded blocks of each chunk.
        prefetch: blocks gathered ahead.
        reshard: gather and reduce in every micro-batch; else gather once and reduce in the last micro-batch.
        optimizer_s: [stage] optimizer.
        tail_s: exchange between first and last stage after the gradients (tied embeddings).
        shared_link: boundary messages and the data-parallel stream of a stage share one link, each at half rate while
            both are on it. Only the events follow this; `fast` lets them pass each other.
        optimizer_barrier: the gradient norm waits for all stages. Without it the stages' steps are staggered in the
            steady state, and `step_s` is the period of the step.
    """

    schedule: str
    stages: int
    micro_batches: int
    chunks: int
    forward_s: Table
    backward_s: Table
    weight_s: Table
    send_s: float = 0.0
    p2p_overlap: bool = True
    grad_bucket_s: Buckets = ()
    dp_overlap: bool = True
    param_gather_s: Table = ()
    gather_overlap: bool = True
    fsdp: Fsdp | None = None
    prefetch: int = 1
    reshard: bool = True
    optimizer_s: tuple[float, ...] = ()
    tail_s: float = 0.0
    optimizer_barrier: bool = True
    shared_link: bool = False

    def __post_init__(self) -> None:
        """Fill what was left out and refuse what does not fit together."""
        check(schedule=self.schedule, stages=self.stages, micro_batches=self.micro_batches, chunks=self.chunks)
        p, v = self.stages, self.chunks
        for name, empty in (("grad_bucket_s", ()), ("param_gather_s", 0.0)):
            if not getattr(self, name):
                object.__setattr__(self, name, ((empty,) * v,) * p)
        if not self.optimizer_s:
            object.__setattr__(self, "optimizer_s", (0.0,) * p)
        for name in ("forward_s", "backward_s", "weight_s", "grad_bucket_s", "param_gather_s", "fsdp"):
            table = getattr(self, name)
            if table is not None and (len(table) != p or any(len(row) != v for row in table)):
                raise ValueError(f"{name} must be {p} stages by {v} chunks")
        if len(self.optimizer_s) != p:
            raise ValueError(f"optimizer_s must have {p} stages")
        if self.prefetch < 0 or self._least() < 0:
            raise ValueError("durations and prefetch must not be negative")
        if self.fsdp is not None and self.split:
            raise ValueError(f"schedule {self.schedule} splits the backward pass, which fully sharded blocks do not")

    def _least(self) -> float:
        tables = (self.forward_s, self.backward_s, self.weight_s, self.param_gather_s)
        least = [min(map(min, table)) for table in tables]
        least += [b for row in self.grad_bucket_s for cell in row for b in cell]
        for row in self.fsdp or ():
            least += [min(b.forward_s, b.backward_s, b.gather_s, b.reduce_s) for cell in row for b in cell]
        return min(*least, self.send_s, self.tail_s, *self.optimizer_s)

    @property
    def split(self) -> bool:
        """Whether weight gradients are tasks of their own."""
        return self.schedule in SPLIT

    @property
    def has_tail(self) -> bool:
        """Whether first and last stage exchange something after the gradients."""
        return self.stages > 1 and self.tail_s > 0

    def order(self) -> tuple[tuple[Task, ...], ...]:
        """Tasks of each stage."""
        return order(schedule=self.schedule, stages=self.stages, micro_batches=self.micro_batches, chunks=self.chunks)


@dataclass(frozen=True, slots=True)
class BlockRun:
    """One pass through one sharded block: gather (zero where it is still there), compute, reduce."""

    block: int
    gather_s: float
    compute_s: float
    reduce_s: float


def block_runs(*, plan: StepPlan, stage: int) -> list[list[BlockRun]]:
    """Block runs of every task of a stage, in order."""
    fsdp = plan.fsdp
    if fsdp is None:
        return []
    tasks = plan.order()[stage]
    final = {i for i, _ in last_gradient_tasks(tasks, split=False)}
    here: set[tuple[int, int]] = set()
    out = []
    for position, task in enumerate(tasks):
        blocks, runs = fsdp[stage][task.chunk], []
        forward = task.kind == "forward"
        for i in range(len(blocks)) if forward else reversed(range(len(blocks))):
            block, key = blocks[i], (task.chunk, i)
            gather = 0.0 if key in here else block.gather_s
            reduce = 0.0 if forward or not (plan.reshard or position in final) else block.reduce_s
            runs.append(BlockRun(i, gather, block.forward_s if forward else block.backward_s, reduce))
            here = {key} if plan.reshard else here | {key}
        out.append(runs)
    return out


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step; tuples are by stage. Compute, bubble, exposed and optimizer seconds of a stage add up to `step_s`."""

    step_s: float
    compute_busy_s: tuple[float, ...]
    bubble_s: tuple[float, ...]
    exposed_dp_s: tuple[float, ...]
    exposed_pp_s: tuple[float, ...]
    optimizer_s: tuple[float, ...]
    dp_link_busy_s: tuple[float, ...]
    pp_link_busy_s: tuple[float, ...]
    finish_s: tuple[float, ...]

    def parts_s(self, stage: int) -> tuple[float, float, float, float, float]:
        """Compute, bubble, exposed data-parallel, exposed pipeline and optimizer seconds of a stage."""
        return (
            self.compute_busy_s[stage],
            self.bubble_s[stage],
            self.exposed_dp_s[stage],
            self.exposed_pp_s[stage],
            self.optimizer_s[stage],
        )
