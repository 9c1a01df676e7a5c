"""The spine: scenario -> layout -> step -> run -> bill, the only place where the stages are chained."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from planner import SCHEMA_VERSION, __version__, catalog
from planner.catalog.line import Line
from planner.catalog.types import ModelSpec
from planner.cost.profiled import profiled_costs
from planner.cost.topology import network_of
from planner.cost.types import Network
from planner.profile.load import ProfileError
from planner.profile.site import Site, SiteError, load_site, site_sigma
from planner.scenario import Scenario, Strategy
from planner.simulate.assemble import StepAnswer, forecast_step, with_jitter, with_site
from planner.simulate.durations import Machine
from planner.simulate.optimise import optimised_step
from planner.simulate.stack_step import base_stack
from planner.step_document import memory_document, step_lines, strategy_document
from planner.workload.exchange import notes
from planner.workload.params import total_params
from planner.workload.resolve import Resolved, resolve_strategy
from planner.workload.transforms import Stack, effective_model

Z80 = 1.2815515655446004
# One standard deviation of log(forecast / measured) on packaged public rows of dense runs, and what MoE and
# launch-bound steps add; `planner validate` prints the coverage these give.
SIGMA_DENSE, SIGMA_MOE, SIGMA_LAUNCH = 0.10, 0.20, 0.10
# With measured kernels: exchanges by a fabric's constants err 20 %, the same plan differs 5 % between healthy clusters.
SIGMA_WAITING, SIGMA_CLUSTER = 0.20, 0.05


class ForecastError(ValueError):
    """A strategy that cannot be forecast as written."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Every figure of one strategy, as lines, with the step behind them."""

    name: str
    resolved: Resolved
    answer: StepAnswer
    lines: tuple[Line, ...]
    warnings: tuple[str, ...]
    document: Mapping[str, Any]
    stack: Stack

    def value(self, line_id: str) -> float:
        """The value of a line.

        Raises:
            KeyError: no such line.
        """
        for line in self.lines:
            if line.id == line_id:
                return line.value
        raise KeyError(line_id)


def machine_for(*, scenario: Scenario, resolved: Resolved, gpus: int) -> Machine:
    """Hardware, fabric and software of a strategy."""
    cluster = scenario.cluster
    node = catalog.node(cluster.node)
    fabric = cluster.fabric
    try:
        network = network_of(
            node=node,
            gpu=catalog.gpu(node.gpu),
            scaleout=getattr(fabric, "kind", None),
            node_bytes_per_s=getattr(fabric, "node_bytes_per_s", None),
            oversubscription=getattr(fabric, "oversubscription", None) or 1.0,
            stated=fabric,
        )
    except ValueError as error:
        raise ForecastError(f"cluster.fabric: {error}") from error
    network = replace(network, gpus_per_node=min(network.gpus_per_node, gpus))
    check_profile(scenario)
    return Machine(
        gpu=node.gpu,
        network=network,
        software=resolved.software,
        cuda_graph=resolved.cuda_graph,
        p2p_overlap=resolved.p2p_overlap,
        ep_overlap=resolved.ep_overlap,
        compiled=resolved.compiled,
        profile=cluster.profile or "",
    )


def check_profile(scenario: Scenario) -> None:
    """The calibration profile that a scenario names exists and is of the cluster's GPU.

    Raises:
        ForecastError: it cannot be read, or is of another GPU.
    """
    name, gpu = scenario.cluster.profile, catalog.node(scenario.cluster.node).gpu
    if not name:
        return
    try:
        measured = profiled_costs(name).profile.device.gpu
    except ProfileError as error:
        raise ForecastError(f"cluster.profile: {error}") from error
    if measured != gpu:
        raise ForecastError(
            f"cluster.profile: {name} was measured on {measured}, and {scenario.cluster.node} holds {gpu}; "
            "name a profile of that GPU, or none for published rates"
        )


