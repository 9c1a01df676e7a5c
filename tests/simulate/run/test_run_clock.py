"""The run clock: conservation, closed forms against many replications and against single events, theory by seeds."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.simulate.run.closed_form import expected_run, optimal_interval_s
from planner.simulate.run.events import run_by_events
from planner.simulate.run.fleet import simulate_runs
from planner.simulate.run.plan import COUNTED, LOSSES, RunPlan

DAY_S, HOUR_S = 86_400.0, 3600.0
BASE = RunPlan(
    work_s=20 * DAY_S,
    nodes=128,
    node_failures_per_s=6.5e-3 / DAY_S,
    job_failures_per_s=0.1 / DAY_S,
    detection_s=600,
    restart_s=600,
    automatic_frac=0.9,
    manual_s=7200,
    interval_s=HOUR_S,
    stall_s=60,
    durable_s=120,
)
# Every field that costs or saves time, with a value that makes it cost (+1) or save (-1) against BASE.
CHANGES = [
    ("node_failures_per_s", 5e-7, 1),
    ("job_failures_per_s", 2e-5, 1),
    ("infant_factor", 5.0, 1),
    ("slow_per_node_s", 2e-8, 1),
    ("detection_s", 6000.0, 1),
    ("replacement_s", 7200.0, 1),
    ("restart_s", 6000.0, 1),
    ("communicator_s", 3000.0, 1),
    ("load_s", 3000.0, 1),
    ("compile_s", 3000.0, 1),
    ("automatic_frac", 0.0, 1),
    ("automatic_frac", 1.0, -1),
    ("manual_s", 36000.0, 1),
    ("interval_s", 12 * HOUR_S, 1),
    ("stall_s", 300.0, 1),
    ("durable_s", 3600.0, 1),
    ("maintenance_interval_s", 5 * DAY_S, 1),
    ("data_frac", 0.05, 1),
    ("evaluation_frac", 0.05, 1),
    ("startup_s", DAY_S, 1),
    ("queue_s", 5 * DAY_S, 1),
    ("spikes_per_s", 1 / DAY_S, 1),
    ("preemptions_per_s", 4 / DAY_S, 1),
    ("silent_frac", 0.3, 1),
    ("warmup_work_frac", 0.2, 1),
    ("recall", 1.0, -1),
    ("peer_interval_s", 300.0, -1),
]
EXTRAS = {
    "slow_per_node_s": {"slow_frac": 0.2, "slow_detection_s": DAY_S},
    "maintenance_interval_s": {"maintenance_s": 6 * HOUR_S},
    "spikes_per_s": {"spike_rollback_s": HOUR_S},
    "preemptions_per_s": {"preemption_wait_s": HOUR_S},
    "silent_frac": {"silent_s": 6 * HOUR_S},
    "warmup_work_frac": {"warmup_nodes_frac": 0.25},
    "peer_interval_s": {"peer_frac": 1.0, "peer_stall_s": 0.1, "load_s": 0.0},
    "recall": {"stall_s": 60.0},
}


def _changed(name: str, value: float) -> RunPlan:
    return replace(BASE, **{name: value, **EXTRAS.get(name, {})})


def _mean_days(plan: RunPlan, replications: int = 400, seed: int = 3) -> float:
    return float(simulate_runs(plan=plan, replications=replications, seed=seed).elapsed_s.mean() / DAY_S)


@pytest.mark.parametrize(("name", "value", "sign"), CHANGES)
def test_closed_form_and_replications_agree_on_every_field(name, value, sign):
    plan = _changed(name, value)
    closed, simulated = expected_run(plan=plan).elapsed_s / DAY_S, _mean_days(plan)
    assert closed == pytest.approx(simulated, rel=0.02)
    assert sign * (closed - expected_run(plan=BASE).elapsed_s / DAY_S) > 0
    assert sign * (simulated - _mean_days(BASE)) > 0


@pytest.mark.parametrize(
    "plan",
    [
        BASE,
        *(_changed(n, v) for n, v, _ in CHANGES),
        replace(BASE, spares=12),
        replace(BASE, elastic=True, unit_nodes=4),
    ],
)
def test_time_is_conserved(plan):
    found = simulate_runs(plan=plan, replications=50, seed=1)
    assert np.allclose(found.losses_s.sum(axis=1) + found.productive_s, found.elapsed_s, rtol=1e-9)
    assert (found.losses_s > -1e-6).all()
    assert found.finished.all()
    closed = expected_run(plan=plan)
    assert closed.goodput + sum(v for _, v in closed.losses) == pytest.approx(1.0, abs=1e-9)
    assert min(v for _, v in closed.losses) > -1e-9


@settings(max_examples=40, deadline=None)
@given(
    rate=st.floats(0, 3e-6),
    interval=st.floats(300, 50_000),
    stall=st.floats(0, 600),
    late=st.floats(0, 2000),
    recovery=st.floats(0, 5000),
    nodes=st.integers(1, 500),
)
def test_conservation_for_any_plan(*, rate, interval, stall, late, recovery, nodes):
    plan = RunPlan(
        work_s=5 * DAY_S,
        nodes=nodes,
        node_failures_per_s=rate,
        interval_s=interval,
        stall_s=stall,
        durable_s=stall + late,
        restart_s=recovery,
    )
    found = simulate_runs(plan=plan, replications=10, seed=5)
    assert np.allclose(found.losses_s.sum(axis=1) + found.productive_s, found.elapsed_s, rtol=1e-9)
    assert (found.productive_s <= plan.work_s * (1 + 1e-9)).all()


BUSY = replace(
    BASE,
    work_s=8 * DAY_S,
    node_failures_per_s=1.5e-7,
    node_sigma=0.3,
    automatic_frac=0.8,
    replacement_s=1800,
    load_s=200,
    interval_s=1800,
)
RULES = {
    "failures": {},
    "pauses": {"data_frac": 0.02, "evaluation_frac": 0.03, "startup_s": 1000, "queue_s": HOUR_S},
    "spares": {"spares": 2, "rack_frac": 0.3, "rack_nodes": 3},
    "spares run dry": {"spares": 2, "replacement_s": 0, "repair_median_s": 7200, "repair_mean_s": 20_000},
    "elastic": {"elastic": True, "unit_nodes": 4, "resize_s": 60, "replacement_s": 20_000},
    "slow nodes": {"slow_per_node_s": 6e-8, "slow_frac": 0.2, "slow_detection_s": HOUR_S},
    "predicted": {"recall": 0.5, "precision": 0.7},
    "peers": {"peer_interval_s": 300, "peer_stall_s": 1, "peer_frac": 0.9},
    "corrupt": {"silent_frac": 0.1, "silent_s": 2 * HOUR_S, "spikes_per_s": 1 / DAY_S, "spike_rollback_s": 5000},
    "phases": {"warmup_work_frac": 0.3, "warmup_nodes_frac": 0.5, "infant_factor": 3, "infant_s": 3 * DAY_S},
    "planned": {"maintenance_interval_s": 2 * DAY_S, "maintenance_s": 2 * HOUR_S},
    "spot": {"preemptions_per_s": 4 / DAY_S, "preemption_wait_s": 7200, "notice_s": 30, "deadline_s": 12 * DAY_S},
}


@pytest.mark.parametrize("rule", RULES)
def test_replications_agree_with_single_events(rule):
    """Days, every loss and every count of the two evaluators: 4.5 standard errors is a false alarm in 150,000."""
    plan = replace(BUSY, **RULES[rule])
    events = [run_by_events(plan=plan, seed=s) for s in range(60)]
    fleet = simulate_runs(plan=plan, replications=1000, seed=2)
    for trace in events:
        assert trace.productive_s + sum(trace.losses_s.values()) == pytest.approx(trace.elapsed_s)
    pairs = [(np.array([t.elapsed_s for t in events]), fleet.elapsed_s)]
    pairs += [(np.array([t.losses_s[k] for t in events]), fleet.losses_s[:, i]) for i, k in enumerate(LOSSES)]
    pairs += [(np.array([t.counts[k] for t in events]), fleet.counts[:, i]) for i, k in enumerate(COUNTED)]
    for one, many in pairs:
        error = math.hypot(one.std() / math.sqrt(one.size), many.std() / math.sqrt(many.size))
        # Checkpoint stalls hardly vary between runs; half a percent is what bookkeeping inside a stall may differ by.
        assert abs(one.mean() - many.mean()) <= 4.5 * error + 0.005 * many.mean() + 1e-6


def test_spares_that_run_dry_are_quick_to_simulate():
    """Failures while waiting for a repair come in chains; served one a pass, all replications share the passes."""
    plan = replace(BASE, nodes=2048, spares=20, work_s=10 * DAY_S, node_sigma=0.8)
    start = time.perf_counter()
    simulate_runs(plan=plan, replications=300, seed=1)
    assert time.perf_counter() - start < 10


def test_same_seed_same_answer():
    a, b = (simulate_runs(plan=BASE, replications=64, seed=9) for _ in range(2))
    assert np.array_equal(a.elapsed_s, b.elapsed_s)
    assert not np.array_equal(a.elapsed_s, simulate_runs(plan=BASE, replications=64, seed=10).elapsed_s)


def test_counts_are_poisson_over_seeds():
    # Without recovery the exposure is the work itself: mean = variance. 4 sigma is a false alarm in 16,000.
    plan = RunPlan(work_s=10 * DAY_S, nodes=64, node_failures_per_s=2e-7, interval_s=HOUR_S)
    exposure = plan.nodes * plan.node_failures_per_s
    found = simulate_runs(plan=replace(plan, interval_s=60.0), replications=4000, seed=11)
    counts = found.counts[:, : COUNTED.index("planned")].sum(axis=1)
    expected = exposure * found.elapsed_s.mean()
    assert abs(counts.mean() - expected) < 4 * math.sqrt(expected / counts.size)
    assert counts.var() == pytest.approx(expected, rel=0.12)


@pytest.mark.parametrize(("stall_min", "mtti_min", "exact", "young", "daly"), [
    (0.5, 60, 7.42, 7.75, 7.42),
    (5, 480, 65.99, 69.28, 65.99),
    (5, 60, 21.28, 24.49, 21.27),
    (10, 30, 18.33, 24.49, 18.28),
])  # fmt: skip
def test_intervals_of_the_literature(stall_min, mtti_min, exact, young, daly):
    for rule, value in (("exact", exact), ("young", young), ("daly", daly)):
        found = optimal_interval_s(rule=rule, stall_s=60 * stall_min, mtti_s=60 * mtti_min) / 60
        assert found == pytest.approx(value, abs=0.011)


@pytest.mark.parametrize("seed", range(5))
def test_the_exact_interval_is_best_in_simulation(seed):
    rng = np.random.default_rng(seed)
    mtti, stall = HOUR_S * rng.uniform(1, 6), rng.uniform(30, 300)
    best = optimal_interval_s(rule="exact", stall_s=stall, mtti_s=mtti)
    plan = RunPlan(work_s=10 * DAY_S, nodes=1, node_failures_per_s=1 / mtti, stall_s=stall, durable_s=stall)
    times = [_mean_days(replace(plan, interval_s=best * f), 1500, seed) for f in (0.4, 1.0, 2.5)]
    assert times[1] < times[0]
    assert times[1] < times[2]


@pytest.mark.parametrize(("nodes", "per_day", "restart_min", "interval_min", "stall_min", "daly", "simulated"), [
    (128, 6.5e-3, 12.5, 60, 5, 0.899, 0.901),
    (2048, 3.79e-3, 10, 10, 0.5, 0.877, 0.879),
    (2048, 3.79e-3, 10, 60, 5, 0.730, 0.734),
    (2048, 6.5e-3, 12.5, 60, 5, 0.600, 0.603),
    (4096, 5e-3, 10, 30, 1, 0.668, 0.668),
])  # fmt: skip
def test_goodput_of_the_worked_cases(*, nodes, per_day, restart_min, interval_min, stall_min, daly, simulated):
    plan = RunPlan(
        work_s=60 * DAY_S,
        nodes=nodes,
        node_failures_per_s=per_day / DAY_S,
        restart_s=60 * restart_min,
        interval_s=60 * interval_min,
        stall_s=60 * stall_min,
        durable_s=60 * stall_min,
    )
    assert expected_run(plan=plan).goodput == pytest.approx(daly, abs=0.002)
    found = simulate_runs(plan=plan, replications=30, seed=4)
    assert found.productive_s.sum() / found.elapsed_s.sum() == pytest.approx(simulated, abs=0.006)


def test_spot_elapsed_and_useful_share():
    # 16 nodes of one zone: mean spell 1.7 h, away so that the gang is there 46 % of the time (published traces).
    spell, away = 1.7 * HOUR_S, 1.7 * HOUR_S * 0.54 / 0.46
    plan = RunPlan(
        work_s=5 * DAY_S,
        nodes=2,
        preemptions_per_s=1 / spell,
        preemption_wait_s=away,
        restart_s=600,
        interval_s=600,
        stall_s=30,
        durable_s=30,
    )
    found = simulate_runs(plan=plan, replications=500, seed=6)
    held = found.elapsed_s.sum() - found.losses_s[:, LOSSES.index("preempted")].sum()
    linear = 1 - 30 / 600 - (300 + 600) / spell
    assert found.productive_s.sum() / held == pytest.approx(linear, abs=0.03)
    assert found.elapsed_s.mean() / plan.work_s == pytest.approx(2.7, rel=0.1)


def test_a_deadline_leaves_spot_in_time():
    plan = RunPlan(
        work_s=5 * DAY_S,
        nodes=2,
        preemptions_per_s=4 / DAY_S,
        preemption_wait_s=6 * HOUR_S,
        restart_s=600,
        interval_s=1800,
        stall_s=30,
        durable_s=30,
    )
    late = simulate_runs(plan=plan, replications=300, seed=8)
    kept = simulate_runs(plan=replace(plan, deadline_s=8 * DAY_S), replications=300, seed=8)
    assert (late.elapsed_s > 8 * DAY_S).mean() > 0.5
    assert (kept.elapsed_s > 8 * DAY_S).mean() < 0.05
    assert kept.on_demand_s.mean() > 0


def test_spares_run_dry_and_more_of_them_help():
    busy = replace(BASE, node_failures_per_s=2e-7, interval_s=1200.0)
    days = [_mean_days(replace(busy, spares=n), 200) for n in (0, 4, 40)]
    assert days[0] > days[1] > days[2]
    assert days[2] == pytest.approx(_mean_days(busy, 200), rel=0.02)


def test_a_node_from_elsewhere_helps_where_spares_run_dry():
    busy = replace(BASE, node_failures_per_s=2e-7, interval_s=1200.0, spares=2)
    assert _mean_days(replace(busy, replacement_s=2 * HOUR_S), 200) < _mean_days(busy, 200)


def test_elastic_beats_waiting_for_slow_repair():
    slow = replace(BASE, node_failures_per_s=2e-7, replacement_s=12 * HOUR_S)
    assert _mean_days(replace(slow, elastic=True, unit_nodes=1, resize_s=60), 200) < _mean_days(slow, 200)


def test_a_cluster_that_cannot_finish_says_so():
    plan = replace(BASE, node_failures_per_s=1e-4, work_s=2 * DAY_S)
    found = simulate_runs(plan=plan, replications=5, seed=1)
    assert not found.finished.any()
    assert (found.elapsed_s <= 4 * plan.work_s + 2 * DAY_S).all()
