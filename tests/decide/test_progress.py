"""`planner run --from`: plan against actual, what the log teaches, and the new end."""

import json
from datetime import datetime, timedelta

import numpy as np
import pytest

from planner.decide.progress import progress_document
from planner.decide.progress_actual import planned_run
from planner.profile.progress_log import ProgressError
from planner.scenario import Scenario

DATA = {
    "name": "70B on 256 H100",
    "model": "llama3-70b",
    "cluster": {"node": "hgx-h100", "nodes": 32},
    "training": {"tokens": 1e12, "sequence_length": 8192, "global_batch_sequences": 512},
    "strategies": {"hybrid": {"tp": 8, "pp": 4, "vpp": 5, "zero_stage": 1, "sequence_parallel": True}},
}
START = datetime(2026, 3, 1)
COLUMNS = "start,end,steps,step_s,downtime_h,planned_h,lost_work_h,stops_gpu,stops_host,stops_software,cost_usd"


def scenario(**changes):
    return Scenario.model_validate({**DATA, **changes})


@pytest.fixture(scope="module")
def plan():
    return planned_run(scenario=scenario(), name="hybrid")


def log_of(plan, path, *, days=30, slower=1.0, stops_per_day=0.3, hours_each=0.6, seed=3, columns=COLUMNS, price=2.4):
    """A log as a cluster would write it whose step, stops and recoveries are known."""
    rng = np.random.default_rng(seed)
    rows = [columns]
    for day in range(days):
        stops = rng.poisson(stops_per_day, 3) if day % 3 == 0 else rng.poisson(stops_per_day / 2, 3)
        down = min(20.0, float(rng.exponential(hours_each, int(stops.sum())).sum()))
        lost = min(2.0, 0.4 * stops.sum())
        step = plan.step_s * slower * float(np.exp(0.01 * rng.standard_normal()))
        steps = (24 - down - lost) * 3600 * 0.99 / step
        cells = {
            "start": START + timedelta(days=day),
            "end": START + timedelta(days=day + 1),
            "steps": f"{steps:.1f}",
            "step_s": f"{step:.4f}",
            "downtime_h": f"{down:.3f}",
            "planned_h": "0",
            "lost_work_h": f"{lost:.3f}",
            "stops_gpu": stops[0],
            "stops_host": stops[1],
            "stops_software": stops[2],
            "cost_usd": 24 * 256 * price,
            "gpus": 128,
        }
        rows.append(",".join(str(cells[c]) for c in columns.split(",")))
    path.write_text("\n".join(rows) + "\n")
    return path


def answer(plan, path, *, changes=None, **log):
    file = log_of(plan, path / "log.csv", **log)
    return progress_document(scenario=scenario(**(changes or {})), name="hybrid", log=file, replications=240)


def row(document, key):
    return next(r for r in document["plan_against_actual"] if r["key"] == key)


def test_a_run_as_planned_ends_as_planned(plan, tmp_path):
    document = answer(plan, tmp_path, stops_per_day=0.2, hours_each=plan.plan.recovery_s / 3600)
    assert document["days"]["p50"] == pytest.approx(document["planned"]["days"]["p50"], rel=0.03)
    width, before = (d["p90"] - d["p10"] for d in (document["days"], document["planned"]["days"]))
    assert width < before / 2
    assert row(document, "step_s")["inside"]
    assert row(document, "interruptions")["inside"]
    assert document["refit"]["failures_per_day"]["posterior"]["p50"] == pytest.approx(0.4, rel=0.4)
    json.dumps(document, allow_nan=False)


def test_contract_keys_of_run_are_there(plan, tmp_path):
    document = answer(plan, tmp_path, days=5)
    keys = {"schema_version", "scenario_hash", "versions", "seed", "replications", "days", "interruptions", "goodput"}
    assert set(document) >= keys | {"losses_frac", "wasted_gpu_hours"}
    assert document["goodput"]["mean"] + sum(document["losses_frac"].values()) == pytest.approx(1.0)
    assert document["days"]["p50"] == pytest.approx(document["log"]["days"] + document["days_left"]["p50"])
    assert document["finish_date"]["p10"] <= document["finish_date"]["p50"] <= document["finish_date"]["p90"]
    assert document == answer(plan, tmp_path, days=5)


def test_a_slower_step_is_found_and_moves_the_end(plan, tmp_path):
    document = answer(plan, tmp_path, slower=1.15, stops_per_day=0.06)
    assert document["refit"]["step_s"]["factor"] == pytest.approx(1.15, rel=0.01)
    assert document["days"]["p50"] == pytest.approx(1.15 * document["planned"]["days"]["p50"], rel=0.04)


def test_more_stops_and_longer_recoveries_are_found(plan, tmp_path):
    many = answer(plan, tmp_path, stops_per_day=1.0, hours_each=2.0)
    assert many["refit"]["failures_per_day"]["posterior"]["p50"] == pytest.approx(2.0, rel=0.25)
    assert many["refit"]["recovery_s"]["posterior"]["p50"] == pytest.approx(7200, rel=0.3)
    assert not row(many, "interruptions")["inside"]
    assert many["interruptions"]["mean"] / many["days_left"]["p50"] == pytest.approx(2.0, rel=0.25)
    few = answer(plan, tmp_path, stops_per_day=0.06)
    assert many["days"]["p50"] > 1.05 * few["days"]["p50"]
    # The pace of the log goes on: what is left takes as long for each step as what is behind.
    left = (plan.steps - many["log"]["steps"]) / many["log"]["steps"] * many["log"]["days"]
    assert many["days_left"]["p50"] == pytest.approx(left, rel=0.05)