def resolve(
    *, scenario: Scenario, strategy: Strategy, gpus: int | None = None, global_batch: int | None = None
) -> Resolved:
    """Close a strategy's open fields on the scenario's cluster, or on another number of its GPUs."""
    if scenario.cluster.also:
        raise ForecastError("cluster.also: a mixed fleet is forecast as the equal fleet it runs like (decide.mixed)")
    node = catalog.node(scenario.cluster.node)
    try:
        return resolve_strategy(
            strategy=strategy,
            model=scenario.model_spec,
            gpus=gpus or scenario.gpus,
            global_batch=global_batch or scenario.training.global_batch_sequences,
            sequence=scenario.training.sequence_length,
            capacity_bytes=catalog.gpu(node.gpu).mem_bytes,
        )
    except ValueError as error:
        raise ForecastError(str(error)) from error


def _sigma(*, model: ModelSpec, answer: StepAnswer, gpus: int) -> float:
    if answer.measured_sigma is not None:
        # Measured kernels, modelled waiting; one rank's step says nothing of how clusters differ.
        waiting = sum(v for k, v in answer.breakdown_s if k.startswith("exposed_") or k == "bubble") / answer.step_s
        apart = SIGMA_CLUSTER if gpus > 1 else 0.0
        return math.hypot((1 - waiting) * answer.measured_sigma, waiting * SIGMA_WAITING, apart)
    base = SIGMA_MOE if model.moe_experts else SIGMA_DENSE
    return math.sqrt(base**2 + (SIGMA_LAUNCH**2 if answer.launch_frac > 0.25 else 0.0))


def step_sigma(*, scenario: Scenario, answer: StepAnswer) -> float:
    """One standard deviation of the logarithm of a forecast step.

    Raises:
        ForecastError: the scenario names a site that cannot be used.
    """
    site, sigma = site_of(scenario), _sigma(model=scenario.model_spec, answer=answer, gpus=scenario.gpus)
    return sigma if site is None else site_sigma(site=site, default_sigma=sigma)


def band(*, value: float, sigma: float) -> dict[str, float]:
    """P10, P50 and P90 of a log-normal figure."""
    return {"p10": value * math.exp(-Z80 * sigma), "p50": value, "p90": value * math.exp(Z80 * sigma)}


def site_of(scenario: Scenario) -> Site | None:
    """The fitted site a scenario names, None where it names none.

    Raises:
        ForecastError: the file cannot be used.
    """
    if not scenario.cluster.site:
        return None
    try:
        return load_site(scenario.cluster.site)
    except SiteError as error:
        raise ForecastError(f"cluster.site: {error}") from error


@lru_cache(maxsize=4096)
def step_on(
    *, scenario: Scenario, strategy: Strategy, gpus: int, global_batch: int, engine: str
) -> tuple[Resolved, StepAnswer]:
    """Layout and step of a strategy on a number of GPUs."""
    resolved = resolve(scenario=scenario, strategy=strategy, gpus=gpus, global_batch=global_batch)
    machine = machine_for(scenario=scenario, resolved=resolved, gpus=gpus)
    if strategy.optimisations:
        resolved, answer = _with_optimisations(
            scenario=scenario, strategy=strategy, resolved=resolved, network=machine.network, engine=engine
        )
    else:
        stack = base_stack(scenario=scenario, resolved=resolved)
        answer = forecast_step(
            model=effective_model(stack),
            layout=resolved.layout,
            machine=machine,
            engine=engine,
            memory_model=stack.model,
        )
    site = site_of(scenario)
    if site is not None:
        answer = with_site(
            answer=answer,
            compute_factor=site.compute_factor,
            network_factor=site.network_factor,
            host_factor=site.host_factor,
        )
    if scenario.run.jitter_frac:
        answer = with_jitter(answer=answer, jitter_frac=scenario.run.jitter_frac, ranks=gpus)
    return resolved, answer


