"""Sizing: what is recommended meets the goals, what is to be relaxed is enough, and the parts behind it are right."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import nbinom, poisson

from planner import catalog
from planner.catalog.offers import proposed_gpus, sources
from planner.decide.requirements import CHECKPOINT_LOSS_FRAC, count_quantile, spare_nodes, storage_write_bytes_per_s
from planner.decide.size import _simulated, size
from planner.decide.size_goals import Demand, Figures, relaxations
from planner.decide.size_scan import dividing, long_step
from planner.decide.size_terms import offered, on_terms, placed, programme_share
from planner.forecast import ForecastError, step_on
from planner.scenario import Strategy, load_scenario
from planner.scenario.goals import Goals
from planner.simulate.run.closed_form import optimal_interval_s
from planner.simulate.run.plan import RunPlan

SCENARIOS = Path(__file__).parents[2] / "scenarios"
START_UP = load_scenario(SCENARIOS / "llama3-8b-which-cluster.yaml")
GPUS = ("H100", "H200")


def sized(scenario=START_UP, gpus=GPUS, strategy=None, **goals):
    wanted = scenario.model_copy(update={"goals": Goals(**goals)}) if goals else scenario
    return size(scenario=wanted, gpus=gpus, strategy=strategy)


@pytest.fixture(scope="module")
def answer():
    return sized()


def test_recommended_meets_every_goal(answer):
    goals, found = START_UP.goals, answer["recommended"]
    assert answer["feasible"]
    assert answer["relax"] == []
    assert answer["p_deadline"] >= goals.probability
    assert answer["p_budget"] >= goals.probability
    assert answer["required"]["power_kw"] <= goals.power_kw
    assert found["days"]["p50"] < goals.deadline_days
    plan = found["plan"]
    assert plan["tp"] * plan["pp"] * plan["dp"] * plan["cp"] == found["gpus"]
    ranks = plan["dp"] * plan["micro_batch_sequences"] * plan["micro_batches"]
    assert ranks == START_UP.training.global_batch_sequences


def test_smallest_and_cheapest(answer):
    small, cheap = answer["smallest"], answer["recommended"]
    assert small["gpus"] <= cheap["gpus"]
    assert cheap["cost_usd"]["p50"] <= small["cost_usd"]["p50"]


def test_contract_keys(answer):
    assert set(answer["recommended"]) >= {"gpu", "nodes", "fabric", "provider", "tenure", "plan", "spares"}
    assert set(answer["required"]) >= {"power_kw", "racks", "storage_write_gb_per_s"}
    assert all(set(a) >= {"test", "value", "unit"} for a in answer["acceptance"])
    units = [a["unit"] for a in answer["acceptance"]]
    assert units == ["GB/s", "GB/s", "GB/s", "TFLOP/s", "s"]
    rates = [a["value"] for a in answer["acceptance"][:3]]
    assert rates == sorted(rates)
    assert answer["acceptance"][-1]["value"] == pytest.approx(answer["recommended"]["step_s"]["p90"])


def test_what_is_to_be_relaxed_is_enough():
    tight = {"deadline_days": 30.0, "budget_usd": 1.2e5, "probability": 0.8}
    missed = sized(**tight)
    assert not missed["feasible"]
    assert missed["fits"]
    row = next(r for r in missed["relax"] if r["constraint"] == "budget_usd")
    assert row["alone"]
    assert row["by"] == pytest.approx(row["to"] - tight["budget_usd"])
    assert sized(**(tight | {"budget_usd": 1.03 * row["to"]}))["feasible"]


def test_more_time_never_needs_more_gpus():
    gpus = [sized(gpus=("H100",), deadline_days=d, probability=0.8)["smallest"]["gpus"] for d in (15, 40, 120)]
    assert gpus == sorted(gpus, reverse=True)
    assert gpus[0] > 4 * gpus[-1]


def test_power_bounds_the_cluster():
    small = sized(deadline_days=200, probability=0.8, power_kw=60)
    assert small["feasible"]
    assert small["required"]["power_kw"] <= 60
    none = sized(deadline_days=30, probability=0.8, power_kw=60)
    assert not none["feasible"]
    assert {r["constraint"] for r in none["relax"]} == {"deadline_days", "power_kw"}


def test_missing_goals_are_named_with_their_defaults():
    scenario = START_UP.model_copy(update={"goals": Goals()})
    found = size(scenario=scenario, gpus=("H100",))
    assert set(found["goals"]["missing"]) == {"deadline_days", "budget_usd", "power_kw", "rack_kw"}
    assert "cheapest per token" in found["goals"]["assumed"]["deadline_days"]
    assert found["feasible"]
    assert found["p_budget"] is None


def test_nothing_fits():
    big = load_scenario(SCENARIOS / "llama31-405b-16384xh100.yaml")
    found = size(scenario=big, gpus=("single-h200",))
    assert not found["fits"]
    assert not found["feasible"]
    assert found["recommended"] is None


def test_a_written_strategy_keeps_its_plan():
    found = sized(strategy="engineered", gpus=("H100",))["recommended"]["plan"]
    written = START_UP.strategies["engineered"]
    assert (found["tp"], found["zero_stage"], found["micro_batch_sequences"]) == (2, 1, written.micro_batch_sequences)


def test_unknown_names_are_refused():
    with pytest.raises(ForecastError, match="nope"):
        size(scenario=START_UP, strategy="nope")
    with pytest.raises(ForecastError, match="h9000"):
        size(scenario=START_UP, gpus=("h9000",))


def test_every_source_sells_a_node_with_its_part():
    assert {"H100-SXM", "H200-SXM", "B200-SXM", "A100-80-SXM"} <= set(proposed_gpus())
    for gpu in proposed_gpus():
        found = sources(gpu)
        assert found[0].provider is None
        assert len({s.provider for s in found}) == len(found)
        for source in found:
            assert catalog.node(source.node).gpu == gpu
            assert source.tenures
            assert source.provider is None or "own" not in source.tenures


def test_stated_terms_are_kept():
    pricing = START_UP.pricing.model_validate({"tenure": "reserved_1y", "provider": "AWS"})
    found = offered(scenario=START_UP.model_copy(update={"pricing": pricing}), gpu_names=())
    assert found
    assert {(s.provider, s.tenures) for s in found} == {("AWS", ("reserved_1y",))}
    quote = START_UP.pricing.model_validate({"usd_per_gpu_hour": 1.5})
    mine = [
        s for s in offered(scenario=START_UP.model_copy(update={"pricing": quote}), gpu_names=()) if "H100" in s.gpu
    ]
    assert [s.node for s in mine] == [catalog.node(START_UP.cluster.node).name]


def test_commitment_pays_for_the_idle_rest_of_the_year():
    source = sources("H100-SXM")[0]
    one = placed(scenario=START_UP, node=source.node, nodes=15)
    terms = {"scenario": one, "source": source, "days": 36.5, "spares": 3}
    assert on_terms(tenure="reserved_1y", **terms).pricing.commitment_used_frac == pytest.approx(0.1)
    assert on_terms(tenure="reserved_3y", **terms).pricing.commitment_used_frac == pytest.approx(0.1 / 3)
    bought = on_terms(tenure="own", **terms)
    assert bought.pricing.own.utilization_frac == pytest.approx(0.1)
    assert bought.pricing.own.spares_frac == pytest.approx(0.2)
    assert bought.run.spares == 3
    stated = one.model_copy(update={"pricing": one.pricing.model_validate({"commitment_used_frac": 0.7})})
    kept = on_terms(tenure="reserved_1y", **(terms | {"scenario": stated}))
    assert kept.pricing.commitment_used_frac == 0.7
    assert programme_share(scenario=one, days=730.0) == 1.0


FIGURES = {
    "days_sigma": 0.0, "cost_sigma": 0.0, "node_kw": 10.0, "racks": 1, "interruptions": 2.0, "goodput": 0.9,
    "usd_per_million_tokens": 1.0,
}  # fmt: skip


def made(days, cost, kw):
    return SimpleNamespace(figures=Figures(days=days, cost_usd=cost, facility_kw=kw, **FIGURES), label=(days, cost))


def test_relaxations_by_hand():
    goals = Goals(deadline_days=30, budget_usd=100, power_kw=50)
    demand = Demand.of(START_UP.model_copy(update={"goals": goals}))

    def describe(option):
        return {"label": option.label}

    single = [made(40, 90, 40), made(35, 90, 45), made(20, 180, 50), made(60, 150, 40)]
    found = {r["constraint"]: r for r in relaxations(demand=demand, options=single, describe=describe)}
    assert set(found) == {"deadline_days", "budget_usd"}
    assert found["deadline_days"]["by"] == pytest.approx(5)
    assert found["budget_usd"]["to"] == pytest.approx(180)
    both = relaxations(demand=demand, options=[made(60, 150, 40), made(33, 120, 40)], describe=describe)
    assert [(r["constraint"], r["alone"]) for r in both] == [("deadline_days", False), ("budget_usd", False)]
    assert both[0]["result"]["label"] == (33, 120)


@pytest.mark.parametrize("probability", [0.3, 0.5, 0.8, 0.95])
def test_replicated_runs_decide_on_the_deadline(probability):
    days = np.random.default_rng(3).gamma(20.0, 1.5, 4000)
    base = Figures(days=20.0, days_sigma=0.2, cost_usd=1.0, cost_sigma=0.0, facility_kw=1.0, node_kw=10.0, racks=1,
                   interruptions=2.0, goodput=0.9, usd_per_million_tokens=1.0)  # fmt: skip
    found = _simulated(figures=base, days=days, probability=probability)
    for limit in np.quantile(days, probability) * np.array([0.98, 1.02]):
        goals = Goals(deadline_days=float(limit), probability=probability)
        late = "deadline_days" in Demand.of(START_UP.model_copy(update={"goals": goals})).missed(found)
        assert late == ((days <= limit).mean() < probability)


@given(mean=st.floats(0.01, 200), shape=st.floats(0.2, 50), probability=st.floats(0.05, 0.999))
def test_count_quantile_is_the_negative_binomial(mean, shape, probability):
    # Exactly on a step of the distribution function either side is right.
    found = count_quantile(mean=mean, shape=shape, probability=probability)
    low = nbinom.ppf(probability * (1 - 1e-9), shape, shape / (shape + mean))
    high = nbinom.ppf(probability * (1 + 1e-9), shape, shape / (shape + mean))
    assert low <= found <= high


def test_count_quantile_without_spread_is_poisson():
    assert count_quantile(mean=7.5, shape=float("inf"), probability=0.95) == poisson.ppf(0.95, 7.5)


def test_spares_exceed_poisson_and_grow_with_nodes():
    def plan(nodes, sigma):
        return RunPlan(work_s=1e6, nodes=nodes, node_failures_per_s=6.5e-3 / 86_400, node_sigma=sigma)

    steady, spread = (spare_nodes(plan=plan(512, s), probability=0.95) for s in (0.0, 0.8))
    assert spread > steady > 0
    counts = [spare_nodes(plan=plan(n, 0.8), probability=0.95) for n in (8, 64, 512)]
    assert counts == sorted(counts)
    assert spare_nodes(plan=RunPlan(work_s=1e6, nodes=4), probability=0.95) == 0


def test_storage_rate_keeps_checkpoints_within_their_share():
    plan = RunPlan(work_s=1e7, nodes=100, node_failures_per_s=1e-7, interval_s=3600.0)
    mtti = 1 / plan.failures_per_s
    rate, stall = storage_write_bytes_per_s(plan=plan, params=70e9, bytes_per_param=14.0, stops_work=True)
    assert rate * stall == pytest.approx(70e9 * 14)
    interval = optimal_interval_s(rule="young", stall_s=stall, mtti_s=mtti)
    assert stall / interval + interval / (2 * mtti) == pytest.approx(CHECKPOINT_LOSS_FRAC)
    slower, _ = storage_write_bytes_per_s(plan=plan, params=70e9, bytes_per_param=14.0, stops_work=False)
    assert slower < rate


def test_long_steps_are_straight_lines():
    scenario = load_scenario(SCENARIOS / "gpt3-175b-1024xa100.yaml")
    one = placed(scenario=scenario, node="hgx-a100", nodes=16)
    plan = scenario.strategies["engineered"].model_copy(update={"vpp": 3, "dp": None})
    short = long_step(scenario=one, strategy=plan)[1].step_s
    whole = step_on(scenario=one, strategy=plan, gpus=one.gpus, global_batch=1536, engine="fast")[1].step_s
    assert short == pytest.approx(whole, rel=0.003)


@given(nodes=st.integers(1, 64), micro=st.integers(1, 16))
def test_a_plan_on_another_size_divides_the_batch(nodes, micro):
    one = placed(scenario=START_UP, node="hgx-h100", nodes=nodes)
    plan = Strategy(tp=2, micro_batch_sequences=micro)
    found = dividing(scenario=one, strategy=plan, exact=False)
    batch, ranks = 480, one.gpus // 2
    assert (found is None) == (batch % ranks != 0)
    if found is not None:
        assert batch // ranks % found.micro_batch_sequences == 0
        assert found.micro_batch_sequences <= micro
