"""Scaling curves of a scenario: the step on ever more GPUs, the knee of the curve, and what bends it at each point.

Weak scaling keeps the sequences of a data-parallel rank (the global batch grows with the GPUs); strong scaling keeps
the global batch. Efficiency is tokens/s/GPU over that at the smallest swept count where the strategy fits, GPUs that
stand idle counted (above 1 where more GPUs relieve memory). The knee is the largest count whose efficiency is at least
`KNEE_EFFICIENCY`; the bend is the point farthest above the chord of the curve over log2 of the GPUs (Satopaa et al.
2011, "Finding a Kneedle in a Haystack").
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner import SCHEMA_VERSION, __version__, catalog
from planner.forecast import ForecastError, resolve, step_on
from planner.scenario import Scenario, Strategy
from planner.scenario.layout_checks import layout_problems
from planner.simulate.assemble import StepAnswer
from planner.workload.layout import Layout

KINDS = ("weak", "strong")
KNEE_EFFICIENCY = 0.8
EVEN_FRAC = 0.002  # losses that grew by less than this share of the step since the reference name no cause
CAUSES = {
    "bubble": "bubble",
    "exposed_tp": "exposed_tp",
    "exposed_dp": "exposed_dp",
    "exposed_ep": "exposed_ep",
    "exposed_cp": "exposed_cp",
    "exposed_pp": "exposed_pp",
    "straggler": "stragglers",
    "launch_gap": "launch",
    "compute_matmul": "kernels",
    "compute_attention": "kernels",
    "compute_memory_bound": "kernels",
    "optimizer": "optimizer",
    "other": "other",
}


@dataclass(frozen=True, slots=True)
class Point:
    """One cluster size of a curve. `used_gpus` of the `gpus` work; `gpu_s_per_token` splits what a token costs.

    `cause` is the part that grew most since the reference; where nothing grew, the largest part beside kernels.
    """

    gpus: int
    used_gpus: int
    global_batch: int
    layout: Layout
    answer: StepAnswer
    gpu_s_per_token: Mapping[str, float]
    efficiency: float
    lost_frac: Mapping[str, float]
    cause: str


@dataclass(frozen=True, slots=True)
class _Found:
    """A size that runs: `idle` names why GPUs beyond `used` have no work."""

    gpus: int
    used: int
    batch: int
    idle: str
    layout: Layout
    answer: StepAnswer


@dataclass(frozen=True, slots=True)
class Knee:
    """Where a curve ends to pay. `cause` is what holds the next size back; None where the sweep never gets there."""

    gpus: int
    efficiency: float
    cause: str | None
    reached: bool
    bend_gpus: int


@dataclass(frozen=True, slots=True)
class Curve:
    """One strategy under one kind of scaling, with the sizes that cannot be run and why."""

    strategy: str
    kind: str
    points: tuple[Point, ...]
    infeasible: tuple[tuple[int, str], ...]
    knee: Knee | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """Every curve of a scenario; the first one is the answer of contract 4."""

    curves: tuple[Curve, ...]
    warnings: tuple[str, ...]
    document: Mapping[str, Any]


def gpu_counts(*, first: int, last: int, gpus_per_node: int, own: int) -> list[int]:
    """Doubling counts of whole nodes from first to last, with the end of the range and the scenario's own size.

    Raises:
        ValueError: an empty or negative range.
    """
    if first < 1 or last < first:
        raise ValueError(f"a range of GPUs needs 1 <= first <= last, not {first}..{last}")
    counts, size = set(), first
    while size <= last:
        counts.add(size)
        size *= 2
    counts |= {last} | ({own} if first <= own <= last else set())
    whole = {c if c < gpus_per_node else c // gpus_per_node * gpus_per_node for c in counts}
    return sorted(c for c in whole if c >= 1)


def sweep(
    *,
    scenario: Scenario,
    first: int = 8,
    last: int = 16384,
    kinds: Sequence[str] = KINDS,
    strategies: Sequence[str] | None = None,
    engine: str = "fast",
) -> Sweep:
    """Curves of the named strategies (all that are not `auto` by default).

    Raises:
        ForecastError: an unknown strategy, or none but `auto`.
        ValueError: an empty range.
    """
    names = _names(scenario=scenario, strategies=strategies)
    warnings = [f"strategy {n} is `auto` and is left out" for n in scenario.strategies if _auto(scenario, n)]
    large, warning = _with_network(scenario)
    node = catalog.node(scenario.cluster.node)
    per_node = scenario.cluster.gpus_per_node_used or node.gpus_per_node
    counts = gpu_counts(first=first, last=last, gpus_per_node=per_node, own=scenario.gpus)
    if warning and last > per_node:
        warnings.append(warning)
    if "weak" in kinds and last > scenario.gpus:
        grown = scenario.training.global_batch_sequences * last // scenario.gpus
        warnings.append(
            f"weak scaling grows the global batch to {grown} sequences on {last} GPUs; "
            "beyond the critical batch more tokens are needed, which these curves do not charge"
        )
    curves = tuple(
        _curve(scenario=scenario, large=large, name=name, kind=kind, counts=counts, per_node=per_node, engine=engine)
        for name in names
        for kind in kinds
    )
    document = _document(scenario=scenario, curves=curves, warnings=warnings)
    return Sweep(curves, tuple(warnings), document)


def _auto(scenario: Scenario, name: str) -> bool:
    return isinstance(scenario.strategies[name], str)


def _names(*, scenario: Scenario, strategies: Sequence[str] | None) -> list[str]:
    known = [n for n in scenario.strategies if not _auto(scenario, n)]
    for name in strategies or ():
        if name not in scenario.strategies:
            raise ForecastError(f"no strategy {name!r}; the scenario has {', '.join(scenario.strategies)}")
        if _auto(scenario, name):
            raise ForecastError(f"strategy {name!r} is `auto`: search for it first, or name its degrees")
    if not known:
        raise ForecastError("every strategy is `auto`: search first, or name the degrees of one")
    return list(strategies or known)


def _with_network(scenario: Scenario) -> tuple[Scenario, str | None]:
    """The scenario to use beyond one node: a node type without a network gives way to one of the same GPU with one."""
    node = catalog.node(scenario.cluster.node)
    fabric = scenario.cluster.fabric
    rate = (fabric.node_bytes_per_s if fabric else None) or node.scaleout_bytes_per_s
    if rate > 0 and ((fabric.kind if fabric else None) or node.fabric) != "none":
        return scenario, None
    from planner.catalog.nodes import nodes

    others = [n for n in nodes().values() if n.gpu == node.gpu and n.scaleout_bytes_per_s > 0 and n.fabric != "none"]
    if not others:
        return scenario, None
    other = max(others, key=lambda n: (n.gpus_per_node, n.scaleout_bytes_per_s))
    cluster = scenario.cluster.model_copy(update={"node": other.name, "gpus_per_node_used": None, "fabric": None})
    text = f"{node.name} has no network: sizes beyond one node are forecast on {other.name} ({other.fabric})"
    return scenario.model_copy(update={"cluster": cluster}), text


def _curve(
    *, scenario: Scenario, large: Scenario, name: str, kind: str, counts: list[int], per_node: int, engine: str
) -> Curve:
    written = scenario.strategies[name]
    assert isinstance(written, Strategy)
    strategy = written.model_copy(update={"dp": None})
    found: list[_Found] = []
    infeasible: list[tuple[int, str]] = []
    for gpus in counts:
        on = scenario if gpus <= per_node else large
        try:
            used, batch, idle = _share(scenario=scenario, strategy=strategy, gpus=gpus, kind=kind)
            resolved = resolve(scenario=on, strategy=strategy, gpus=used, global_batch=batch)
            if not resolved.fits:
                infeasible.append((gpus, "memory: the fullest rank does not fit its GPU"))
                continue
            _, answer = step_on(scenario=on, strategy=strategy, gpus=used, global_batch=batch, engine=engine)
        except ValueError as problem:
            infeasible.append((gpus, str(problem)))
            continue
        found.append(_Found(gpus, used, batch, idle, resolved.layout, answer))
    points = _points(found)
    return Curve(name, kind, points, tuple(infeasible), knee_of(points))


def _share(*, scenario: Scenario, strategy: Strategy, gpus: int, kind: str) -> tuple[int, int, str]:
    """GPUs that work, the global batch, and why the others idle: as many ranks as the batch and the layout allow.

    Raises:
        ForecastError: the layout does not fit on so few GPUs, or no number of ranks suits it.
    """
    product = (strategy.tp or 1) * (strategy.pp or 1) * (strategy.cp or 1)
    if gpus < product:
        raise ForecastError(f"layout: tp x pp x cp = {product} needs more than {gpus} GPUs")
    batch = scenario.training.global_batch_sequences
    most = batch // (strategy.micro_batch_sequences or 1)
    idle = "batch_limit" if kind == "strong" and most < gpus // product else "layout"
    reason = f"batch: {batch} sequences cannot be dealt to ranks of this layout"
    for dp in _degrees(batch=batch if kind == "strong" else None, limit=gpus // product):
        share = batch if kind == "strong" else max(1, round(batch * product / scenario.gpus)) * dp
        problems = layout_problems(
            strategy=strategy,
            model=scenario.model_spec,
            gpus=dp * product,
            global_batch=share,
            sequence=scenario.training.sequence_length,
        )
        if not problems:
            return dp * product, share, idle
        reason = f"layout: {problems[0][1]}"
    raise ForecastError(reason)


def _degrees(*, batch: int | None, limit: int) -> Iterator[int]:
    """Data-parallel degrees worth trying, largest first: divisors of a fixed batch, or the few largest."""
    if batch is None:
        yield from range(limit, max(0, limit - 8), -1)
        return
    yield from (dp for dp in range(min(limit, batch), 0, -1) if batch % dp == 0)


def _points(found: Sequence[_Found]) -> tuple[Point, ...]:
    out: list[Point] = []
    for f in found:
        tokens = f.batch * f.layout.sequence
        parts: dict[str, float] = {}
        for key, seconds in f.answer.breakdown_s:
            parts[CAUSES[key]] = parts.get(CAUSES[key], 0.0) + seconds * f.used / tokens
        if f.used < f.gpus:
            parts[f.idle] = f.answer.step_s * (f.gpus - f.used) / tokens
        total = sum(parts.values())
        reference = out[0].gpu_s_per_token if out else parts
        grown = {k: (parts.get(k, 0.0) - reference.get(k, 0.0)) / total for k in parts | dict(reference)}
        cause = max(grown, key=lambda k: grown[k])
        if grown[cause] < EVEN_FRAC:
            cause = max((k for k in parts if k != "kernels"), key=lambda k: parts[k])
        efficiency = sum(reference.values()) / total
        out.append(Point(f.gpus, f.used, f.batch, f.layout, f.answer, parts, efficiency, grown, cause))
    return tuple(out)


def knee_of(points: Sequence[Point]) -> Knee | None:
    """The knee of a curve, None without points."""
    if not points:
        return None
    last = max(i for i, p in enumerate(points) if p.efficiency >= KNEE_EFFICIENCY)
    reached = last + 1 < len(points)
    bend = bend_of(gpus=[p.gpus for p in points], efficiency=[p.efficiency for p in points])
    return Knee(points[last].gpus, points[last].efficiency, points[last + 1].cause if reached else None, reached, bend)


def bend_of(*, gpus: Sequence[int], efficiency: Sequence[float]) -> int:
    """GPUs at the point farthest above the chord of efficiency over log2 GPUs; the last point of a straight line."""
    x = [math.log2(g) for g in gpus]
    span_x, span_y = x[-1] - x[0], efficiency[0] - efficiency[-1]
    if span_x <= 0 or span_y <= 0:
        return gpus[-1]
    above = [(y - efficiency[-1]) / span_y - (x[-1] - xi) / span_x for xi, y in zip(x, efficiency, strict=True)]
    best = max(range(len(above)), key=lambda i: above[i])
    return gpus[best] if above[best] > 1e-9 else gpus[-1]


def _point_document(*, point: Point, tokens: float) -> dict[str, Any]:
    lay, answer = point.layout, point.answer
    steps = math.ceil(tokens / (point.global_batch * lay.sequence))
    return {
        "gpus": point.gpus,
        "step_s": answer.step_s,
        "scaling_efficiency": point.efficiency,
        "cause": point.cause,
        "used_gpus": point.used_gpus,
        "global_batch_sequences": point.global_batch,
        "tokens_per_s": answer.tokens_per_s,
        "tokens_per_s_per_gpu": answer.tokens_per_s / point.gpus,
        "mfu": answer.model_flops_per_s_per_gpu / answer.peak_flops * point.used_gpus / point.gpus,
        "days_ideal": steps * answer.step_s / 86_400.0,
        "breakdown_s": dict(answer.breakdown_s),
        "lost_frac": dict(point.lost_frac),
        "layout": {
            "tp": lay.tp,
            "pp": lay.pp,
            "dp": lay.dp,
            "cp": lay.cp,
            "ep": lay.ep,
            "zero_stage": lay.zero_stage,
            "micro_batch_sequences": lay.micro_batch,
            "micro_batches": lay.micro_batches,
            "recompute": lay.recompute,
        },
    }


def _knee_document(knee: Knee | None) -> dict[str, Any] | None:
    if knee is None:
        return None
    return {
        "gpus": knee.gpus,
        "cause": knee.cause,
        "scaling_efficiency": knee.efficiency,
        "reached": knee.reached,
        "threshold": KNEE_EFFICIENCY,
        "bend_gpus": knee.bend_gpus,
    }


def _document(*, scenario: Scenario, curves: Sequence[Curve], warnings: Sequence[str]) -> dict[str, Any]:
    """The answer of contract 4: `points` and `knee` are those of the first curve; `curves` holds all of them."""
    drawn = [
        {
            "strategy": c.strategy,
            "kind": c.kind,
            "points": [_point_document(point=p, tokens=scenario.training.tokens) for p in c.points],
            "knee": _knee_document(c.knee),
            "infeasible": [{"gpus": g, "reason": why} for g, why in c.infeasible],
        }
        for c in curves
    ]
    main = next((c for c in drawn if c["points"]), drawn[0])
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": {"planner": __version__, "profile": None, "catalog": "2026-12-01"},
        "seed": 0,
        "strategy": main["strategy"],
        "kind": main["kind"],
        "points": main["points"],
        "knee": main["knee"],
        "curves": drawn,
        "warnings": list(warnings),
    }
