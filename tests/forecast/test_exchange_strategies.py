"""Compressed, local and stale exchange as strategies of a scenario."""

import pytest

from planner.forecast import forecast_strategy
from planner.scenario import ScenarioError
from planner.scenario.load import parse_scenario

TEXT = """model: llama2-7b
cluster: {{node: a100-ethernet-100g, nodes: 4}}
training: {{tokens: 1e11, sequence_length: 4096, global_batch_sequences: 64}}
strategies:
  a: {{tp: 4, zero_stage: 0, micro_batch_sequences: 1, framework: {{name: megatron, release: 2024}}{more}}}
"""


def forecast(more="", engine="fast"):
    scenario = parse_scenario(TEXT.format(more=more))
    return forecast_strategy(scenario=scenario, name="a", engine=engine)


@pytest.fixture(scope="module")
def plain():
    return forecast()


@pytest.mark.parametrize("kind", ["fp16", "int8", "onebit", "{kind: lowrank, rank: 8}", "{every_steps: 8}",
                                  "{staleness_steps: 1}"])  # fmt: skip
def test_each_shortens_the_step_on_ethernet_and_warns_of_convergence(plain, kind):
    found = forecast(f", gradient_compression: {kind}")
    assert found.answer.step_s < plain.answer.step_s
    assert any(w.startswith("convergence: ") for w in found.warnings)
    assert sum(dict(found.answer.breakdown_s).values()) == pytest.approx(found.answer.step_s)
    events = forecast(f", gradient_compression: {kind}", engine="events")
    assert events.answer.step_s == pytest.approx(found.answer.step_s, rel=0.01)


def test_none_changes_nothing(plain):
    assert forecast(", gradient_compression: none").answer == plain.answer


def test_local_steps_divide_the_exchange(plain):
    link = lambda f: dict(f.answer.link_busy_s)["dp"]  # noqa: E731
    assert link(forecast(", gradient_compression: {every_steps: 10}")) == pytest.approx(link(plain) / 10)


def test_what_must_be_kept_is_counted_in_memory(plain):
    grown = forecast(", gradient_compression: onebit").answer.memory.peak_bytes - plain.answer.memory.peak_bytes
    params = plain.document["params"] / 4
    assert grown == pytest.approx(4 * params, rel=0.02)


def test_an_open_zero_stage_is_closed_to_suit_and_a_wrong_one_refused():
    open_stage = TEXT.replace("zero_stage: 0, ", "")
    scenario = parse_scenario(open_stage.format(more=", gradient_compression: {every_steps: 4}"))
    assert forecast_strategy(scenario=scenario, name="a", engine="fast").resolved.layout.zero_stage == 0
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(TEXT.replace("zero_stage: 0", "zero_stage: 2").format(more=", gradient_compression: lowrank"))
    assert caught.value.issues[0].path == "strategies.a.gradient_compression"
    with pytest.raises(ScenarioError):
        parse_scenario(TEXT.format(more=", gradient_compression: gzip"))