def _with_optimisations(
    *, scenario: Scenario, strategy: Strategy, resolved: Resolved, network: Network, engine: str
) -> tuple[Resolved, StepAnswer]:
    """Layout, software and step after the optimisations that a strategy names."""
    try:
        answer = optimised_step(
            model=scenario.model_spec,
            stack=base_stack(scenario=scenario, resolved=resolved),
            keys=strategy.optimisations,
            network=network,
            open_recompute=strategy.recompute is None,
            engine=engine,
        )
    except ValueError as error:
        raise ForecastError(str(error)) from error
    assert answer.optimised is not None
    stack = answer.optimised.stack
    after = replace(
        resolved,
        layout=stack.layout,
        software=stack.software,
        memory=answer.memory,
        fits=answer.fits,
        cuda_graph=stack.cuda_graph,
        ep_overlap=stack.ep_overlap,
        compiled=stack.compiled,
    )
    return after, answer


def smallest_fit(*, scenario: Scenario, strategy: Strategy, engine: str = "fast") -> tuple[int, StepAnswer] | None:
    """Fewest GPUs (whole nodes, doubling from the strategy's own minimum) on which the strategy fits, weak scaling.

    The batch shrinks with the data-parallel degree, so each rank keeps its work.
    """
    total = scenario.gpus
    per_node = min(catalog.node(scenario.cluster.node).gpus_per_node, total)
    batch = scenario.training.global_batch_sequences
    candidates = [g for g in _divisors(total) if g % per_node == 0 or g == total]
    for gpus in candidates:
        if (batch * gpus) % total:
            continue
        smaller = strategy.model_copy(update={"dp": None})
        try:
            resolved, answer = step_on(
                scenario=scenario, strategy=smaller, gpus=gpus, global_batch=batch * gpus // total, engine=engine
            )
        except ForecastError:
            continue
        if resolved.fits:
            return gpus, answer
    return None


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def forecast_strategy(*, scenario: Scenario, name: str, engine: str = "events") -> Forecast:
    """The whole forecast of one strategy of a scenario.

    Raises:
        ForecastError: an unresolved `auto`, or a layout that cannot be placed.
    """
    from planner.outcome import run_and_bill  # late: money and run clock are not needed by `step_on`

    strategy = scenario.strategies.get(name)
    if strategy is None or isinstance(strategy, str):
        raise ForecastError(f"strategy {name!r} is `auto`: search for it first (`planner search`), or name its degrees")
    gpus, batch = scenario.gpus, scenario.training.global_batch_sequences
    resolved, answer = step_on(scenario=scenario, strategy=strategy, gpus=gpus, global_batch=batch, engine=engine)
    smallest = smallest_fit(scenario=scenario, strategy=strategy)
    sigma = step_sigma(scenario=scenario, answer=answer)
    lines = list(step_lines(answer=answer, resolved=resolved, profile=scenario.cluster.profile))
    efficiency = None
    if smallest is not None and resolved.fits:
        reference, at = smallest
        efficiency = (answer.tokens_per_s / gpus) / (at.tokens_per_s / reference)
        lines.append(
            Line(
                "scaling_efficiency",
                efficiency,
                "1",
                "tokens/s/GPU over that of the smallest cluster where it fits",
                (f"reference_gpus={reference}", "tokens_per_s_per_gpu"),
                "assumed",
                "weak scaling: work per rank kept",
            )
        )
    outcome = run_and_bill(scenario=scenario, strategy=strategy, resolved=resolved, answer=answer, sigma=sigma)
    warnings = outcome.warnings + notes(resolved.layout.exchange)
    warnings += _profile_notes(scenario=scenario, answer=answer)
    warnings += tuple(f"optimisation {e['key']}: {e['note']}" for e in outcome.optimisations if e["note"])
    if scenario.cluster.stands_for:
        warnings += (scenario.cluster.stands_for_text(),)
    lines += outcome.lines
    document = _document(
        scenario=scenario,
        name=name,
        resolved=resolved,
        answer=answer,
        sigma=sigma,
        outcome={**outcome.document, "optimisations": list(outcome.optimisations)},
        scaling={"value": efficiency, "kind": "weak", "reference_gpus": smallest[0] if smallest else None},
        lines=lines,
        warnings=warnings,
    )
    after = answer.optimised
    stack = after.stack if after is not None else base_stack(scenario=scenario, resolved=resolved)
    return Forecast(name, resolved, answer, tuple(lines), warnings, document, stack)


