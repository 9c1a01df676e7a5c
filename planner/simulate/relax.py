"""Plans with a data-parallel exchange that spares or slows compute: local SGD, bounded staleness, kernels beside it."""

from dataclasses import replace

from planner.simulate.plan import FsdpBlock, StepPlan, Table
from planner.workload.exchange import Exchange


def relaxed(*, plan: StepPlan, exchange: Exchange) -> StepPlan:
    """The mean step of a plan under local SGD or bounded staleness.

    Local SGD pays the exchange after every `every_steps`-th step, beside nothing. A stale exchange may run beside the
    whole of the following steps: only what is longer than a step's compute shows.
    """
    if exchange.every_steps > 1:
        return _with_share(plan=plan, shares=tuple(1.0 / exchange.every_steps for _ in range(plan.stages)))
    if exchange.staleness_steps < 1:
        return plan
    shares = []
    for stage in range(plan.stages):
        rows = (plan.forward_s[stage], plan.backward_s[stage], plan.weight_s[stage])
        compute = plan.micro_batches * sum(map(sum, rows))
        wire = sum(map(sum, plan.grad_bucket_s[stage]))
        shares.append(max(0.0, wire - compute) / wire if wire > 0 else 0.0)
    return _with_share(plan=plan, shares=tuple(shares))


def _with_share(*, plan: StepPlan, shares: tuple[float, ...]) -> StepPlan:
    buckets = tuple(
        tuple(tuple(b * share for b in cell) for cell in row)
        for row, share in zip(plan.grad_bucket_s, shares, strict=True)
    )
    return replace(plan, grad_bucket_s=buckets, dp_overlap=False)


def beside_exchange(*, plan: StepPlan, slow_frac: float) -> StepPlan:
    """A plan whose passes are longer by `slow_frac` of the time that an exchange runs beside them.

    Sharded blocks stretch pass by pass. Gradient buckets run beside the last backward passes and gathers beside the
    first forward passes only; their stretch is spread over all micro-batches, which keeps the step's total.
    """
    if slow_frac <= 0:
        return plan
    if plan.fsdp is not None:
        if plan.prefetch < 1:
            return plan
        blocks = tuple(tuple(tuple(_stretched(b, slow_frac) for b in cell) for cell in row) for row in plan.fsdp)
        return replace(plan, fsdp=blocks)
    m = plan.micro_batches

    def longer(passes: Table, exchange: Table) -> Table:
        return tuple(
            tuple(own + slow_frac * min(own, wire) / m for own, wire in zip(row, wires, strict=True))
            for row, wires in zip(passes, exchange, strict=True)
        )

    if plan.dp_overlap:
        buckets = tuple(tuple(sum(cell) for cell in row) for row in plan.grad_bucket_s)
        plan = replace(plan, backward_s=longer(plan.backward_s, buckets))
    if plan.gather_overlap:
        plan = replace(plan, forward_s=longer(plan.forward_s, plan.param_gather_s))
    return plan


def _stretched(block: FsdpBlock, slow_frac: float) -> FsdpBlock:
    forward = slow_frac * min(block.forward_s, block.gather_s)
    backward = slow_frac * min(block.backward_s, block.gather_s + block.reduce_s)
    return replace(block, forward_s=block.forward_s + forward, backward_s=block.backward_s + backward)