def test_pauses_that_no_column_names_are_found(plan, tmp_path):
    file = log_of(plan, tmp_path / "log.csv", stops_per_day=0.0)
    lines = [line.split(",") for line in file.read_text().splitlines()]
    slow = [",".join([*c[:2], f"{float(c[2]) * 0.9:.1f}", *c[3:]]) for c in lines[1:]]
    file.write_text("\n".join([COLUMNS, *slow]) + "\n")
    found = progress_document(scenario=scenario(), name="hybrid", log=file, replications=80)
    assert found["refit"]["pause_frac"]["fitted"] == pytest.approx(0.1, abs=0.02)
    left = (plan.steps - found["log"]["steps"]) / found["log"]["steps"] * found["log"]["days"]
    assert found["days_left"]["p50"] == pytest.approx(left, rel=0.03)


def test_spend_is_that_of_the_log_and_goes_on_at_its_price(plan, tmp_path):
    cheap, dear = (answer(plan, tmp_path, price=p, days=10) for p in (2.0, 4.0))
    assert cheap["refit"]["usd_per_gpu_hour"]["fitted"] == pytest.approx(2.0)
    assert dear["cost_usd_total"]["p50"] == pytest.approx(2 * cheap["cost_usd_total"]["p50"], rel=1e-6)
    assert cheap["cost_usd_spent"] == pytest.approx(10 * 24 * 256 * 2.0)
    late = answer(plan, tmp_path, price=2.0, days=10, changes={"goals": {"budget_usd": 1.0, "deadline_days": 500}})
    assert late["goals"]["p_over_budget"] == 1.0
    assert late["goals"]["p_late"] == 0.0


def test_what_is_not_logged_is_said(plan, tmp_path):
    full = " ".join(answer(plan, tmp_path)["not_told"])
    bare = answer(plan, tmp_path, columns="start,end,steps")
    said = " ".join(bare["not_told"])
    for words in ("step time", "failure rate", "recovery time", "pauses", "spend"):
        assert words in said
    for words in ("step_s is blank", "stops are not logged", "cost_usd is blank"):
        assert words not in full
    assert bare["refit"]["step_s"]["source"] == "pace"
    assert bare["refit"]["failures_per_day"]["told_frac"] == pytest.approx(0, abs=1e-9)
    other = " ".join(answer(plan, tmp_path, columns=f"{COLUMNS},gpus")["not_told"])
    assert "128 GPUs" in other


def test_a_gap_counts_as_time_gone_and_into_no_rate(plan, tmp_path):
    whole = answer(plan, tmp_path, days=12)
    file = tmp_path / "log.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:4] + lines[7:]) + "\n")
    gap = progress_document(scenario=scenario(), name="hybrid", log=file, replications=240)
    assert gap["log"]["gap_h"] == pytest.approx(72)
    assert gap["log"]["days"] == whole["log"]["days"]
    assert gap["refit"]["failures_per_day"]["expected"] == pytest.approx(
        0.75 * whole["refit"]["failures_per_day"]["expected"]
    )
    assert any("72.0 h between rows" in s for s in gap["not_told"])


def test_a_plan_without_failures_learns_them(plan, tmp_path):
    sure = {"run": {"failures_per_1000_node_days": 0, "job_failures_per_day": 0}}
    document = answer(plan, tmp_path, stops_per_day=1.0, changes=sure)
    assert document["interruptions"]["mean"] > 20
    assert not row(document, "interruptions")["inside"]


def test_a_run_that_is_through_ends_with_its_log(plan, tmp_path):
    days = int(plan.days / 0.9) + 5
    document = answer(plan, tmp_path, days=days, stops_per_day=0.0)
    assert document["log"]["done_frac"] > 1
    assert document["days_left"] == {"p10": 0.0, "p50": 0.0, "p90": 0.0}


def test_rows_of_the_runs_table_tell_the_step_alone(plan, tmp_path):
    file = tmp_path / "runs.csv"
    rate = plan.forecast.document["tokens_per_s_per_gpu"]
    lines = [f"tokens_per_s_per_gpu,{rate / 1.1 * f},8,256" for f in (0.99, 1.0, 1.01)]
    file.write_text("\n".join(["metric,measured,tp,n_gpus", f"step_time_s,{1.1 * plan.step_s},8,", *lines]) + "\n")
    document = progress_document(scenario=scenario(), name="hybrid", log=file, replications=80)
    assert document["refit"]["step_s"]["factor"] == pytest.approx(1.1, rel=0.01)
    assert document["finish_date"] is None
    assert document["days"]["p50"] == pytest.approx(1.1 * document["planned"]["days"]["p50"], rel=0.03)
    file.write_text("metric,measured,tp\nmemory_gb,50,8\nstep_time_s,fast,4\n")
    with pytest.raises(ProgressError) as error:
        progress_document(scenario=scenario(), name="hybrid", log=file)
    assert [(i.line, i.path) for i in error.value.issues] == [(2, "metric"), (3, "measured"), (3, "tp")]
    assert error.value.issues[2].nearest == ("8",)
