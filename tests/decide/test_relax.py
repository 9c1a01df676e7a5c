"""A strategy that does not fit says what to relax, and the first thing it says is true."""

import pytest

from planner.decide.compare import compare
from planner.decide.relax import relaxed
from planner.forecast import forecast_strategy
from planner.report.relax import relax_lines
from planner.scenario import Scenario, Strategy

KEYS = {"constraint", "by", "result", "changes", "fits", "saves_gb", "step_s", "step_change_frac", "why"}


def scenario(strategy, *, model="llama3-70b", nodes=4, batch=256, sequence=8192):
    return Scenario.model_validate(
        {
            "model": model,
            "cluster": {"node": "hgx-h100", "nodes": nodes},
            "training": {"tokens": 1e11, "sequence_length": sequence, "global_batch_sequences": batch},
            "strategies": {"a": strategy},
        }
    )


def forecast(given):
    return forecast_strategy(scenario=given, name="a", engine="fast")


def applied(given, change):
    """The scenario with the keys of a suggestion set."""
    keys = dict(change["changes"])
    nodes = keys.pop("cluster.nodes", given.cluster.nodes)
    strategy = given.strategies["a"].model_copy(update=keys)
    Strategy.model_validate(strategy.model_dump())
    cluster = given.cluster.model_copy(update={"nodes": nodes})
    return given.model_copy(update={"strategies": {"a": strategy}, "cluster": cluster})


OVER = {
    "tensor parallel": {"tp": 8, "pp": 1, "zero_stage": 1, "micro_batch_sequences": 4, "recompute": "none"},
    "pipeline": {"tp": 4, "pp": 2, "zero_stage": 1, "micro_batch_sequences": 2, "recompute": "none"},
    "data parallel": {"zero_stage": 0},
    "sharded": {"zero_stage": 3, "micro_batch_sequences": 8, "recompute": "none"},
    "interleaved": {"tp": 8, "pp": 2, "vpp": 4, "zero_stage": 0, "micro_batch_sequences": 4},
    "stack": {"preset": "stack"},
}


@pytest.mark.parametrize("name", OVER)
def test_the_first_suggestion_makes_it_fit(name):
    given = scenario(OVER[name], nodes=1 if name == "stack" else 4)
    before = forecast(given)
    assert not before.resolved.fits
    changes = relaxed(scenario=given, forecast=before)
    assert changes
    assert all(set(c) == KEYS for c in changes)
    first = changes[0]
    assert first["fits"]
    after = forecast(applied(given, first))
    assert after.resolved.fits
    assert after.answer.step_s == pytest.approx(first["step_s"], rel=0.02)


@pytest.mark.parametrize("name", OVER)
def test_every_suggestion_does_what_it_says(name):
    given = scenario(OVER[name], nodes=1 if name == "stack" else 4)
    before = forecast(given)
    for change in relaxed(scenario=given, forecast=before):
        after = forecast(applied(given, change))
        assert after.resolved.fits == change["fits"]
        if change["constraint"] != "cluster.nodes":
            was, now = (f.answer.memory.peak_bytes + f.answer.memory.reserved_bytes for f in (before, after))
            assert (was - now) / 1e9 == pytest.approx(change["saves_gb"], abs=0.01)


def test_a_strategy_that_fits_has_nothing_to_relax():
    given = scenario({"tp": 8, "pp": 4, "zero_stage": 1, "sequence_parallel": True})
    found = forecast(given)
    assert found.resolved.fits
    assert relaxed(scenario=given, forecast=found) == []


def test_a_plan_that_nothing_helps_says_so():
    given = scenario({"zero_stage": 3, "recompute": "full"}, model="deepseek-v3", nodes=1, batch=8, sequence=65536)
    found = forecast(given)
    document = {**found.document, "relax": relaxed(scenario=given, forecast=found)}
    assert not any(c["fits"] for c in document["relax"])
    assert "does not fit" in relax_lines({"a": document})[0]


def test_comparisons_carry_and_word_it():
    given = scenario(OVER["tensor parallel"])
    document = compare(scenario=given, engine="fast").document["strategies"]["a"]
    lines = relax_lines({"a": document})
    assert len(lines) == 1 + len(document["relax"])
    assert document["relax"][0]["constraint"] in lines[1]
    assert document["relax"][0]["result"] in lines[1]
