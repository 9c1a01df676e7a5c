"""The first estimate is the forecast's own closed form: near the walked step, and quick."""

import time

import pytest

pytest.importorskip("streamlit")

from planner.forecast import step_on
from planner.scenario import Strategy
from planner.ui import first, work


@pytest.mark.parametrize("preset", work.preset_names())
def test_the_first_estimate_of_a_pipeline_is_near_the_forecast(preset):
    scenario = work.load_preset(preset)
    for strategy in scenario.strategies.values():
        if not isinstance(strategy, Strategy) or (strategy.pp or 1) < 2:
            continue
        found = first.first_estimate_s(scenario=scenario, strategy=strategy)
        batch = scenario.training.global_batch_sequences
        _, answer = step_on(scenario=scenario, strategy=strategy, gpus=scenario.gpus, global_batch=batch, engine="fast")
        compiled = strategy.framework is not None and strategy.framework.mode in {"compile", "regional"}
        plain = not (scenario.cluster.profile or strategy.optimisations or compiled)
        assert found == (pytest.approx(answer.step_s, rel=0.1) if plain else None)


def test_only_long_steps_have_one_and_it_does_not_keep_waiting():
    assert first.first_estimates(work.load_preset("llama3-70b-256xh100")) == {}
    scenario = work.load_preset("megatron-1t-3072xa100")
    first.first_estimates(scenario)
    began = time.process_time()
    found = first.first_estimates(scenario)
    assert time.process_time() - began < 0.3
    assert set(found) == {"published", "engineered"}
    assert all(step_s > 1 and length_days > 1 for step_s, length_days in found.values())
