"""`strategies.*.optimisations` act on the forecast: direction, conditions, conflicts, people, the roadmap's gain."""

from datetime import date
from pathlib import Path

import pytest

from planner.catalog.optimisations import optimisations
from planner.decide.roadmap import roadmap
from planner.forecast import forecast_strategy
from planner.money.people import effort
from planner.scenario import ScenarioError, load_scenario, parse_scenario
from planner.workload.effects import CONDITION_WORDS, LEAST_GAIN_FRAC, words_of

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
DENSE = {"model": "llama2-7b", "node": "hgx-h100", "nodes": 2, "batch": 64, "sequence": 4096}
SMALL = {**DENSE, "model": "gpt2", "nodes": 1, "sequence": 1024}
EXPERTS = {**DENSE, "model": "mixtral-8x7b", "nodes": 4}
PIPELINE = {"tp": 2, "pp": 4, "zero_stage": 1, "micro_batch_sequences": 1, "framework": {"name": "megatron"}}
OLD = {"framework": {"name": "pytorch", "release": 2020}}
ETHERNET = "{kind: ethernet, node_bytes_per_s: 25 Gb/s}"
LARGE = {**DENSE, "model": "llama3-70b", "nodes": 32, "batch": 256}
LATE = {"overlap": {"dp": False}}
WIRE = {"zero_stage": 0, "micro_batch_sequences": 1, **LATE}
# A scenario in which the conditions of an optimisation hold; a key that is not listed works on the plain stack.
SUITABLE = {
    "tf32": (DENSE, {"precision": "fp32"}, ()),
    "amp": (DENSE, {"precision": "fp32"}, ()),
    "fp8_tensorwise": (DENSE, {}, ("torch_compile",)),
    "fp8_rowwise": (DENSE, {}, ("torch_compile",)),
    "mx_nv_fp": ({**DENSE, "node": "hgx-b200"}, {}, ()),
    "flash_attn": (DENSE, OLD, ()),
    "fused_optimizer": (SMALL, {"optimizer": "adamw_foreach"}, ()),
    "opt_batching": (SMALL, {"optimizer": "adamw_loop"}, ()),
    "shape_padding": (SMALL, {}, ()),
    "grouped_gemm": (EXPERTS, {"ep": 8}, ()),
    "cast_removal": (DENSE, {"precision": "amp"}, ()),
    "framework_upgrade": (DENSE, OLD, ()),
    "dp_overlap": (DENSE, {"zero_stage": 2, **LATE}, ()),
    "fsdp_prefetch": (DENSE, {"zero_stage": 3, "framework": {"name": "deepspeed"}}, ()),
    "async_ckpt_eval": (LARGE, {}, ()),
    "layout_search": (LARGE, {}, ()),
    "rate_limiter": (DENSE, {"zero_stage": 3}, ()),
    "host_sync": (SMALL, {"micro_batch_sequences": 1}, ()),
    "cuda_graphs": (SMALL, {"micro_batch_sequences": 4}, ()),
    "zero_stage": ({**DENSE, "fabric": ETHERNET}, {"zero_stage": 2, "micro_batch_sequences": 4}, ()),
    "seq_parallel": (DENSE, {"tp": 4}, ()),
    "async_tp": (DENSE, {"tp": 4, "overlap": {"tp": False}}, ()),
    "interleaved": (DENSE, PIPELINE, ()),
    "zero_bubble": (DENSE, PIPELINE, ()),
    "ep_overlap": ({**EXPERTS, "model": "qwen3-30b-a3b"}, {"ep": 32}, ()),
    "cp_balance": (DENSE, {"cp": 2}, ()),
    "collective_tuning": (SMALL, WIRE, ()),
    "grad_compression": (SMALL, WIRE, ()),
    "zero_quant": ({**DENSE, "fabric": "ethernet"}, {"zero_stage": 3, **LATE}, ()),
    "local_sgd": ({**SMALL, "nodes": 2, "fabric": ETHERNET}, WIRE, ()),
    "full_ac": (DENSE, {"recompute": "none", "micro_batch_sequences": 1, "zero_stage": 3}, ()),
    "selective_ac": (DENSE, {"recompute": "none", "micro_batch_sequences": 1, "zero_stage": 3}, ()),
    "parallel_block": (DENSE, {"tp": 4}, ()),
    "moe": (DENSE, {}, ()),
}
NO_CHANGE = {"allocator", "rate_limiter"}  # the usual factor is 1: most jobs gain nothing, some a lot


