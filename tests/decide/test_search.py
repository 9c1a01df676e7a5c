import itertools
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from planner import catalog
from planner.catalog.software import software
from planner.decide import search_answer
from planner.decide.longest import longest_sequence
from planner.decide.score import Scored, Scorer
from planner.decide.score_memory import MemoryTables
from planner.decide.search import candidate_at, refine, resolve_auto, search_machine, strategy_of, sweep_plans
from planner.decide.search_answer import search
from planner.decide.search_front import Front
from planner.decide.space import axes_of, places
from planner.forecast import ForecastError, forecast_strategy, step_on
from planner.scenario import Scenario, load_scenario
from planner.scenario.goals import Goals
from planner.scenario.layout_checks import layout_problems
from planner.scenario.load import parse_scenario
from planner.workload.layout import Layout
from planner.workload.memory import worst_rank

ROOT = Path(__file__).parents[2]


SMALL = """
model: llama3.2-1b
cluster: {node: hgx-h100, nodes: 1, gpus_per_node_used: 1}
training: {tokens: 1e9, sequence_length: 4096, global_batch_sequences: 8}
"""


def _scenario(name: str) -> Scenario:
    return load_scenario(ROOT / "scenarios" / f"{name}.yaml")


MOE = """
name: Mixtral 8x22B on 64 H100
model: mixtral-8x22b
cluster: {node: hgx-h100, nodes: 8}
training: {tokens: 1e12, sequence_length: 4096, global_batch_sequences: 256}
"""


@pytest.mark.parametrize("name", ["gpt3-175b-1024xa100", "llama3-70b-256xh100", "experts"])
def test_closed_form_agrees_with_the_recurrence_and_the_memory_model_on_random_plans(name: str) -> None:
    scenario, rng = parse_scenario(MOE) if name == "experts" else _scenario(name), random.Random(3)
    machine, training = search_machine(scenario), scenario.training
    size = {
        "gpus": scenario.gpus,
        "global_batch": training.global_batch_sequences,
        "sequence": training.sequence_length,
    }
    axes = axes_of(model=scenario.model_spec, gpu=catalog.gpu(machine.gpu), precision=None,
                   domain_gpus=machine.network.scaleup_domain_gpus, **size)  # fmt: skip
    scorer = Scorer(model=scenario.model_spec, machine=machine, axes=axes)
    everywhere = list(places(axes=axes, model=scenario.model_spec, **size))
    errors, quick, walked = [], [], []
    for place in rng.sample(everywhere, 60):
        scored = scorer.score(place.layout, place.micro_batches)
        possible = np.argwhere(np.isfinite(scored.step_s))
        index = tuple(possible[rng.randrange(len(possible))]) if len(possible) else None
        candidate = candidate_at(index, axes=axes, place=place, scored=scored) if index else None
        if candidate is None or candidate.layout.micro_batches * candidate.layout.vpp * candidate.layout.pp > 4000:
            continue
        _, answer = step_on(scenario=scenario, strategy=strategy_of(candidate, scenario=scenario), engine="fast",
                            gpus=scenario.gpus, global_batch=training.global_batch_sequences)  # fmt: skip
        errors.append(abs(candidate.step_s / answer.step_s - 1))
        quick.append(candidate.step_s)
        walked.append(answer.step_s)
        memory = answer.memory.peak_bytes + answer.memory.reserved_bytes
        assert candidate.memory_bytes == pytest.approx(memory, rel=1e-9), candidate
    assert len(errors) >= 25
    assert statistics.median(errors) <= 0.01
    assert spearmanr(quick, walked).statistic > 0.99


