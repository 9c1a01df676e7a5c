"""Step plans for tests: uniform ones for closed forms, random ones for properties."""

from hypothesis import strategies as st

from planner.simulate.plan import FsdpBlock, StepPlan
from planner.simulate.schedules import ONE_CHUNK, SCHEDULES, SPLIT


def uniform(schedule, p, m, v=1, *, f=1.0, b=2.0, w=0.0, **more):
    def table(x):
        return ((x,) * v,) * p

    return StepPlan(
        schedule=schedule, stages=p, micro_batches=m, chunks=v,
        forward_s=table(f), backward_s=table(b), weight_s=table(w), **more,
    )  # fmt: skip


def sharded(blocks, *, p=1, m=1, v=1, schedule="1f1b", **more):
    return uniform(schedule, p, m, v, fsdp=(((tuple(blocks),) * v,) * p), **more)


seconds = st.floats(0.0, 3.0, allow_nan=False).map(lambda x: round(x, 3))
positive = st.floats(0.01, 3.0, allow_nan=False)


@st.composite
def sizes(draw):
    schedule = draw(st.sampled_from(SCHEDULES))
    p = draw(st.integers(1, 5))
    m = draw(st.integers(1, 12))
    v = 1 if schedule in ONE_CHUNK else draw(st.integers(1, 3))
    if schedule == "dualpipev":
        p, v = min(p, 4), 2
        m = 2 * p + m % 4
    return schedule, p, m, v


@st.composite
def plans(draw):
    schedule, p, m, v = draw(sizes())
    even = draw(st.booleans())

    def table(values):
        if even:
            return ((draw(values),) * v,) * p
        return tuple(tuple(draw(values) for _ in range(v)) for _ in range(p))

    more = {}
    if schedule not in SPLIT and draw(st.booleans()):
        block = st.builds(FsdpBlock, forward_s=seconds, backward_s=seconds, gather_s=seconds, reduce_s=seconds)
        row = st.lists(block, max_size=4).map(tuple)
        more["fsdp"] = tuple(tuple(draw(row) for _ in range(v)) for _ in range(p))
        more |= {"prefetch": draw(st.integers(0, 3)), "reshard": draw(st.booleans())}
    else:
        more["grad_bucket_s"] = table(st.lists(seconds, max_size=4).map(tuple))
        more["param_gather_s"] = table(seconds)
    return StepPlan(
        schedule=schedule,
        stages=p,
        micro_batches=m,
        chunks=v,
        forward_s=table(positive),
        backward_s=table(positive),
        weight_s=table(seconds if schedule in SPLIT else st.just(0.0)),
        send_s=draw(st.sampled_from([0.0, 0.1]) | seconds),
        p2p_overlap=draw(st.booleans()),
        dp_overlap=draw(st.booleans()),
        gather_overlap=draw(st.booleans()),
        optimizer_s=tuple(draw(seconds) for _ in range(p)),
        tail_s=draw(st.sampled_from([0.0, 0.2])),
        optimizer_barrier=draw(st.booleans()),
        **more,
    )
