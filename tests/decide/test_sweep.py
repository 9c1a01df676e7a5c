"""Scaling curves: efficiency, knee, causes and sizes that cannot be run."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.decide.sweep import KNEE_EFFICIENCY, bend_of, gpu_counts, sweep
from planner.forecast import ForecastError
from planner.scenario import load_scenario

SCENARIOS = sorted((Path(__file__).resolve().parents[2] / "scenarios").glob("*.yaml"))


def scenario_of(name):
    return load_scenario(next(p for p in SCENARIOS if p.stem.startswith(name)))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_every_shipped_scenario_has_its_own_size_on_a_curve(path):
    scenario = load_scenario(path)
    found = sweep(scenario=scenario, first=scenario.gpus, last=scenario.gpus, kinds=("weak",))
    points = found.document["points"]
    assert [p["gpus"] for p in points] == [scenario.gpus]
    assert points[0]["scaling_efficiency"] == pytest.approx(1.0)


@pytest.fixture(scope="module")
def gpt2():
    return sweep(scenario=scenario_of("gpt2"), first=8, last=2048)


def test_the_document_has_the_keys_of_the_contract(gpt2):
    document = gpt2.document
    assert {"schema_version", "scenario_hash", "versions", "seed", "points", "knee"} <= set(document)
    assert all({"gpus", "step_s", "scaling_efficiency", "cause"} <= set(p) for p in document["points"])
    assert {"gpus", "cause"} <= set(document["knee"])


def test_strong_scaling_ends_where_the_batch_ends(gpt2):
    """512 sequences cannot feed more than 512 ranks: beyond it the step stays and the efficiency halves."""
    curve = next(c for c in gpt2.curves if (c.strategy, c.kind) == ("stack", "strong"))
    by_gpus = {p.gpus: p for p in curve.points}
    assert by_gpus[2048].used_gpus == by_gpus[512].used_gpus == 512
    assert by_gpus[2048].answer.step_s == by_gpus[512].answer.step_s
    assert by_gpus[2048].efficiency == pytest.approx(by_gpus[512].efficiency / 4)
    assert by_gpus[2048].cause == "batch_limit"
    assert by_gpus[128].cause == "launch"


def test_efficiency_is_throughput_of_all_paid_gpus_over_the_reference(gpt2):
    for curve in gpt2.curves:
        first = curve.points[0]
        for p in curve.points:
            expected = (p.answer.tokens_per_s / p.gpus) / (first.answer.tokens_per_s / first.gpus)
            assert p.efficiency == pytest.approx(expected)
            assert sum(p.lost_frac.values()) == pytest.approx(1 - p.efficiency, abs=1e-9)


def test_the_knee_is_the_last_size_above_the_threshold(gpt2):
    for curve in gpt2.curves:
        above = [p.gpus for p in curve.points if p.efficiency >= KNEE_EFFICIENCY]
        assert curve.knee.gpus == above[-1]
        assert curve.knee.reached == (above[-1] < curve.points[-1].gpus)
        assert (curve.knee.cause is None) != curve.knee.reached


def test_pipelines_lose_to_the_bubble_when_the_batch_is_kept():
    found = sweep(scenario=scenario_of("llama3"), first=512, last=8192, kinds=("strong",), strategies=["engineered"])
    assert [p.cause for p in found.curves[0].points[1:]] == ["bubble"] * 4


def test_ethernet_is_held_back_by_the_gradient_exchange():
    found = sweep(scenario=scenario_of("llama2-7b"), first=8, last=64, kinds=("weak",))
    assert all(p.cause == "exposed_dp" for c in found.curves for p in c.points[1:])
    assert all(c.knee.gpus == 8 for c in found.curves)


def test_sizes_that_cannot_run_say_why():
    found = sweep(scenario=scenario_of("llama3"), first=8, last=64, kinds=("weak",))
    reasons = {c.strategy: dict(c.infeasible) for c in found.curves}
    assert reasons["stack"][8].startswith("memory")
    assert reasons["engineered"][8].startswith("layout")


def test_a_node_without_a_network_gives_way_to_one_with_it():
    found = sweep(scenario=scenario_of("llama-1b"), first=1, last=16, kinds=("weak",), strategies=["stack"])
    assert [p.gpus for p in found.curves[0].points] == [1, 2, 4, 8, 16]
    assert any("has no network" in w for w in found.warnings)


def test_unknown_and_unresolved_strategies_are_refused():
    scenario = scenario_of("gpt2")
    with pytest.raises(ForecastError, match="no strategy"):
        sweep(scenario=scenario, strategies=["nope"])
    auto = scenario.model_copy(update={"strategies": {"best": "auto"}})
    with pytest.raises(ForecastError, match="auto"):
        sweep(scenario=auto)


@given(first=st.integers(1, 300), spread=st.integers(0, 20000), per_node=st.sampled_from([1, 4, 8, 72]))
def test_counts_are_whole_nodes_inside_the_range(first, spread, per_node):
    counts = gpu_counts(first=first, last=first + spread, gpus_per_node=per_node, own=8 * per_node)
    assert counts == sorted(set(counts))
    assert all(c <= first + spread and (c < per_node or c % per_node == 0) for c in counts)


def test_an_empty_range_is_refused():
    with pytest.raises(ValueError, match="range"):
        gpu_counts(first=16, last=8, gpus_per_node=8, own=8)


def test_the_bend_is_the_corner():
    assert bend_of(gpus=[8, 16, 32, 64, 128], efficiency=[1.0, 0.99, 0.98, 0.6, 0.2]) == 32
    assert bend_of(gpus=[8, 16, 32], efficiency=[1.0, 0.9, 0.8]) == 32
    assert bend_of(gpus=[8], efficiency=[1.0]) == 8