def test_every_plan_of_a_placement_is_one_that_the_scenario_accepts() -> None:
    scenario = _scenario("llama3-70b-256xh100")
    machine, training = search_machine(scenario), scenario.training
    size = {"gpus": scenario.gpus, "global_batch": 96, "sequence": training.sequence_length}
    axes = axes_of(model=scenario.model_spec, gpu=catalog.gpu(machine.gpu), precision="bf16", domain_gpus=8, **size)
    scorer = Scorer(model=scenario.model_spec, machine=machine, axes=axes)
    rng = random.Random(1)
    for place in rng.sample(list(places(axes=axes, model=scenario.model_spec, **size)), 30):
        scored = scorer.score(place.layout, place.micro_batches)
        possible = np.argwhere(np.isfinite(scored.step_s))
        assert scored.plans == len(possible)
        for row in rng.sample(range(len(possible)), min(10, len(possible))):
            candidate = candidate_at(tuple(possible[row]), axes=axes, place=place, scored=scored)
            strategy = strategy_of(candidate, scenario=scenario)
            assert not layout_problems(strategy=strategy, model=scenario.model_spec, **size)


def test_old_software_whose_buffers_follow_its_parameters_is_asked_plan_by_plan() -> None:
    scenario = _scenario("gpt3-175b-1024xa100")
    machine = search_machine(scenario)
    stack = software(framework="megatron-deepspeed", year=2021)
    size = {"gpus": 1024, "global_batch": 1024, "sequence": 2048}
    axes = axes_of(model=scenario.model_spec, gpu=catalog.gpu(machine.gpu), precision="bf16", domain_gpus=8, **size)
    tables = MemoryTables(model=scenario.model_spec, axes=axes, fusions=stack.fusions)
    layout = Layout(tp=8, pp=8, dp=16, global_batch=1024, sequence=2048, micro_batch=2)
    found = tables.total_bytes(layout=layout, schedules=("1f1b",), sizes=(2,))
    plan = replace(layout, zero_stage=1, recompute="full")
    rank = worst_rank(model=scenario.model_spec, layout=plan, fusions=stack.fusions)
    at = (0, axes.zero_stage.index(1), 0, axes.recompute.index("full"), 0, 0)
    assert found[at] == pytest.approx(rank.peak_bytes + rank.reserved_bytes, rel=1e-9)


def test_the_same_search_twice_gives_the_same_plans_and_counts_every_one() -> None:
    scenario = _scenario("llama3-70b-256xh100")
    a, b = sweep_plans(scenario=scenario, limit=30), sweep_plans(scenario=scenario, limit=30)
    assert a.best == b.best
    assert a.plans_invalid + a.plans_out_of_memory + a.plans_scored == a.axes.plans


def test_the_best_plan_beats_an_evaluation_of_random_plans_by_events() -> None:
    scenario, rng = _scenario("gpt3-175b-1024xa100"), random.Random(11)
    sweep = sweep_plans(scenario=scenario, precision="bf16")
    best = refine(scenario=scenario, sweep=sweep)[0][1].answer.step_s
    pool = rng.sample(list(sweep.best), 40)
    others = []
    for candidate in pool:
        one = scenario.model_copy(update={"strategies": {"plan": strategy_of(candidate, scenario=scenario)}})
        others.append(forecast_strategy(scenario=one, name="plan", engine="fast").answer.step_s)
    assert best <= min(others) * 1.005


