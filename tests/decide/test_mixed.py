"""A mixed fleet runs at its slowest rank, and costs the mean of what its parts cost."""

import json
import subprocess
import sys

import pytest

from planner.decide.mixed import Pace, equal_fleet, paces, slowest
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


def plain(node, nodes):
    text = TEXT.format(first=node, n=nodes, second="", m=1, dp=4 * nodes, more="")
    return text.replace(", also: [{node: , nodes: 1}]", "")


def equal(node, nodes):
    return parse_scenario(plain(node, nodes))


def document(text):
    fleet = equal_fleet(parse_scenario(text))[0]
    return forecast_strategy(scenario=fleet, name="only", engine="fast").document


def step_s(scenario):
    return forecast_strategy(scenario=scenario, name="only", engine="fast").document["step_s"]["p50"]


def test_it_steps_as_its_slowest_type_alone():
    fleet, told = equal_fleet(parse_scenario(mixed()))
    assert fleet.cluster.node == "dgx-a100-80g"
    assert fleet.gpus == 128
    assert step_s(fleet) == step_s(equal("dgx-a100-80g", 16)) > step_s(equal("hgx-h100", 16))
    assert "8 hgx-h100 + 8 dgx-a100-80g" in told


def test_the_order_of_the_parts_does_not_matter():
    one, other = document(mixed()), document(mixed(first="dgx-a100-80g", second="hgx-h100"))
    assert one["step_s"] == other["step_s"]
    assert one["price"]["usd_per_gpu_hour"] == pytest.approx(other["price"]["usd_per_gpu_hour"])


def test_the_rent_is_the_mean_over_the_gpus():
    dear, cheap = (document(plain(node, 16))["price"] for node in ("hgx-h100", "dgx-a100-80g"))
    mean = document(mixed(n=4, m=12))["price"]
    assert dear["usd_per_gpu_hour"] > cheap["usd_per_gpu_hour"]
    assert mean["usd_per_gpu_hour"] == pytest.approx(0.25 * dear["usd_per_gpu_hour"] + 0.75 * cheap["usd_per_gpu_hour"])
    assert min(dear["sigma"], cheap["sigma"]) < mean["sigma"] < max(dear["sigma"], cheap["sigma"])
    assert mean["source"] == f"{dear['source']}; {cheap['source']}"
    assert mean["date"] == min(dear["date"], cheap["date"])
    assert mean["label"] == "published"


def test_an_own_quote_stays():
    own = document(mixed() + "pricing: {usd_per_gpu_hour: 1.5, quote_date: 2026-11-01}\n")
    assert own["price"]["usd_per_gpu_hour"] == 1.5


def test_bought_servers_cost_the_mean_too():
    dear, cheap = (
        document(plain(node, 16))["ownership"]["capex_usd"]["servers"] for node in ("hgx-h100", "dgx-a100-80g")
    )
    assert dear != cheap
    mean = document(mixed(n=4, m=12))["ownership"]["capex_usd"]["servers"]
    assert mean == pytest.approx(0.25 * dear + 0.75 * cheap)


def test_every_type_paces_as_the_fleet_would_if_all_were_of_it():
    scenario = parse_scenario(mixed())
    found = paces(scenario=scenario, strategy=scenario.strategies["only"])
    assert [(p.node, p.nodes, p.step_s) for p in found] == [
        (node, 8, step_s(equal(node, 16))) for node in ("hgx-h100", "dgx-a100-80g")
    ]


def test_what_cannot_run_decides_before_what_is_slow():
    fast, slow = Pace("a", 8, 1.0, True), Pace("b", 8, 2.0, True)
    full, nowhere = Pace("c", 8, 0.5, False), Pace("d", 8, None, False)
    assert slowest((fast, slow)) == slow
    assert slowest((full, fast, slow)) == full
    assert slowest((slow, full, nowhere)) == nowhere


def test_a_name_alone_is_one_node():
    short = plain("hgx-h100", 7).replace("nodes: 7", "nodes: 7, also: dgx-a100-80g").replace("dp: 28", "dp: 32")
    (part,) = parse_scenario(short).cluster.also
    assert (part.node, part.nodes) == ("dgx-a100-80g", 1)


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
    found = json.loads(done.stdout)
    assert found["fits"]
    assert any("mixed fleet of 8 hgx-h100 + 8 dgx-a100-80g" in w for w in found["warnings"])
