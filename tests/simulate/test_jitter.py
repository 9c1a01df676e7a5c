"""Ranks that differ: the mean of a maximum, and what it does to a step and to a scaling curve."""

from pathlib import Path

import numpy as np
import pytest

from planner.decide.sweep import curves
from planner.forecast import step_on
from planner.scenario import load_scenario
from planner.simulate.assemble import expected_maximum

SCENARIO = load_scenario(Path(__file__).parents[2] / "scenarios" / "llama3-70b-256xh100.yaml")


def with_jitter(frac):
    return SCENARIO.model_copy(update={"run": SCENARIO.run.model_copy(update={"jitter_frac": frac})})


def step(frac, gpus=256):
    strategy = SCENARIO.strategies["engineered"].model_copy(update={"dp": None})
    batch = SCENARIO.training.global_batch_sequences * gpus // 256
    return step_on(scenario=with_jitter(frac), strategy=strategy, gpus=gpus, global_batch=batch, engine="fast")[1]


@pytest.mark.parametrize("ranks", [2, 8, 64, 1024])
def test_mean_of_the_largest_of_normal_values(ranks):
    draws = np.random.default_rng(ranks).standard_normal((4000, ranks)).max(axis=1)
    error = draws.std() / len(draws) ** 0.5
    assert abs(draws.mean() - expected_maximum(ranks=ranks)) < 4.5 * error + 0.02  # Blom's form is within 0.02


def test_one_rank_waits_for_nobody():
    assert expected_maximum(ranks=1) == 0.0


def test_parts_add_up_and_the_wait_grows_with_ranks_and_spread():
    found = {(f, g): step(f, g) for f in (0.0, 0.01, 0.03) for g in (128, 256)}
    waits = {}
    for key, answer in found.items():
        parts = dict(answer.breakdown_s)
        assert sum(parts.values()) == pytest.approx(answer.step_s)
        waits[key] = parts["straggler"] / (answer.step_s - parts["straggler"])
    assert waits[0.0, 256] == 0.0
    assert 0 < waits[0.01, 128] < waits[0.01, 256] < waits[0.03, 256]
    assert found[0.03, 256].tokens_per_s * found[0.03, 256].step_s == pytest.approx(
        found[0.0, 256].tokens_per_s * found[0.0, 256].step_s
    )


def test_a_scaling_curve_names_stragglers_where_they_decide():
    strategy = SCENARIO.strategies["engineered"].model_copy(update={"dp": None})
    found = curves(scenario=with_jitter(0.2), strategy=strategy, gpus=[64, 256], kinds=("weak",))
    assert found["weak"][-1].cause == "stragglers"
