"""Measured fabrics: tables are kept, gaps are interpolated, the rest follows the fit, and a forecast uses them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from planner import catalog
from planner.cost.collective import collective_s, shipped_model, with_measured
from planner.cost.topology import network_of
from planner.cost.types import Fabric, Group
from planner.forecast import ForecastError, forecast_strategy
from planner.profile.load import load_profile
from planner.scenario.load import parse_scenario

NODE = catalog.node("hgx-h100")
NETWORK = network_of(node=NODE, gpu=catalog.gpu(NODE.gpu))
SLOW = replace(NETWORK, fabric=Fabric(0.45, 30e-6, 0.02e-6, "fitted", 0.1, "a slow fabric"))


def profile(folder, rows, name="wire.json"):
    """A profile of collectives: (op, ranks, nodes, bytes, seconds)."""
    data = load_profile("h200-sxm-quick").model_dump(mode="json")
    sample = data["samples"][0] | {"kind": "collective", "layout": "out_of_place", "phase": "step"}
    data["samples"] = [
        sample | {"op": op, "shape": {"bytes": b, "ranks": n, "nodes": k}, "p10_s": s, "p50_s": s, "p90_s": s}
        for op, n, k, b, s in rows
    ]
    path = folder / name
    path.write_text(json.dumps(data))
    return str(path)


@pytest.fixture
def slow_file(tmp_path):
    group, rows = Group(16, 8), []
    for power in range(12, 33, 2):
        seconds = shipped_model(op="all_reduce", payload_bytes=2**power, group=group, network=SLOW).seconds
        rows.append(("all_reduce", 16, 2, 2**power, seconds))
    return profile(tmp_path, rows)


def test_measured_sizes_are_kept_and_gaps_interpolated(tmp_path):
    file = profile(tmp_path, [("all_reduce", 8, 1, 1e6, 1e-4), ("all_reduce", 8, 1, 4e6, 2e-4)])
    network = with_measured(network=NETWORK, profile=file)
    at = lambda nbytes: collective_s(op="all_reduce", payload_bytes=nbytes, group=Group(8, 8), network=network)  # noqa: E731
    assert (at(1e6).seconds, at(1e6).label) == (1e-4, "measured")
    assert at(2e6).seconds == pytest.approx(2**0.5 * 1e-4)
    assert at(2e6).label == "interpolated"
    assert at(4e9).seconds > at(4e6).seconds
    # Twice as slow as the packaged curve there: so are other operations of the same link.
    usual = shipped_model(op="all_reduce", payload_bytes=1e6, group=Group(8, 8), network=NETWORK).seconds
    gather = collective_s(op="all_gather", payload_bytes=1e6, group=Group(8, 8), network=network).seconds
    packaged = shipped_model(op="all_gather", payload_bytes=1e6, group=Group(8, 8), network=NETWORK).seconds
    assert gather / packaged == pytest.approx(1e-4 / usual)


def test_slow_downs_beside_a_collective_are_read(tmp_path):
    file = profile(tmp_path, [("all_reduce", 8, 1, 1e6, 1e-4)])
    data = json.loads(Path(file).read_text())
    beside = data["samples"][0] | {"kind": "overlap", "op": "matmul_beside_all_reduce", "p50_s": 1.2}
    data["samples"] += [beside | {"shape": {"bytes": 1e6, "ranks": 8, "nodes": n, "alone_s": 1.0}} for n in (1, 1)]
    (tmp_path / "beside.json").write_text(json.dumps(data))
    wire = with_measured(network=NETWORK, profile=str(tmp_path / "beside.json")).measured
    assert wire.beside_inside_frac == pytest.approx(0.2)
    assert wire.beside_across_frac is None


def test_the_fit_recovers_a_fabric_and_carries_to_other_groups(slow_file):
    network = with_measured(network=NETWORK, profile=slow_file)
    assert network.fabric.efficiency == pytest.approx(0.45, rel=0.05)
    assert network.fabric.latency_s == pytest.approx(30e-6, rel=0.1)
    for op, group in (("all_gather", Group(64, 8)), ("reduce_scatter", Group(32, 1, 8)), ("all_to_all", Group(16, 8))):
        found = collective_s(op=op, payload_bytes=1e8, group=group, network=network)
        assert found.seconds == pytest.approx(
            shipped_model(op=op, payload_bytes=1e8, group=group, network=SLOW).seconds, rel=0.1
        )
        assert found.label == "fitted"


TEXT = """model: llama2-7b
cluster: {{node: hgx-h100, nodes: 4{fabric}}}
training: {{tokens: 1e11, sequence_length: 4096, global_batch_sequences: 32}}
strategies:
  plain: {{tp: 1, zero_stage: 1, recompute: selective, overlap: {{dp: false}}}}
"""


def test_a_scenario_names_a_measured_fabric(slow_file):
    usual = parse_scenario(TEXT.format(fabric=""))
    named = parse_scenario(TEXT.format(fabric=f", fabric: {slow_file}"))
    assert named.cluster.fabric.measured == slow_file
    assert named.hash() != usual.hash()
    steps = [forecast_strategy(scenario=s, name="plain", engine="fast").answer for s in (usual, named)]
    assert dict(steps[1].breakdown_s)["exposed_dp"] > 1.3 * dict(steps[0].breakdown_s)["exposed_dp"]


def test_stated_latency_and_efficiency_act(slow_file):
    slow = parse_scenario(TEXT.format(fabric=", fabric: {efficiency_frac: 0.3, latency_s: 0.0001}"))
    usual = parse_scenario(TEXT.format(fabric=""))
    steps = [forecast_strategy(scenario=s, name="plain", engine="fast").answer.step_s for s in (usual, slow)]
    assert steps[1] > steps[0]


def test_a_file_that_cannot_be_used_is_an_input_error(tmp_path):
    empty = profile(tmp_path, [("all_reduce", 1, 1, 1e6, 1e-4)])
    for file in (empty, str(tmp_path / "none.json")):
        scenario = parse_scenario(TEXT.format(fabric=f", fabric: {file}"))
        with pytest.raises(ForecastError, match=r"cluster\.fabric"):
            forecast_strategy(scenario=scenario, name="plain", engine="fast")
