"""A better network never slows a forecast, one rank costs nothing on the wire, and parts add up."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.forecast import forecast_strategy
from planner.scenario.load import parse_scenario

TEXT = """model: llama2-7b
cluster: {{node: {node}, nodes: {nodes}{fabric}}}
training: {{tokens: 1e11, sequence_length: 4096, global_batch_sequences: 64}}
strategies:
  sharded: {{zero_stage: 3, recompute: full, micro_batch_sequences: 1}}
  hybrid: {{tp: 2, pp: 2, vpp: 2, zero_stage: 1, micro_batch_sequences: 1}}
  replicated: {{tp: 8, zero_stage: 0, micro_batch_sequences: 1, overlap: {{dp: false}}}}
"""
NAMES = ("sharded", "hybrid", "replicated")


def answer(name, *, nodes=4, node="hgx-h100", **fabric):
    text = ", ".join(f"{k}: {v}" for k, v in fabric.items())
    scenario = parse_scenario(TEXT.format(node=node, nodes=nodes, fabric=f", fabric: {{{text}}}" if text else ""))
    return forecast_strategy(scenario=scenario, name=name, engine="fast").answer


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    gbps=st.floats(10, 3200),
    latency_us=st.floats(0, 500),
    share=st.floats(0.1, 1.0),
    better=st.floats(1.0, 10.0),
)
def test_a_better_network_never_slows(name, gbps, latency_us, share, better):
    base = {"node_bytes_per_s": gbps * 1e9 / 8, "latency_s": latency_us * 1e-6, "efficiency_frac": share}
    slow = answer(name, **base).step_s * (1 + 1e-9)
    assert answer(name, **(base | {"node_bytes_per_s": base["node_bytes_per_s"] * better})).step_s <= slow
    assert answer(name, **(base | {"latency_s": base["latency_s"] / better})).step_s <= slow
    assert answer(name, **(base | {"efficiency_frac": min(1.0, share * better)})).step_s <= slow
    assert answer(name, **base, oversubscription=better).step_s >= slow / (1 + 1e-6) * (1 - 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_parts_add_up(name):
    found = answer(name, node_bytes_per_s=12.5e9)
    assert sum(dict(found.breakdown_s).values()) == pytest.approx(found.step_s)


def test_one_gpu_has_nothing_on_the_wire():
    scenario = parse_scenario(
        "model: gpt2\ncluster: {node: single-h200, nodes: 1}\n"
        "training: {tokens: 1e9, sequence_length: 1024, global_batch_sequences: 8}\n"
    )
    found = forecast_strategy(scenario=scenario, name="stack", engine="fast").answer
    assert set(dict(found.link_busy_s).values()) == {0.0}
