"""The road: order, combination, money, and what team, ecosystem and target change."""

import math
from datetime import date
from pathlib import Path

import pytest

from planner.catalog.optimisations import conflict
from planner.decide.checklist import HEADROOM_FRAC, TOLERANCE, checklist, headroom_curve, migration_checklist
from planner.decide.roadmap import reach_probability, roadmap
from planner.scenario import load_scenario

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
START = date(2026, 12, 1)
ISSUE_TOPICS = {"numerics", "memory", "rollback", "nan switch", "versions", "libraries", "monitoring", "metrics"}


def scenario(name, **blocks):
    loaded = load_scenario(SCENARIOS / f"{name}.yaml")
    updates = {k: getattr(loaded, k).model_copy(update=v) for k, v in blocks.items()}
    return loaded.model_copy(update=updates)


def build(name, **blocks):
    return roadmap(scenario=scenario(name, **blocks), start=START)


@pytest.fixture(scope="module")
def seventy():
    return build("llama3-70b-256xh100")


def keys(road):
    return [s["key"] for s in road.document["steps"]]


def test_steps_never_conflict_and_follow_their_conditions(seventy):
    names = keys(seventy)
    assert len(names) == len(set(names)) > 4
    for i, a in enumerate(names):
        assert not any(conflict(a, b) for b in names[i + 1 :])
    assert names.index("torch_compile") < names.index("fp8_tensorwise")


def test_waterfall_adds_up(seventy):
    fall = seventy.document["waterfall"]
    now = fall["before_s"]
    for bar in fall["sequence"]:
        assert bar["before_s"] == pytest.approx(now)
        now = bar["after_s"]
    assert now == pytest.approx(fall["after_s"])
    assert fall["speedup"] == pytest.approx(fall["before_s"] / fall["after_s"])
    assert set(fall["leave_one_out_frac"]) == set(keys(seventy))


def test_leaving_a_prerequisite_out_costs_what_stands_on_it(seventy):
    lost = seventy.document["waterfall"]["leave_one_out_frac"]
    alone = {b["key"]: b["gain_frac"] for b in seventy.document["waterfall"]["sequence"]}
    assert lost["torch_compile"] > alone["torch_compile"]


def test_two_steps_on_the_same_bytes_weaken_each_other():
    fall = build("gpt2-124m-8xh100").document["waterfall"]
    assert fall["interaction_rest_frac"] < -0.05


def test_gains_are_ordered_and_dates_follow_money(seventy):
    document = seventy.document
    for s in document["steps"]:
        g = s["gain_frac"]
        assert g["p10"] < g["p50"] < g["p90"]
        assert s["effort_weeks"]["low"] < s["effort_weeks"]["mid"] < s["effort_weeks"]["high"]
        assert s["pays"] == (s["expected_saving_usd"] > s["cost_usd"])
        if s["payback_date"]:
            assert s["payback_date"] > START.isoformat()
        assert s["checks"]
    stop = document["cutoff"]
    assert stop["stop"] == (stop["next_gain_usd"] <= stop["next_cost_usd"])
    assert all(s["pays"] for s in document["steps"][: stop["after_steps"]])


def test_nothing_pays_on_a_run_that_costs_less_than_a_day_of_work():
    document = build("gpt2-124m-8xh100").document
    assert not any(s["pays"] for s in document["steps"])
    assert document["cutoff"]["stop"]
    many = build("gpt2-124m-8xh100", programme={"runs_per_year": 20_000.0}).document
    assert many["steps"][0]["pays"]
    assert not many["cutoff"]["stop"] or many["cutoff"]["after_steps"] > 0


def test_idle_and_exposed_time_puts_overlap_and_wire_first():
    road = build("gpt3-175b-1024xa100").document
    assert road["glue_first"]
    assert road["bottleneck"] == "wire"
    assert road["ceilings"]["parallel"] > 0.15
    first = road["steps"][0]
    assert first["side"] == "glue" or any(m.split()[0] in {"wire", "streams", "schedule"} for m in first["mechanism"])


