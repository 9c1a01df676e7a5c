"""A mixed fleet runs at its slowest rank, and costs the mean of what its parts cost."""

import json
import subprocess
import sys

import pytest

from planner.decide.mixed import equal_fleet, paces, slowest
from planner.forecast import ForecastError, forecast_strategy
from planner.scenario import ScenarioError, parse_scenario

TEXT = """
model: llama2-7b
cluster: {{node: {first}, nodes: {n}, also: [{{node: {second}, nodes: {m}}}]{more}}}
training: {{tokens: 1e11, sequence_length: 4096, global_batch_sequences: 1024}}
strategies:
  only: {{tp: 2, dp: {dp}, micro_batch_sequences: 1}}
"""


def mixed(first="hgx-h100", n=8, second="dgx-a100-80g", m=8, more=""):
    return TEXT.format(first=first, n=n, second=second, m=m, dp=4 * (n + m), more=more)


def equal(node, nodes):
    text = TEXT.format(first=node, n=nodes, second="", m=1, dp=4 * nodes, more="")
    return parse_scenario(text.replace(", also: [{node: , nodes: 1}]", ""))


def step_s(scenario):
    return forecast_strategy(scenario=scenario, name="only", engine="fast").document["step_s"]["p50"]


def test_it_steps_as_its_slowest_type_alone():
    fleet, told = equal_fleet(parse_scenario(mixed()))
    assert fleet.cluster.node == "dgx-a100-80g"
    assert fleet.gpus == 128
    assert step_s(fleet) == step_s(equal("dgx-a100-80g", 16)) > step_s(equal("hgx-h100", 16))
    assert "8 hgx-h100 + 8 dgx-a100-80g" in told


def test_the_order_of_the_parts_does_not_matter():
    one = equal_fleet(parse_scenario(mixed()))[0]
    other = equal_fleet(parse_scenario(mixed(first="dgx-a100-80g", second="hgx-h100")))[0]
    assert step_s(one) == step_s(other)
    assert one.pricing.usd_per_gpu_hour == pytest.approx(other.pricing.usd_per_gpu_hour)


def test_the_rent_is_the_mean_over_the_gpus():
    def price(first, second, n, m):
        return equal_fleet(parse_scenario(mixed(first=first, second=second, n=n, m=m)))[0].pricing.usd_per_gpu_hour

    dear, cheap = price("hgx-h100", "hgx-h100", 4, 12), price("dgx-a100-80g", "dgx-a100-80g", 4, 12)
    assert price("hgx-h100", "dgx-a100-80g", 4, 12) == pytest.approx(0.25 * dear + 0.75 * cheap)
    own = parse_scenario(mixed() + "pricing: {usd_per_gpu_hour: 1.5, quote_date: 2026-11-01}\n")
    assert equal_fleet(own)[0].pricing.usd_per_gpu_hour == 1.5


def test_the_type_that_cannot_hold_the_layout_decides():
    text = mixed(second="dgx-a100-40g").replace("tp: 2, dp: 64", "tp: 1, dp: 128, zero_stage: 0, recompute: none")
    scenario = parse_scenario(text)
    found = paces(scenario=scenario, strategy=scenario.strategies["only"])
    assert not slowest(found).fits


def test_an_equal_fleet_stays_what_it_is():
    scenario = equal("hgx-h100", 16)
    assert equal_fleet(scenario) == (scenario, "")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (mixed(second="dgx-a100-80"), "cluster.also[0].node"),
        (mixed(second="gb200-nvl72"), "cluster.also[0].node"),
        (mixed(more=", profile: h200-sxm"), "cluster.profile"),
    ],
)
def test_parts_that_cannot_train_along_are_named(text, path):
    with pytest.raises(ScenarioError) as found:
        parse_scenario(text)
    assert path in [i.path for i in found.value.issues]


def test_no_forecast_of_a_fleet_that_was_not_made_equal():
    with pytest.raises(ForecastError, match="mixed fleet"):
        forecast_strategy(scenario=parse_scenario(mixed()), name="only")


def test_commands_say_which_type_sets_the_pace(tmp_path):
    path = tmp_path / "mixed.yaml"
    path.write_text(mixed())
    words = [sys.executable, "-m", "planner.cli", "forecast", str(path), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "runs as 16 dgx-a100-80g" in done.stderr
    document = json.loads(done.stdout)
    assert document["fits"]