def scenario(where, strategy):
    fabric = f", fabric: {where['fabric']}" if "fabric" in where else ""
    text = f"""
model: {where["model"]}
cluster: {{node: {where["node"]}, nodes: {where["nodes"]}{fabric}}}
training: {{tokens: 1e10, sequence_length: {where["sequence"]}, global_batch_sequences: {where["batch"]}}}
strategies:
  plain: {{preset: stack}}
"""
    loaded = parse_scenario(text)
    plain = loaded.strategies["plain"]
    return loaded.model_copy(
        update={"strategies": {"x": type(plain).model_validate({**plain.model_dump(), **strategy})}}
    )


def forecast(where, strategy, keys=()):
    one = scenario(where, {**strategy, "optimisations": tuple(keys)})
    return forecast_strategy(scenario=one, name="x", engine="fast").document


@pytest.mark.parametrize("key", list(optimisations()))
def test_each_moves_a_suitable_forecast_the_way_the_catalogue_says(key):
    where, strategy, first = SUITABLE.get(key, (DENSE, {}, ()))
    before, after = forecast(where, strategy, first), forecast(where, strategy, (*first, key))
    effect = after["optimisations"][-1]
    assert effect["key"] == key
    assert effect["applied"], effect["note"]
    ratio = after["days"]["p50"] / before["days"]["p50"]
    entry = optimisations()[key]
    if key in NO_CHANGE:
        assert ratio == pytest.approx(1, abs=1e-3)
        assert "changes nothing" in effect["note"]
    elif entry.factor_typical > 1:
        assert 1 < ratio <= entry.factor_worst
    elif key in {"fp8_rowwise", "local_sgd", "cuda_graphs", "zero_stage"}:  # better or worse by shape
        assert entry.factor_best - 0.1 < ratio <= entry.factor_worst
        assert abs(ratio - 1) > 1e-3
    else:
        assert ratio < 1 - LEAST_GAIN_FRAC / 2
    # What the list says is what the run shows: goodput moves a little with the length of the run.
    assert 1 - ratio == pytest.approx(effect["gain_frac"], abs=0.01)


@pytest.mark.parametrize("key", ["torch_compile", "fa3", "fused_pointwise", "layout_search", "async_ckpt_eval"])
def test_a_step_of_the_roadmap_gains_what_a_forecast_with_it_gains(key):
    loaded = load_scenario(SCENARIOS / "llama3-70b-256xh100.yaml")
    road = roadmap(scenario=loaded, name="stack", start=date(2026, 12, 1))
    alone = road.plan.alone[key]
    strategy = loaded.strategies["stack"].model_copy(update={"optimisations": (key,)})
    other = loaded.model_copy(update={"strategies": {"stack": strategy}})
    before = forecast_strategy(scenario=loaded, name="stack", engine="fast").document["days"]["p50"]
    after = forecast_strategy(scenario=other, name="stack", engine="fast").document["days"]["p50"]
    assert before / after == pytest.approx(2.718281828459045**alone, rel=0.005)


def test_the_road_starts_behind_what_is_already_done():
    loaded = load_scenario(SCENARIOS / "llama3-70b-256xh100.yaml")
    strategy = loaded.strategies["stack"].model_copy(update={"optimisations": ("torch_compile",)})
    done = loaded.model_copy(update={"strategies": {"stack": strategy}})
    road = roadmap(scenario=done, name="stack", start=date(2026, 12, 1))
    assert "torch_compile" not in {s["key"] for s in road.document["steps"]}
    assert "already" in road.plan.refused["torch_compile"]


