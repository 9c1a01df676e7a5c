"""What makes a strategy fit that does not: changes of its own keys, each tried on the whole plan, cheapest first."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.catalog.types import ModelSpec
from planner.forecast import Forecast, ForecastError, step_on
from planner.scenario import Scenario, Strategy
from planner.scenario.layout_checks import layout_problems
from planner.workload.layout import Layout
from planner.workload.relaxations import Relaxation, shortage

MOST = 4
NODE_FACTORS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
Change = Mapping[str, Any]


def relaxed(*, scenario: Scenario, forecast: Forecast) -> list[dict[str, Any]]:
    """Changes that help a forecast which does not fit; empty for one that does.

    Each is `{constraint, by, result, changes, fits, saves_gb, step_s, step_change_frac, why}`: which keys, to what, and
    the outcome. Those that fit come first, then the cheaper ones; `step_s` is None where a change does not fit.
    Where no key of the strategy helps, or beside them, the smallest multiple of the nodes on which it fits.
    """
    strategy = scenario.strategies.get(forecast.name)
    if forecast.resolved.fits or not isinstance(strategy, Strategy):
        return []
    resolved = forecast.resolved
    found = shortage(
        model=scenario.model_spec,
        layout=resolved.layout,
        fusions=resolved.software.fusions,
        capacity_bytes=forecast.answer.capacity_bytes,
    )
    if found is None:
        return []
    over = found.over_bytes
    single = [_tried(scenario=scenario, strategy=strategy, forecast=forecast, steps=[r]) for r in found.relaxations]
    tried = [entry for entry in single if entry is not None]
    if found.together and not any(entry["fits"] for entry in tried):
        chain = _tried(scenario=scenario, strategy=strategy, forecast=forecast, steps=found.together)
        tried += [chain] if chain is not None and len(found.together) > 1 else []
    tried.sort(key=lambda entry: not entry["fits"])
    nodes = _more_nodes(scenario=scenario, strategy=strategy, forecast=forecast, over_bytes=over)
    kept = tried[:MOST]
    if nodes is not None:
        fitting = sum(entry["fits"] for entry in kept)
        kept.insert(fitting, nodes)
    return kept


def _keys(*, layout: Layout, steps: Sequence[Relaxation]) -> dict[str, Any] | None:
    """The strategy's keys behind changes of a layout; None where a change has no key."""
    out: dict[str, Any] = {}
    for step in steps:
        if step.setting not in Strategy.model_fields:
            return None
        value: Any = step.value
        if step.setting == "sequence_parallel":
            value = True
        elif step.setting != "recompute":
            value = int(step.value)
        out[step.setting] = value
    if {"tp", "pp", "cp"} & set(out):
        out["dp"] = None
    if out.get("vpp") == 1:
        out["schedule"] = "1f1b"
    if "pp" in out and layout.zero_stage > 1 and "zero_stage" not in out:
        out["zero_stage"] = 1
    return out


def _tried(
    *, scenario: Scenario, strategy: Strategy, forecast: Forecast, steps: Sequence[Relaxation]
) -> dict[str, Any] | None:
    """The outcome of changes on the strategy as written; None where it cannot be placed with them."""
    changes = _keys(layout=forecast.resolved.layout, steps=steps)
    if changes is None:
        return None
    changed = strategy.model_copy(update=changes)
    if layout_problems(strategy=changed, **_size(scenario, model=scenario.model_spec)):
        return None
    try:
        resolved, answer = step_on(
            scenario=scenario,
            strategy=changed,
            gpus=scenario.gpus,
            global_batch=scenario.training.global_batch_sequences,
            engine="fast",
        )
    except ForecastError:
        return None
    named = {s.setting: s.value for s in steps}
    return _entry(
        constraint=" + ".join(named),
        by=" + ".join(named.values()),
        changes=changes,
        fits=resolved.fits,
        saves_bytes=_need(forecast) - answer.memory.peak_bytes - answer.memory.reserved_bytes,
        step_s=answer.step_s,
        before_s=forecast.answer.step_s,
        why="; ".join(dict.fromkeys(s.why for s in steps)),
    )


def _size(scenario: Scenario, *, model: ModelSpec) -> dict[str, Any]:
    training = scenario.training
    return {
        "model": model,
        "gpus": scenario.gpus,
        "global_batch": training.global_batch_sequences,
        "sequence": training.sequence_length,
    }


def _need(forecast: Forecast) -> float:
    return forecast.answer.memory.peak_bytes + forecast.answer.memory.reserved_bytes


def _node_counts(scenario: Scenario, *, strategy: Strategy) -> Iterator[int]:
    """Multiples of the nodes over which the global batch still divides."""
    degree = (strategy.tp or 1) * (strategy.pp or 1) * (strategy.cp or 1)
    for factor in NODE_FACTORS:
        gpus = scenario.gpus * factor
        if gpus % degree == 0 and scenario.training.global_batch_sequences % (gpus // degree) == 0:
            yield scenario.cluster.nodes * factor


def _more_nodes(
    *, scenario: Scenario, strategy: Strategy, forecast: Forecast, over_bytes: float
) -> dict[str, Any] | None:
    """The smallest multiple of the nodes on which the strategy fits; data-parallel ranks follow."""
    open_ = strategy.model_copy(update={"dp": None})
    for nodes in _node_counts(scenario, strategy=strategy):
        larger = scenario.model_copy(update={"cluster": scenario.cluster.model_copy(update={"nodes": nodes})})
        try:
            resolved, answer = step_on(
                scenario=larger,
                strategy=open_,
                gpus=larger.gpus,
                global_batch=larger.training.global_batch_sequences,
                engine="fast",
            )
        except ForecastError:
            continue
        if resolved.fits:
            return _entry(
                constraint="cluster.nodes",
                by=str(nodes),
                changes={"cluster.nodes": nodes, "dp": None},
                fits=True,
                saves_bytes=max(over_bytes, _need(forecast) - answer.memory.peak_bytes - answer.memory.reserved_bytes),
                step_s=answer.step_s,
                before_s=forecast.answer.step_s,
                why="more ranks share what ZeRO splits, and each holds fewer sequences",
            )
    return None


def _entry(
    *,
    constraint: str,
    by: str,
    changes: Change,
    fits: bool,
    saves_bytes: float,
    step_s: float,
    before_s: float,
    why: str,
) -> dict[str, Any]:
    slower = step_s / before_s - 1
    saved = f"frees {saves_bytes / 1e9:.1f} GB"
    result = f"fits, {saved}, step {step_s:.3g} s ({slower:+.0%})" if fits else f"{saved}, which is not enough"
    return {
        "constraint": constraint,
        "by": by,
        "result": result,
        "changes": dict(changes),
        "fits": fits,
        "saves_gb": saves_bytes / 1e9,
        "step_s": step_s if fits else None,
        "step_change_frac": slower if fits else None,
        "why": why,
    }
