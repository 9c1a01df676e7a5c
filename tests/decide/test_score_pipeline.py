"""The closed forms against the recurrence that walks the same order of work task by task."""

import itertools
import statistics

import pytest

from planner.decide.score_pipeline import Stage, Work, passes_s
from planner.simulate.fast import step_fast
from planner.simulate.plan import StepPlan

CHUNKS = {"gpipe": (1,), "1f1b": (1,), "zb1p": (1,), "zb2p": (1,), "interleaved": (2, 3, 6), "dualpipev": (2,)}


def walked(*, schedule, p, m, v, forward, backward, send, overlap):
    """Step of the recurrence; forward and backward are [stage] for one chunk."""
    split = schedule in {"zb1p", "zb2p", "dualpipev"}
    plan = StepPlan(
        schedule=schedule, stages=p, micro_batches=m, chunks=v, send_s=send, p2p_overlap=overlap,
        forward_s=tuple((f,) * v for f in forward), weight_s=tuple((b / 2 if split else 0.0,) * v for b in backward),
        backward_s=tuple((b / 2 if split else b,) * v for b in backward), optimizer_barrier=schedule != "zb2p",
    )  # fmt: skip
    return step_fast(plan).step_s


def closed(*, schedule, p, m, v, forward, backward, send, overlap):
    stages, before = [], 0.0
    for k in range(p):
        stages.append(Stage(k, v * forward[k], v * backward[k], before))
        before += v * (forward[k] + backward[k])
    work = Work(
        schedule=schedule, stages=p, micro_batches=m, chunks=v, candidates=stages, forward_s=v * sum(forward),
        backward_s=v * sum(backward), send_s=send, p2p_overlap=overlap,
    )  # fmt: skip
    return float(passes_s(work))


def cases(schedule):
    for v, p, m in itertools.product(CHUNKS[schedule], (2, 3, 4, 8), (1, 2, 3, 4, 6, 8, 13, 16, 32)):
        if schedule == "dualpipev" and m < 2 * p:
            continue
        yield v, p, m


@pytest.mark.parametrize("schedule", CHUNKS)
@pytest.mark.parametrize("ratio", [2.0, 3.0])
def test_equal_stages_without_transfers_agree_exactly(schedule, ratio):
    for v, p, m in cases(schedule):
        case = {"schedule": schedule, "p": p, "m": m, "v": v, "send": 0.0, "overlap": v > 1,
                "forward": [1.0] * p, "backward": [ratio] * p}  # fmt: skip
        assert closed(**case) == pytest.approx(walked(**case), rel=1e-9), case


@pytest.mark.parametrize("schedule", CHUNKS)
@pytest.mark.parametrize("overlap", [True, False])
def test_uneven_ends_and_transfers_agree_closely(schedule, overlap):
    if overlap and CHUNKS[schedule] == (1,):
        pytest.skip("one chunk a stage never overlaps its transfers")
    errors = []
    for v, p, m in cases(schedule):
        for head, send in itertools.product((0.0, 0.15, 0.6), (0.0, 0.02, 0.1)):
            case = {"schedule": schedule, "p": p, "m": m, "v": v, "send": send, "overlap": overlap,
                    "forward": [1.05] + [1.0] * (p - 2) + [1 + head],
                    "backward": [2.05] + [2.0] * (p - 2) + [2 + 2 * head]}  # fmt: skip
            errors.append(abs(closed(**case) / walked(**case) - 1))
    assert statistics.median(errors) <= 0.01
    assert max(errors) <= 0.15