def _profile_notes(*, scenario: Scenario, answer: StepAnswer) -> tuple[str, ...]:
    """What a named profile measures of this step."""
    name = scenario.cluster.profile
    if not name:
        return ()
    profile = profiled_costs(name).profile
    if answer.measured_sigma is None:
        return (
            f"profile {name}: this stack is not PyTorch's own step, so products, attention and traffic are read off "
            "it one by one, and experts and other operators keep published rates",
        )
    notes = [
        f"profile {name}: kernels and host times as torch {profile.software.torch} runs them, whatever the release"
    ]
    if answer.launch_frac > 0.25:
        notes.append("the host holds the step: hosts of one kind differ by tens of percent, calibrate your own")
    return tuple(notes)


def _document(
    *,
    scenario: Scenario,
    name: str,
    resolved: Resolved,
    answer: StepAnswer,
    sigma: float,
    outcome: Mapping[str, Any],
    scaling: Mapping[str, Any],
    lines: list[Line],
    warnings: tuple[str, ...],
) -> dict[str, Any]:
    lay = resolved.layout
    breakdown = dict(answer.breakdown_s)
    exposed = sum(v for k, v in breakdown.items() if k.startswith("exposed_"))
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": {"planner": __version__, "profile": scenario.cluster.profile, "catalog": "2026-12-01"},
        "name": name,
        "strategy": strategy_document(resolved, applied=answer.applied),
        "engine": answer.engine,
        "feasible": resolved.fits,
        "step_s": band(value=answer.step_s, sigma=sigma),
        "tokens_per_s_per_gpu": answer.tokens_per_s / lay.gpus,
        "model_tflops_per_gpu": answer.model_flops_per_s_per_gpu / 1e12,
        "hfu": answer.hardware_flops_per_s_per_gpu / answer.peak_flops,
        "mfu": answer.model_flops_per_s_per_gpu / answer.peak_flops,
        "mfu_full_attention": answer.full_attention_flops_per_s_per_gpu / answer.peak_flops,
        "breakdown_s": breakdown,
        "link_busy_s": dict(answer.link_busy_s),
        "utilization": {
            "compute_busy_frac": answer.compute_busy_frac,
            "hbm_busy_frac": answer.hbm_busy_frac,
            "link_busy_frac": max(v for _, v in answer.link_busy_s) / answer.step_s,
            "comm_wait_frac": exposed / answer.step_s,
            "allocated_frac": lay.gpus / scenario.gpus,
            "paid_frac": outcome.get("goodput", 1.0) * lay.gpus / scenario.gpus,
        },
        "scaling_efficiency": dict(scaling),
        "memory_gb": memory_document(answer),
        "fits": resolved.fits,
        "memory_over_gb": answer.memory_over_bytes / 1e9,
        **outcome,
        "provenance": [
            {
                "id": x.id,
                "value": x.value,
                "unit": x.unit,
                "label": x.label,
                "source": x.source,
                "formula": x.formula,
                "inputs": list(x.inputs),
            }
            for x in lines
        ],
        "label_share": dict(answer.label_share),
        "params": total_params(scenario.model_spec),
        "warnings": list(warnings),
    }


def step_spans(*, scenario: Scenario, forecast: Forecast) -> list[Any]:
    """Spans of one step by events, one track a stage and stream."""
    from planner.simulate.durations import build
    from planner.simulate.recorder import Recorder
    from planner.simulate.step import step_events

    machine = machine_for(scenario=scenario, resolved=forecast.resolved, gpus=scenario.gpus)
    recorder = Recorder()
    step_events(build(model=scenario.model_spec, layout=forecast.resolved.layout, machine=machine).plan, recorder)
    return list(recorder.spans)