def test_order_does_not_matter_where_one_needs_another():
    a = forecast(DENSE, {}, ("fp8_tensorwise", "torch_compile"))
    b = forecast(DENSE, {}, ("torch_compile", "fp8_tensorwise"))
    assert a["step_s"] == b["step_s"]
    assert [e["key"] for e in a["optimisations"]] == ["torch_compile", "fp8_tensorwise"]


def test_conflicts_and_missing_conditions_are_said_and_cost_nothing():
    document = forecast(DENSE, {}, ("torch_compile", "hand_cuda", "interleaved"))
    refused = {e["key"]: e for e in document["optimisations"] if not e["applied"]}
    assert set(refused) == {"hand_cuda", "interleaved"}
    assert "excludes torch_compile" in refused["hand_cuda"]["note"]
    assert "pp above 1" in refused["interleaved"]["note"]
    assert sum(e["effort_weeks"] for e in refused.values()) == 0
    assert document["step_s"] == forecast(DENSE, {}, ("torch_compile",))["step_s"]
    assert sum("hand_cuda" in w for w in document["warnings"]) == 1
    assert document["strategy"]["optimisations"] == ["torch_compile"]


def test_weeks_of_the_catalogue_are_paid_unless_the_strategy_states_its_own():
    entry = optimisations()["torch_compile"]
    open_weeks = forecast(DENSE, {}, ("torch_compile",))
    team = scenario(DENSE, {}).team
    assert open_weeks["engineering_weeks"] == pytest.approx(effort(entry=entry, team=team)[1])
    assert open_weeks["people_usd"]["engineering"] > 0
    stated = forecast(DENSE, {"engineering_weeks": 2.0}, ("torch_compile",))
    assert stated["engineering_weeks"] == 2.0
    assert forecast(DENSE, {})["engineering_weeks"] == 0.0
    # Paying for a step of work does not by itself make people save checkpoints differently.
    assert open_weeks["recovery_s"] == forecast(DENSE, {})["recovery_s"]


def test_the_breakdown_still_adds_up_and_useful_flops_stay_those_of_the_model():
    for keys in ((), ("shape_padding",), ("torch_compile", "host_sync")):
        document = forecast(SMALL, {"micro_batch_sequences": 8}, keys)
        assert sum(document["breakdown_s"].values()) == pytest.approx(document["step_s"]["p50"])
        useful = document["model_tflops_per_gpu"] * document["step_s"]["p50"]
        if not keys:
            plain = useful
        assert useful == pytest.approx(plain)


def test_compiling_by_mode_and_by_name_agree():
    by_mode = forecast(SMALL, {"framework": {"name": "pytorch", "mode": "compile"}})
    by_name = forecast(SMALL, {"framework": {"name": "pytorch"}}, ("torch_compile",))
    assert by_name["step_s"]["p50"] == pytest.approx(by_mode["step_s"]["p50"], rel=0.03)


def test_an_unknown_name_is_an_input_error_with_the_nearest():
    text = (SCENARIOS / "llama-1b-single-h200.yaml").read_text("utf-8")
    text = text.replace("stack: {preset: stack}", "stack: {preset: stack, optimisations: [torch_compil, fa3]}")
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text)
    issue = caught.value.issues[0]
    assert (issue.code, issue.path) == ("unknown_name", "strategies.stack.optimisations.0")
    assert "torch_compile" in issue.nearest
    assert issue.line == 7


def test_every_condition_of_the_catalogue_has_words():
    plain = {c for e in optimisations().values() for c in e.requires if ":" in c and not c.startswith("arch:")}
    plain |= {c for e in optimisations().values() for c in e.requires if c.isalpha()}
    assert plain <= set(CONDITION_WORDS)
    assert words_of("arch:Hopper") == "it needs a GPU of generation Hopper or later"
    assert words_of("dp>1") == "it needs dp above 1"
