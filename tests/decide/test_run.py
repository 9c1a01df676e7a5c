"""`planner run`: contract 4, agreement with the forecast, and every field of the run block."""

import json
from dataclasses import replace

import pytest

from planner.decide.run import checkpoint_curve, plan_of, run_document, simulate_chunks
from planner.decide.spread import Where
from planner.forecast import forecast_strategy
from planner.scenario import Scenario
from planner.scenario.run import Run
from planner.simulate.run.plan import RunPlan

DATA = {
    "name": "70B on 256 H100",
    "model": "llama3-70b",
    "cluster": {"node": "hgx-h100", "nodes": 32},
    "training": {"tokens": 3e11, "sequence_length": 8192, "global_batch_sequences": 512},
    "strategies": {
        "engineered": {"tp": 8, "pp": 4, "vpp": 5, "zero_stage": 1, "sequence_parallel": True, "engineering_weeks": 6}
    },
}


def scenario(**run):
    return Scenario.model_validate({**DATA, "run": run})


def forecast(**run):
    return forecast_strategy(scenario=scenario(**run), name="engineered", engine="fast").document


@pytest.fixture(scope="module")
def document():
    return run_document(scenario=scenario(), name="engineered", replications=400, seed=1)


def test_contract_keys(document):
    for key in ("replications", "days", "interruptions", "goodput", "losses_frac", "wasted_gpu_hours", "seed"):
        assert key in document
    assert document["days"]["p10"] < document["days"]["p50"] < document["days"]["p90"]
    assert document["goodput"]["mean"] + sum(document["losses_frac"].values()) == pytest.approx(1.0)
    causes = document["interruptions"]["by_cause"]
    failures = sum(v for c, v in causes.items() if c not in {"planned", "preemption"})
    assert failures == pytest.approx(document["interruptions"]["mean"])
    json.dumps(document, allow_nan=False)


def test_agrees_with_the_forecast(document):
    closed = document["closed_form"]
    assert document["days"]["p50"] == pytest.approx(closed["days"]["p50"], rel=0.03)
    assert document["interruptions"]["p50"] == pytest.approx(closed["interruptions"], rel=0.25)


def test_chance_of_being_late():
    tight = run_document(
        scenario=Scenario.model_validate({**DATA, "goals": {"deadline_days": 1, "probability": 0.8}}),
        name="engineered",
        replications=100,
    )
    assert tight["goals"]["p_late"] == 1.0


def test_the_answer_does_not_depend_on_cores():
    plan = RunPlan(work_s=20 * 86400, nodes=512, node_failures_per_s=1e-7, interval_s=600, restart_s=900)
    one, two = (simulate_chunks(plan=plan, replications=1200, seed=4, where=Where(cores=n)) for n in (1, 2))
    assert [list(a.elapsed_s) for a in one] == [list(b.elapsed_s) for b in two]


def test_checkpoint_curve_peaks_inside():
    found = forecast_strategy(scenario=scenario(), name="engineered", engine="fast")
    curve = checkpoint_curve(
        plan=plan_of(scenario=scenario(), name="engineered", forecast=found), factors=(0.02, 1, 50)
    )
    assert curve[1]["goodput"] > max(curve[0]["goodput"], curve[2]["goodput"])


