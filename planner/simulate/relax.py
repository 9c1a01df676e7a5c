"""Plans whose data-parallel exchange does not belong to every step: local SGD and bounded staleness."""

from dataclasses import replace

from planner.simulate.plan import StepPlan
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
