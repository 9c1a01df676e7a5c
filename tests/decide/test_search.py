import random
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from planner import catalog
from planner.decide.score import Scorer
from planner.decide.search import _candidate, pareto, refine, resolve_auto, search_machine, strategy_of, sweep_plans
from planner.decide.space import axes_of, placements, schedules_of
from planner.forecast import ForecastError, forecast_strategy, step_on
from planner.scenario import Scenario, load_scenario

ROOT = Path(__file__).parents[2]


def _scenario(name: str) -> Scenario:
    return load_scenario(ROOT / "scenarios" / f"{name}.yaml")


@pytest.mark.parametrize("name", ["gpt3-175b-1024xa100", "llama3-70b-256xh100"])
def test_closed_form_agrees_with_the_recurrence_on_random_plans(name: str) -> None:
    scenario, rng = _scenario(name), random.Random(3)
    machine, training = search_machine(scenario), scenario.training
    size = {
        "gpus": scenario.gpus,
        "global_batch": training.global_batch_sequences,
        "sequence": training.sequence_length,
    }
    axes = axes_of(model=scenario.model_spec, gpu=catalog.gpu(machine.gpu), precision=None,
                   domain_gpus=machine.network.scaleup_domain_gpus, **size)  # fmt: skip
    scorer = Scorer(model=scenario.model_spec, machine=machine, axes=axes)
    all_of_them = list(placements(axes=axes, model=scenario.model_spec, **size))
    rng.shuffle(all_of_them)
    errors, quick, walked = [], [], []
    for layout in all_of_them[:40]:
        if not schedules_of(axes=axes, layout=layout) or layout.micro_batches * layout.vpp > 1000:
            continue
        scored = scorer.score(layout)
        possible = np.argwhere(np.isfinite(scored.step_s))
        index = tuple(possible[rng.randrange(len(possible))])
        one = (float(scored.step_s[index]), float(scored.memory_bytes[index]))
        candidate = _candidate(axes=axes, layout=layout, schedules=scored.schedules, scored=one, index=index)
        _, answer = step_on(scenario=scenario, strategy=strategy_of(candidate, scenario=scenario), engine="fast",
                            gpus=scenario.gpus, global_batch=training.global_batch_sequences)  # fmt: skip
        errors.append(abs(candidate.step_s / answer.step_s - 1))
        quick.append(candidate.step_s)
        walked.append(answer.step_s)
        memory = answer.memory.peak_bytes + answer.memory.reserved_bytes
        assert candidate.memory_bytes == pytest.approx(memory, rel=1e-9)
    assert len(errors) > 20
    assert statistics.median(errors) <= 0.03
    assert spearmanr(quick, walked).statistic > 0.97


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

    def stop(self: Scorer, layout: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise KeyboardInterrupt
        return plain(self, layout)  # type: ignore[arg-type]

    monkeypatch.setattr(Scorer, "score", stop)
    sweep = sweep_plans(scenario=_scenario("llama3-70b-256xh100"))
    assert sweep.interrupted
    assert sweep.plans_scored > 0


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
    points = [(3.0, 1.0, 0), (1.0, 5.0, 1), (2.0, 2.0, 2), (2.5, 2.5, 3), (1.0, 6.0, 4)]
    assert pareto(points) == [1, 2, 0]