def test_team_changes_the_order_and_the_price():
    with_systems = build("llama3-70b-256xh100", team={"systems": 3})
    without = build("llama3-70b-256xh100", team={"systems": 0})
    assert keys(with_systems) != keys(without)
    cost = {s["key"]: s["cost_usd"] for s in with_systems.document["steps"]}
    dear = {s["key"]: s["cost_usd"] for s in without.document["steps"]}
    assert any(dear[k] > cost[k] for k in dear.keys() & cost.keys())


def test_ecosystem_and_stage_change_structural_chances():
    locked = build("llama3-70b-256xh100", team={"algorithm": 2}).document["structural"]
    free = build("llama3-70b-256xh100", team={"algorithm": 2, "ecosystem": "own", "stage": "early"}).document[
        "structural"
    ]
    assert [s["key"] for s in locked] != [s["key"] for s in free]
    assert max(s["p_success"] for s in free) > max(s["p_success"] for s in locked)


def test_small_and_large_targets_get_different_roads():
    two = build("llama3-70b-256xh100", goals={"target_speedup": 1.4}).document
    ten = build("llama3-70b-256xh100", goals={"target_speedup": 10.0}).document
    assert [s["key"] for s in two["steps"]] != [s["key"] for s in ten["steps"]]
    assert {s["cut"] for s in ten["steps"]} == {"A", "B"}
    assert ten["steps"][0]["cut"] == "B"
    assert two["steps"][0]["cut"] == "A"
    assert ten["target"]["structural_needed"]
    assert ten["target"]["p_incremental"] < two["target"]["p_incremental"]


def test_reach_probability_is_monotone(seventy):
    steps = seventy.plan.steps
    seen = [reach_probability(steps=steps, target=t) for t in (1.0, 1.2, 1.5, 2.0, 4.0)]
    assert seen == sorted(seen, reverse=True)
    assert reach_probability(steps=(), target=1.5) == 0.0


def test_gains_elsewhere_depend_on_the_part(seventy):
    steps = {s["key"]: s for s in seventy.document["steps"]}
    assert steps["fa3"]["elsewhere_gain_frac"]["A100-80-SXM"] is None
    assert steps["fa3"]["elsewhere_gain_frac"]["H100-SXM"] == pytest.approx(steps["fa3"]["gain_alone_frac"])


def test_same_seed_same_answer():
    assert build("llama2-7b-lab-4x8xa100-ethernet").document == build("llama2-7b-lab-4x8xa100-ethernet").document


def test_checklist_covers_the_issue(seventy):
    for step in seventy.plan.steps:
        topics = {c.topic for c in checklist(key=step.entry.key, stack=step.after)}
        assert topics >= ISSUE_TOPICS
        if step.entry.quality_may_change:
            assert "quality" in topics
    overlap = {c.topic for c in checklist(key="async_tp", stack=seventy.plan.base)}
    assert "races" in overlap
    allocator = {c.topic for c in checklist(key="allocator", stack=seventy.plan.base)}
    assert "leaks" in allocator


def test_tolerance_follows_the_dtype(seventy):
    for dtype, (relative, _) in TOLERANCE.items():
        stack = seventy.plan.base.with_layout(precision=dtype)
        numerics = next(c for c in checklist(key="torch_compile", stack=stack) if c.topic == "numerics")
        assert f"{relative:g} relative" in numerics.passes_when
    assert TOLERANCE["fp32"] < TOLERANCE["fp16"] < TOLERANCE["bf16"] < TOLERANCE["fp8"]


def test_headroom_shrinks_with_length(seventy):
    free = [f for _, f in headroom_curve(seventy.plan.base)]
    assert free == sorted(free, reverse=True)
    assert 0 < HEADROOM_FRAC < 1
    merged = migration_checklist(stack=seventy.plan.base, keys=("torch_compile", "async_tp"))
    assert len(merged) == len({(c.topic, c.action) for c in merged})
    assert math.isfinite(free[0])
