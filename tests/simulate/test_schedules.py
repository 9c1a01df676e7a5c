from collections import Counter

import pytest
from hypothesis import given
from step_plans import sizes, uniform

from planner.simulate.fast import step_fast
from planner.simulate.schedules import (
    ONE_CHUNK,
    SCHEDULES,
    SPLIT,
    Task,
    downstream,
    group_size,
    in_flight,
    order,
    upstream,
)


def all_sizes():
    for schedule in SCHEDULES:
        for p in (1, 2, 3, 4, 7):
            for m in (1, 2, 3, 5, 8, 9, 14, 17):
                for v in (1,) if schedule in ONE_CHUNK else (1, 2, 3):
                    if schedule == "dualpipev" and (v != 2 or m < 2 * p):
                        continue
                    yield schedule, p, m, v


@pytest.mark.parametrize(("schedule", "p", "m", "v"), list(all_sizes()))
def test_every_task_runs_once_and_nothing_waits_for_itself(schedule, p, m, v):
    kinds = ("forward", "backward", "weight") if schedule in SPLIT else ("forward", "backward")
    expected = Counter(Task(k, i, c) for k in kinds for i in range(m) for c in range(v))
    for row in order(schedule=schedule, stages=p, micro_batches=m, chunks=v):
        assert Counter(row) == expected
    assert step_fast(uniform(schedule, p, m, v)).step_s > 0


@given(sizes())
def test_a_stage_runs_forward_before_backward_before_weight(size):
    schedule, p, m, v = size
    for row in order(schedule=schedule, stages=p, micro_batches=m, chunks=v):
        place = {task: i for i, task in enumerate(row)}
        for i in range(m):
            for c in range(v):
                assert place[Task("forward", i, c)] < place[Task("backward", i, c)]
                if schedule in SPLIT:
                    assert place[Task("backward", i, c)] < place[Task("weight", i, c)]


@given(sizes())
def test_the_model_is_one_chain_through_all_chunks(size):
    schedule, p, _, v = size
    kw = {"schedule": schedule, "stages": p, "chunks": v}
    place, seen = (0, 0), []
    while place is not None:
        seen.append(place)
        after = downstream(**kw, stage=place[0], chunk=place[1])
        if after is not None:
            assert upstream(**kw, stage=after[0], chunk=after[1]) == place
        place = after
    assert sorted(seen) == [(s, c) for s in range(p) for c in range(v)]
    assert upstream(**kw, stage=0, chunk=0) is None


def held(schedule, p, m, v=1):
    return in_flight(schedule=schedule, stages=p, micro_batches=m, chunks=v)


def test_activations_in_flight():
    assert held("gpipe", 4, 8) == (8, 8, 8, 8)
    assert held("1f1b", 4, 8) == (4, 3, 2, 1)
    assert held("1f1b", 4, 2) == (2, 2, 2, 1)
    assert held("interleaved", 4, 8, 2) == (11, 9, 7, 5)  # 2 (p - s - 1) + (v - 1) p + 1
    assert held("zb1p", 4, 8) == held("1f1b", 4, 8)
    assert held("zb2p", 4, 12) == (7, 5, 3, 1)
    assert held("dualpipev", 4, 8, 2) == (9, 9, 9, 9)  # published: model chunks + 1


def test_megatron_order_written_out():
    rows = order(schedule="interleaved", stages=2, micro_batches=4, chunks=2)
    text = [" ".join(f"{t.kind[0]}{t.micro_batch}.{t.chunk}" for t in row) for row in rows]
    assert text[0] == "f0.0 f1.0 f0.1 f1.1 f2.0 b0.1 f3.0 b1.1 f2.1 b0.0 f3.1 b1.0 b2.1 b3.1 b2.0 b3.0"
    assert text[1] == "f0.0 f1.0 f0.1 b0.1 f1.1 b1.1 f2.0 b0.0 f3.0 b1.0 f2.1 b2.1 f3.1 b3.1 b2.0 b3.0"


def test_interleaved_with_one_chunk_is_1f1b():
    assert order(schedule="interleaved", stages=4, micro_batches=6, chunks=1) == order(
        schedule="1f1b", stages=4, micro_batches=6, chunks=1
    )


@pytest.mark.parametrize(("p", "m", "n"), [(4, 8, 4), (4, 10, 5), (4, 9, 5), (4, 3, 3), (4, 7, 7), (8, 128, 8)])
def test_group_size_leaves_no_short_last_group(p, m, n):
    assert group_size(stages=p, micro_batches=m) == n
    assert m % n == 0 or m % n >= p


@pytest.mark.parametrize(
    ("schedule", "p", "m", "v"),
    [
        ("2f2b", 2, 2, 1),
        ("1f1b", 2, 2, 2),
        ("zb1p", 2, 2, 2),
        ("dualpipev", 2, 3, 2),
        ("dualpipev", 2, 8, 1),
        ("gpipe", 0, 1, 1),
    ],
)
def test_schedules_that_do_not_exist_are_refused(schedule, p, m, v):
    with pytest.raises(ValueError):  # noqa: PT011
        order(schedule=schedule, stages=p, micro_batches=m, chunks=v)


def test_order_is_memoised():
    kw = {"schedule": "1f1b", "stages": 3, "micro_batches": 5, "chunks": 1}
    assert order(**kw) is order(**kw)
