"""Exit code 3: every stated goal counts, alone and together."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from planner.decide.goals import missed_goals, misses
from planner.decide.run import run_document
from planner.forecast import forecast_strategy
from planner.scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]
DATA = {
    "model": "llama3-8b",
    "cluster": {"node": "hgx-h100", "nodes": 8},
    "training": {"tokens": 2e11, "sequence_length": 8192, "global_batch_sequences": 512},
    "strategies": {"stack": {"preset": "stack"}, "full": {"preset": "stack", "recompute": "full"}},
}


def scenario(**goals):
    return Scenario.model_validate({**DATA, "goals": goals})


def documents(given):
    return {n: forecast_strategy(scenario=given, name=n, engine="fast").document for n in given.strategies}


@pytest.fixture(scope="module")
def reached():
    """What the scenario needs of each goal."""
    document = documents(scenario())["stack"]
    return {
        "deadline_days": document["days"]["p50"],
        "budget_usd": document["cost_usd_total"]["p50"],
        "power_kw": document["facility"]["facility_kw"],
        "rack_kw": 10.2,
        "max_interruptions": document["interruptions"],
    }


@pytest.mark.parametrize("goal", ["deadline_days", "budget_usd", "power_kw", "rack_kw", "max_interruptions"])
def test_a_goal_is_missed_below_what_is_needed_and_met_above(goal, reached):
    tight, loose = (
        scenario(**{goal: max(0, round(reached[goal] * f)) if goal == "max_interruptions" else reached[goal] * f})
        for f in (0.1, 10)
    )
    (words,) = missed_goals(scenario=tight, docs=documents(tight))
    assert words.split(":")[0]
    assert missed_goals(scenario=loose, docs=documents(loose)) == []
    assert list(misses(scenario=tight, document=documents(tight)["stack"])) == [goal]


def test_goals_that_only_different_strategies_meet_are_missed_together(reached):
    given = scenario(deadline_days=reached["deadline_days"], budget_usd=reached["budget_usd"])
    fast, cheap = (
        {**documents(given)["stack"], "fits": True, "p_late": late, "p_over_budget": over}
        for late, over in ((0.0, 1.0), (1.0, 0.0))
    )
    (words,) = missed_goals(scenario=given, docs={"fast": fast, "cheap": cheap})
    assert words == "all of them at once: fast misses budget_usd, cheap misses deadline_days"
    assert missed_goals(scenario=given, docs={"fast": fast, "both": {**fast, "p_over_budget": 0.0}}) == []


def test_run_counts_them_too(reached):
    small = scenario(power_kw=reached["power_kw"] / 2)
    document = run_document(scenario=small, name="stack", replications=40)
    assert list(document["goals"]["missed"]) == ["power_kw"]
    assert run_document(scenario=scenario(), name="stack", replications=40)["goals"]["missed"] == {}


@pytest.mark.parametrize("command", ["forecast", "compare", "run"])
def test_too_little_power_is_exit_3(command, tmp_path, reached):
    codes = []
    for share in (0.5, 2):
        file = tmp_path / "plan.yaml"
        file.write_text(json.dumps({**DATA, "goals": {"power_kw": reached["power_kw"] * share}}))
        done = subprocess.run(
            [sys.executable, "-m", "planner.cli", command, str(file), "--json"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        json.loads(done.stdout)
        codes.append(done.returncode)
        assert ("goal missed" in done.stderr) == (share < 1)
    assert codes == [3, 0]
