"""Scenario files: units, bombs, duplicates, layout checks."""

import pytest

from planner.scenario import ScenarioError, parse_scenario

SIX = """model: llama3-8b
cluster: {node: hgx-h100, nodes: 2}
training: {tokens: 2T, sequence_length: 8192, global_batch_sequences: 64}
"""


def test_six_lines_suffice():
    scenario = parse_scenario(SIX)
    assert scenario.training.tokens == 2e12
    assert scenario.gpus == 16
    assert set(scenario.strategies) == {"stack"}


def test_text_with_units_is_stored_si():
    text = SIX.replace("nodes: 2}", "nodes: 2, fabric: {kind: roce, node_bytes_per_s: 400 Gb/s}}")
    scenario = parse_scenario(
        text + "run: {detection_s: 5 min, checkpoint_interval_s: 3h}\ngoals: {deadline_days: 2w}\n"
    )
    assert scenario.cluster.fabric.node_bytes_per_s == 50e9
    assert scenario.run.detection_s == 300
    assert scenario.run.checkpoint_interval_s == 10800
    assert scenario.goals.deadline_days == 14


@pytest.mark.parametrize(
    ("extra", "where"),
    [
        ("strategies: {a: {tp: 3}}", "tp"),
        ("strategies: {a: {pp: 64}}", "pp"),
        ("strategies: {a: {dp: 5}}", "dp"),
        ("strategies: {a: {vpp: 2}}", "vpp"),
        ("strategies: {a: {ep: 2}}", "ep"),
        ("strategies: {a: {micro_batch_sequences: 3}}", "micro_batch_sequences"),
        ("strategies: {a: {sequence_parallel: true}}", "sequence_parallel"),
    ],
)
def test_impossible_layouts(extra, where):
    with pytest.raises(ScenarioError) as error:
        parse_scenario(SIX + extra)
    assert any(i.path.endswith(where) and i.line == 4 for i in error.value.issues)


def test_duplicates_aliases_and_depth_are_refused():
    with pytest.raises(ScenarioError, match="twice"):
        parse_scenario(SIX + "model: gpt2\n")
    with pytest.raises(ScenarioError, match="aliases"):
        parse_scenario("a: &x [1, 2]\nb: [*x, *x]\n")
    with pytest.raises(ScenarioError, match="nested"):
        parse_scenario("a: " + "[" * 50 + "]" * 50)
    with pytest.raises(ScenarioError, match="larger"):
        parse_scenario("# " + "x" * (1 << 21))


def test_layout_errors_do_not_hide_behind_key_errors():
    with pytest.raises(ScenarioError) as error:
        parse_scenario(SIX + "strategies:\n  a: {tp: 3, colour: red}\n")
    codes = {i.code for i in error.value.issues}
    assert {"layout", "unknown_key"} <= codes


def test_hash_follows_the_content():
    a, b = parse_scenario(SIX), parse_scenario(SIX.replace("nodes: 2", "nodes: 4"))
    assert a.hash() != b.hash()
    assert a.hash() == parse_scenario(SIX).hash()