def test_an_interruption_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    plain = Scorer.score

    def stop(self: Scorer, *args: Any, **kw: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 60:
            raise KeyboardInterrupt
        return plain(self, *args, **kw)

    monkeypatch.setattr(Scorer, "score", stop)
    sweep = sweep_plans(scenario=_scenario("llama3-70b-256xh100"))
    assert sweep.interrupted
    assert sweep.plans_scored > 0
    calls = 0
    with_auto = _scenario("llama3-70b-256xh100").model_copy(update={"strategies": {"best": "auto"}})
    with pytest.raises(KeyboardInterrupt):  # half a search is no plan
        resolve_auto(with_auto)


def test_auto_becomes_a_plan_that_is_no_slower_than_the_written_ones() -> None:
    scenario = _scenario("llama3-70b-256xh100")
    with_auto = scenario.model_copy(update={"strategies": {**scenario.strategies, "best": "auto"}})
    with pytest.raises(ForecastError, match="auto"):
        forecast_strategy(scenario=with_auto, name="best", engine="fast")
    solved = resolve_auto(with_auto)
    steps = {n: forecast_strategy(scenario=solved, name=n, engine="fast") for n in solved.strategies}
    fitting = [f.answer.step_s for n, f in steps.items() if n != "best" and f.resolved.fits]
    assert steps["best"].resolved.fits
    assert steps["best"].answer.step_s <= min(fitting) * 1.01


def test_nobody_on_the_front_is_beaten_in_both() -> None:
    steps, bytes_ = np.array([3.0, 1.0, 2.0, 2.5, 1.0, 0.5]), np.array([1.0, 5.0, 2.0, 2.5, 6.0, 99.0]) * 1e9
    front: Front[int] = Front(capacity_bytes=10e9)
    for half in (slice(0, 3), slice(3, 6)):
        start = half.start
        scored = Scored(("1f1b",), steps[half], bytes_[half], 3)
        front.add(scored, lambda index, start=start: start + int(index[0]))
    assert [x.plan for x in front.plans()] == [1, 2, 0]


def test_the_front_trades_time_and_money_for_headroom_and_risk() -> None:
    scenario = _scenario("llama3-70b-256xh100")
    scenario = scenario.model_copy(update={"goals": Goals(deadline_days=30, budget_usd=2e6)})
    answer = search(scenario=scenario, precision="bf16")
    front = answer["pareto"]
    assert len(front) > 3
    for a, b in itertools.pairwise(front):
        assert a["step_s"] < b["step_s"]
        assert a["days"] < b["days"]
        assert a["cost_usd"] < b["cost_usd"]
        assert a["headroom_gb"] < b["headroom_gb"]
        assert a["risks"]["p_out_of_memory"] >= b["risks"]["p_out_of_memory"]
    assert all(0 <= x["risk"] <= 1 and x["headroom_gb"] >= 0 for x in front)
    assert all(row["why"] and row["limited_by"] and row["engine"] == "events" for row in answer["best"])
    steps = [row["step_s"] for row in answer["best"]]
    assert steps == sorted(steps)


def test_an_interruption_while_events_run_keeps_the_best_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = search_answer.refine

    def stop(**kw: Any) -> Any:
        if "engine" not in kw:
            raise KeyboardInterrupt
        return plain(**kw)

    monkeypatch.setattr(search_answer, "refine", stop)
    answer = search(scenario=parse_scenario(SMALL), precision="bf16")
    assert answer["interrupted"]
    assert answer["best"]
    assert answer["best"][0]["engine"] == "fast"


def test_the_longest_sequence_fits_and_the_next_quarter_of_a_doubling_does_not() -> None:
    scenario = parse_scenario(SMALL)
    answer = longest_sequence(scenario=scenario, precision="bf16")
    longest = answer["sequence_length"]
    assert longest >= 4096
    assert answer["best"]
    lengths = [row["sequence_length"] for row in answer["by_length"]]
    assert lengths == sorted(lengths)
    assert lengths[0] == scenario.training.sequence_length
    assert lengths[-1] == longest == answer["by_layout"][0]["sequence_length"]
    fastest = max(r["tokens_per_s"] for r in answer["by_layout"] if r["sequence_length"] == longest)
    assert fastest == pytest.approx(answer["by_length"][-1]["tokens_per_s"])
    layouts = [tuple(row["plan"][k] for k in ("tp", "pp", "cp", "ep")) for row in answer["by_layout"]]
    assert len(set(layouts)) == len(layouts)
    training = scenario.training.model_copy(update={"sequence_length": 2 * longest, "global_batch_sequences": 1})
    assert not sweep_plans(scenario=scenario.model_copy(update={"training": training}), precision="bf16").best
