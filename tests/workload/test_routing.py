"""Expected imbalance of expert ranks against drawn routings."""

import numpy as np
import pytest

from planner.workload.routing import busiest_over_mean


@pytest.mark.parametrize(
    ("tokens", "topk", "experts", "ranks"), [(512, 8, 64, 8), (1024, 2, 16, 16), (256, 8, 256, 64)]
)
def test_agrees_with_drawn_routings(tokens: int, topk: int, experts: int, ranks: int) -> None:
    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        # Each of `ranks` x `tokens` tokens picks `topk` different experts at random.
        keys = rng.random((ranks * tokens, experts))
        chosen = np.argpartition(keys, topk, axis=1)[:, :topk] * ranks // experts
        loads = np.bincount(chosen.ravel(), minlength=ranks)
        found.append(loads.max() / loads.mean())
    ours = busiest_over_mean(choices=tokens * topk, ranks=ranks)
    # Different experts per token make loads a little more even than independent draws.
    assert ours - 1.0 == pytest.approx(np.mean(found) - 1.0, rel=0.25)


def test_one_rank_or_nothing_to_route_is_balanced() -> None:
    assert busiest_over_mean(choices=100.0, ranks=1) == 1.0
    assert busiest_over_mean(choices=0.0, ranks=8) == 1.0


def test_more_tokens_even_out_and_more_ranks_spread() -> None:
    assert busiest_over_mean(choices=4e4, ranks=64) < busiest_over_mean(choices=4e2, ranks=64)
    assert busiest_over_mean(choices=4e3, ranks=64) > busiest_over_mean(choices=4e3, ranks=8)
