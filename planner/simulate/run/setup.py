"""A scenario's `run` block and a strategy become the plan of a run."""

import math
from collections.abc import Collection

from planner.catalog.reliability import fitted_rate, spot_market
from planner.scenario import Scenario, Strategy
from planner.scenario.run import Run
from planner.simulate.run.closed_form import checkpoint_bytes, optimal_interval_s
from planner.simulate.run.plan import RunPlan
from planner.workload.layout import Layout
from planner.workload.params import total_params

DAY_S = 86_400.0
STACK_INTERVAL_S = 3 * 3600.0
AUTOMATIC_FRAC = 0.9


def run_plan(
    *, scenario: Scenario, strategy: Strategy, layout: Layout, step_s: float, optimisations: Collection[str] = ()
) -> RunPlan:
    """Everything the run clock needs.

    Args:
        scenario: its run, training, cluster, goals and pricing blocks are read.
        strategy: the defaults of preset `stack` are what people do without engineering.
        layout: who writes a checkpoint, and what an elastic job can give up.
        step_s: one optimizer step.
        optimisations: those that act on the run: asynchronous checkpoints, elastic restarts.
    """
    run = scenario.run
    by_default = strategy.preset == "stack" and not strategy.engineering_weeks
    tokens_per_step = scenario.training.global_batch_sequences * scenario.training.sequence_length
    steps = math.ceil(scenario.training.tokens / tokens_per_step)
    if "async_ckpt_eval" in optimisations:
        run = run.model_copy(update={"checkpoint_asynchronous": True})
    if "elastic" in optimisations:
        run = run.model_copy(update={"automatic_restart_frac": max(AUTOMATIC_FRAC, run.automatic_restart_frac or 0.0)})
    stall_s, durable_s = _checkpoint(scenario=scenario, run=run, layout=layout, by_default=by_default)
    nodes = scenario.cluster.nodes
    node_rate, node_sigma = _rate(given=run.failures_per_1000_node_days, scale=1000.0, part="per_node", run=run)
    job_rate, job_sigma = _rate(given=run.job_failures_per_day, scale=1.0, part="per_job", run=run)
    preemptions, wait_s = _preemption(scenario)
    per_node = scenario.gpus // nodes
    unit = max(1, math.ceil(layout.tp * layout.pp * layout.cp / per_node))
    elastic = run.elastic if run.elastic is not None else strategy.allocation == "elastic"
    deadline = scenario.goals.deadline_days
    return RunPlan(
        work_s=steps * step_s,
        nodes=nodes,
        gpus_per_node=per_node,
        node_failures_per_s=node_rate,
        node_sigma=node_sigma,
        job_failures_per_s=job_rate,
        job_sigma=job_sigma,
        infant_factor=run.infant_factor,
        infant_s=run.infant_decay_s,
        rack_frac=run.rack_failure_frac,
        rack_nodes=min(run.rack_nodes, nodes),
        slow_per_node_s=run.slow_onsets_per_1000_node_days / 1000 / DAY_S,
        slow_frac=run.slow_frac,
        slow_detection_s=run.slow_detection_s,
        silent_frac=run.silent_corruption_frac,
        silent_s=run.silent_rollback_s,
        detection_s=run.detection_s,
        spares=run.spares,
        replacement_s=run.replacement_s,
        repair_median_s=min(run.repair_median_s, run.repair_mean_s),
        repair_mean_s=run.repair_mean_s,
        restart_s=run.restart_s,
        communicator_s=run.communicator_s,
        load_s=run.load_s,
        compile_s=run.compile_s,
        automatic_frac=_automatic(given=run.automatic_restart_frac, by_default=by_default),
        manual_s=run.manual_restart_s,
        interval_s=_interval(
            scenario=scenario,
            by_default=by_default,
            stall_s=stall_s,
            durable_s=durable_s,
            rate_per_s=nodes * node_rate + job_rate + preemptions,
        ),
        stall_s=stall_s,
        durable_s=durable_s,
        peer_interval_s=run.peer_interval_s,
        peer_stall_s=run.peer_stall_s,
        peer_frac=run.peer_recovery_frac if run.peer_interval_s else 0.0,
        recall=run.prediction_recall,
        precision=run.prediction_precision,
        elastic=elastic and unit < nodes,
        unit_nodes=unit,
        resize_s=run.resize_s,
        warmup_work_frac=run.warmup_work_frac,
        warmup_nodes_frac=run.warmup_nodes_frac,
        preemptions_per_s=preemptions,
        preemption_wait_s=wait_s,
        notice_s=run.preemption_notice_s,
        deadline_s=deadline * DAY_S if run.on_demand_by_deadline and deadline is not None else None,
        maintenance_interval_s=run.maintenance_interval_s or math.inf,
        maintenance_s=run.maintenance_s,
        data_frac=run.data_wait_frac,
        evaluation_frac=run.evaluation_frac,
        startup_s=run.startup_s,
        queue_s=run.queue_s,
        spikes_per_s=run.loss_spikes_per_day / DAY_S,
        spike_rollback_s=run.spike_rollback_s,
    )


def _rate(*, given: float | None, scale: float, part: str, run: Run) -> tuple[float, float]:
    """Events a second and their spread: those of published clusters unless the scenario gives its own."""
    published = fitted_rate(part)
    per_day = published.per_day if given is None else given / scale
    sigma = published.sigma if given is None else 0.0
    return per_day / DAY_S, sigma if run.rate_sigma is None else run.rate_sigma


def _automatic(*, given: float | None, by_default: bool) -> float:
    if given is not None:
        return given
    return 0.0 if by_default else AUTOMATIC_FRAC


def _checkpoint(*, scenario: Scenario, run: Run, layout: Layout, by_default: bool) -> tuple[float, float]:
    """Stall, and time until durable."""
    size = checkpoint_bytes(params=total_params(scenario.model_spec), bytes_per_param=run.checkpoint_bytes_per_param)
    rate = run.storage_bytes_per_s
    if run.writer_bytes_per_s is not None:
        writers = scenario.gpus if layout.zero_stage > 0 else scenario.gpus // layout.dp
        rate = min(rate, writers * run.writer_bytes_per_s)
    write_s = size / rate
    asynchronous = run.checkpoint_asynchronous if run.checkpoint_asynchronous is not None else not by_default
    return (min(write_s, run.snapshot_s) if asynchronous else write_s), write_s


def _interval(*, scenario: Scenario, by_default: bool, stall_s: float, durable_s: float, rate_per_s: float) -> float:
    run = scenario.run
    if run.checkpoint_interval_s is not None:
        return run.checkpoint_interval_s
    if by_default:
        return STACK_INTERVAL_S
    if rate_per_s <= 0:
        return math.inf
    best = optimal_interval_s(rule=run.checkpoint_rule, stall_s=stall_s, mtti_s=1 / rate_per_s)
    return max(best, durable_s, 60.0)


def _preemption(scenario: Scenario) -> tuple[float, float]:
    """Losses of the gang a second and the mean wait for its return."""
    run = scenario.run
    market = spot_market()
    spot = scenario.pricing.tenure == "spot"
    per_s = run.preemptions_per_day / DAY_S if run.preemptions_per_day is not None else 0.0
    if run.preemptions_per_day is None and spot:
        per_s = 1 / market.gang_spell_s
    away = market.gang_spell_s * (1 - market.availability_frac) / market.availability_frac
    wait = run.preemption_wait_s if run.preemption_wait_s is not None else away
    return per_s, wait if per_s else 0.0