# Field -> (settings that make it act, its value, how days move). `mc` are judged by replications alone.
FIELDS = {
    "failures_per_1000_node_days": ({}, 60.0, 1),
    "job_failures_per_day": ({}, 5.0, 1),
    "infant_factor": ({}, 20.0, 1),
    "infant_decay_s": ({"infant_factor": 20}, 86400.0, -1),
    "slow_onsets_per_1000_node_days": ({}, 30.0, 1),
    "jitter_frac": ({}, 0.03, 1),
    "slow_frac": ({"slow_onsets_per_1000_node_days": 30}, 0.5, 1),
    "slow_detection_s": ({"slow_onsets_per_1000_node_days": 30}, 600.0, -1),
    "silent_corruption_frac": ({}, 0.5, 1),
    "silent_rollback_s": ({"silent_corruption_frac": 0.5}, 600.0, -1),
    "detection_s": ({}, 10.0, -1),
    "replacement_s": ({}, 36000.0, 1),
    "restart_s": ({}, 6000.0, 1),
    "communicator_s": ({}, 1000.0, 1),
    "load_s": ({}, 1000.0, 1),
    "compile_s": ({}, 1000.0, 1),
    "manual_restart_s": ({}, 72000.0, 1),
    "automatic_restart_frac": ({}, 0.0, 1),
    "checkpoint_interval_s": ({}, 86400.0, 1),
    "checkpoint_bytes_per_param": ({"checkpoint_asynchronous": False}, 140.0, 1),
    "storage_bytes_per_s": ({"checkpoint_asynchronous": False}, 1e9, 1),
    "writer_bytes_per_s": ({"checkpoint_asynchronous": False}, 1e6, 1),
    "checkpoint_asynchronous": ({"storage_bytes_per_s": 1e9}, False, 1),
    "snapshot_s": ({"storage_bytes_per_s": 1e9}, 200.0, 1),
    "peer_interval_s": ({"checkpoint_interval_s": 36000.0, "failures_per_1000_node_days": 60}, 300.0, -1),
    "peer_stall_s": ({"peer_interval_s": 300.0}, 60.0, 1),
    "peer_recovery_frac": ({"peer_interval_s": 300.0, "checkpoint_interval_s": 36000.0}, 0.0, 1),
    "prediction_recall": ({"checkpoint_interval_s": 36000.0}, 0.9, -1),
    "prediction_precision": ({"prediction_recall": 0.9, "failures_per_1000_node_days": 60}, 0.05, 1),
    "elastic": ({"replacement_s": 3600.0, "failures_per_1000_node_days": 60}, True, -1),
    "warmup_work_frac": ({}, 0.2, 1),
    "warmup_nodes_frac": ({"warmup_work_frac": 0.2}, 0.9, -1),
    "preemptions_per_day": ({}, 4.0, 1),
    "preemption_wait_s": ({"preemptions_per_day": 4}, 36000.0, 1),
    "preemption_notice_s": ({"preemptions_per_day": 4, "checkpoint_interval_s": 36000.0}, 0.0, 1),
    "maintenance_interval_s": ({}, 86400.0, 1),
    "maintenance_s": ({"maintenance_interval_s": 86400.0}, 60.0, -1),
    "data_wait_frac": ({}, 0.1, 1),
    "evaluation_frac": ({}, 0.1, 1),
    "loss_spikes_per_day": ({}, 4.0, 1),
    "spike_rollback_s": ({"loss_spikes_per_day": 4}, 60.0, -1),
    "startup_s": ({}, 86400.0, 1),
    "queue_s": ({}, 86400.0, 1),
}
# These act on replications, on the band or on the interval alone; the tests below and of the run clock hold them.
ELSEWHERE = {
    *("rate_sigma", "rack_failure_frac", "rack_nodes", "spares", "repair_median_s", "repair_mean_s"),
    *("checkpoint_rule", "resize_s", "on_demand_by_deadline"),
}


def test_no_field_of_the_run_block_is_forgotten():
    assert set(Run.model_fields) == set(FIELDS) | ELSEWHERE


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_moves_the_days_the_right_way(name):
    extras, value, sign = FIELDS[name]
    before, after = forecast(**extras)["days"]["p50"], forecast(**{**extras, name: value})["days"]["p50"]
    assert sign * (after - before) > 1e-6 * before


def test_a_known_rate_narrows_the_band():
    wide, narrow = forecast(failures_per_1000_node_days=60, rate_sigma=0.8), forecast(failures_per_1000_node_days=60)
    assert narrow["days"]["p90"] < wide["days"]["p90"]


def test_rules_differ_in_their_interval():
    dense = {"failures_per_1000_node_days": 2000, "checkpoint_asynchronous": False, "storage_bytes_per_s": 5e9}
    rules = ("young", "daly", "exact")
    seen = {rule: forecast(checkpoint_rule=rule, **dense)["checkpoint_interval_s"] for rule in rules}
    assert seen["young"] > seen["daly"]
    assert seen["daly"] == pytest.approx(seen["exact"], rel=0.02)


def _mean(plan, **changes):
    chunks = simulate_chunks(plan=replace(plan, **changes), replications=300, seed=2)
    return float(sum(c.elapsed_s.sum() for c in chunks))


def test_spares_repair_racks_and_resizing_move_the_replications():
    base = scenario(failures_per_1000_node_days=100, rate_sigma=0)
    plan = plan_of(
        scenario=base, name="engineered", forecast=forecast_strategy(scenario=base, name="engineered", engine="fast")
    )
    few = {"spares": 2}
    assert _mean(plan, **few) > _mean(plan, spares=20)
    quick = {"repair_median_s": 3600.0, "repair_mean_s": 7200.0}
    assert _mean(plan, **few) > _mean(plan, **few, **quick)
    assert _mean(plan, **few, **quick, rack_frac=1.0, rack_nodes=8) > _mean(plan, **few, **quick)
    elastic = {"elastic": True, "replacement_s": 3600.0}
    assert _mean(plan, **elastic, resize_s=7200.0) > _mean(plan, **elastic, resize_s=1.0)


def test_spot_is_interrupted_by_default():
    spot = Scenario.model_validate({**DATA, "pricing": {"tenure": "spot"}})
    found = run_document(scenario=spot, name="engineered", replications=100)
    assert found["interruptions"]["by_cause"]["preemption"] > 1
