"""Scaling: one strategy over many cluster sizes, weak or strong, with the knee and the cause at each point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from planner import SCHEMA_VERSION, __version__, catalog
from planner.decide.spread import ONE_CORE, Job, Table, Where, fingerprint, spread
from planner.forecast import ForecastError, site_of, step_on
from planner.scenario import Scenario, Strategy

Kind = Literal["weak", "strong"]
KNEE_EFFICIENCY = 0.8
CAUSES = {
    "bubble": "bubble",
    "exposed_tp": "exposed TP",
    "exposed_pp": "exposed PP",
    "exposed_dp": "exposed DP",
    "exposed_cp": "exposed CP",
    "exposed_ep": "exposed EP",
    "launch_gap": "launch",
    "optimizer": "optimizer",
    "straggler": "stragglers",
    "other": "other",
}
# Columns of a size: what a file of results holds.
KINDS = {
    "gpus": "int",
    "global_batch_sequences": "int",
    "placed": "bool",
    "fits": "bool",
    "dp": "int",
    "micro_batch_sequences": "int",
    "micro_batches": "int",
    "step_s": "float",
    "tokens_per_s": "float",
    **{f"{k}_s": "float" for k in CAUSES},
}
SIZE_S, PASS_S = 0.02, 2.5e-6


@dataclass(frozen=True, slots=True)
class Point:
    """One cluster size; `efficiency` is tokens/s/GPU over that of the smallest size that works."""

    gpus: int
    step_s: float
    tokens_per_s: float
    efficiency: float
    cause: str
    fits: bool


def sizes(*, first: int, last: int, per_node: int) -> list[int]:
    """Doublings from `first` to `last`, whole nodes above one node."""
    out, size = [], max(1, first)
    while size <= last:
        if size <= per_node or size % per_node == 0:
            out.append(size)
        size *= 2
    return out


def _resized(strategy: Strategy, *, gpus: int) -> Strategy:
    """The strategy with the data-parallel degree left open, so that it takes what is left of another size."""
    update: dict[str, Any] = {"dp": None}
    fixed = (strategy.tp or 1) * (strategy.pp or 1) * (strategy.cp or 1)
    if gpus % fixed:
        raise ForecastError(f"tp x pp x cp = {fixed} does not divide {gpus} GPUs")
    return strategy.model_copy(update=update)


def _cause(*, now: Mapping[str, Any], reference: Mapping[str, Any], batch_limited: bool) -> str:
    """The part of the step whose share grew most since the smallest size."""
    if batch_limited:
        return "batch limit"
    growth = {k: now[f"{k}_s"] / now["step_s"] - reference[f"{k}_s"] / reference["step_s"] for k in CAUSES}
    grown = max(CAUSES, key=lambda k: growth[k])
    return "none" if growth[grown] < 0.005 else CAUSES[grown]


def _batch(*, scenario: Scenario, gpus: int, kind: Kind) -> int:
    batch = scenario.training.global_batch_sequences
    return max(1, round(batch * gpus / scenario.gpus)) if kind == "weak" else batch


def measured(scenario: Scenario, strategy: Strategy, gpus: int, batch: int) -> Table:
    """One size as a row of KINDS; `placed` is false where it cannot be laid out or its nodes have no network."""
    blank: dict[str, Any] = dict.fromkeys(KINDS)
    row = blank | {"gpus": gpus, "global_batch_sequences": batch, "placed": False, "fits": False}
    try:
        resolved, answer = step_on(
            scenario=scenario, strategy=_resized(strategy, gpus=gpus), gpus=gpus, global_batch=batch, engine="fast"
        )
    except (ForecastError, ValueError):
        return {k: [v] for k, v in row.items()}
    lay, parts = resolved.layout, dict(answer.breakdown_s)
    row |= {
        "placed": True,
        "fits": resolved.fits,
        "dp": lay.dp,
        "micro_batch_sequences": lay.micro_batch,
        "micro_batches": lay.micro_batches,
        "step_s": answer.step_s,
        "tokens_per_s": answer.tokens_per_s,
        **{f"{k}_s": parts[k] for k in CAUSES},
    }
    return {k: [v] for k, v in row.items()}


def _expected_s(*, strategy: Strategy, gpus: int, batch: int) -> float:
    """Seconds that a size takes, roughly: most of them go by tasks of the pipeline."""
    stages = strategy.pp or 1
    ranks = max(1, gpus // ((strategy.tp or 1) * stages * (strategy.cp or 1)))
    passes = 2 * stages * (strategy.vpp or 1) * batch / ranks / (strategy.micro_batch_sequences or 1)
    return SIZE_S + PASS_S * (passes if stages > 1 else 0.0)


def curves(
    *, scenario: Scenario, strategy: Strategy, gpus: Sequence[int], kinds: Sequence[Kind], where: Where = ONE_CORE
) -> dict[Kind, list[Point]]:
    """`sweep` of several kinds, each size once, on the workers of `where`.

    Raises:
        ForecastError: no size works.
        SpreadError: the workers or the file of `where` cannot be used.
    """
    pairs = {kind: [(g, _batch(scenario=scenario, gpus=g, kind=kind)) for g in gpus] for kind in kinds}
    expected = {p: _expected_s(strategy=strategy, gpus=p[0], batch=p[1]) for row in pairs.values() for p in row}
    job = Job(
        function=measured,
        tasks={_key(*p): (scenario, strategy, *p) for p in sorted(expected, key=lambda p: (-expected[p], p))},
        kinds=KINDS,
        identity={
            "job": "sweep",
            "scenario": scenario.hash(),
            "inputs": fingerprint(site_of(scenario), strategy.model_dump_json()),
        },
        expected_s=sum(expected.values()),
    )
    tables = spread(job=job, where=where)
    found = {p: {k: v[0] for k, v in tables[_key(*p)].items()} for p in expected}
    return {kind: _curve(rows=[found[p] for p in pairs[kind]], kind=kind) for kind in kinds}


def _key(gpus: int, batch: int) -> str:
    return f"{gpus}-{batch}"


def sweep(*, scenario: Scenario, strategy: Strategy, gpus: Sequence[int], kind: Kind = "strong") -> list[Point]:
    """Every size that the strategy can be placed on, smallest first.

    Weak keeps the sequences a GPU, strong the global batch (sizes that the batch cannot feed are the batch limit).

    Raises:
        ForecastError: no size works.
    """
    return curves(scenario=scenario, strategy=strategy, gpus=gpus, kinds=(kind,))[kind]


def _curve(*, rows: Sequence[Mapping[str, Any]], kind: Kind) -> list[Point]:
    placed, found = [r for r in rows if r["placed"]], []
    reference: Mapping[str, Any] | None = None
    for row in placed:
        size, step_s, rate = row["gpus"], row["step_s"], row["tokens_per_s"]
        if reference is None and row["fits"]:
            reference = row
        if reference is None:
            found.append(Point(size, step_s, rate, 0.0, "memory", fits=False))
            continue
        efficiency = (rate / size) / (reference["tokens_per_s"] / reference["gpus"])
        fed = row["dp"] * row["micro_batch_sequences"]
        limited = kind == "strong" and row["global_batch_sequences"] < 2 * fed and row["micro_batches"] == 1
        cause = _cause(now=row, reference=reference, batch_limited=limited and efficiency < KNEE_EFFICIENCY)
        found.append(Point(size, step_s, rate, efficiency, cause, fits=row["fits"]))
    if not found:
        raise ForecastError(f"the strategy can be placed on none of {', '.join(str(r['gpus']) for r in rows)} GPUs")
    return found


def knee_of(points: Sequence[Point]) -> dict[str, Any] | None:
    """The last size at KNEE_EFFICIENCY or better, and what pulls the next one below it; None where none is below."""
    working = [p for p in points if p.fits]
    below = next((p for p in working if p.efficiency < KNEE_EFFICIENCY), None)
    if below is None:
        return None
    above = [p for p in working if p.gpus < below.gpus]
    return {"gpus": above[-1].gpus if above else below.gpus, "efficiency": KNEE_EFFICIENCY, "cause": below.cause}


def sweep_document(*, scenario: Scenario, name: str, gpus: Sequence[int], where: Where = ONE_CORE) -> dict[str, Any]:
    """The answer of contract 4, strong in `points`, weak in `weak`.

    Raises:
        ForecastError: an unknown or `auto` strategy, or no size works.
        SpreadError: the workers or the file of `where` cannot be used.
    """
    strategy = scenario.strategies.get(name)
    if strategy is None or isinstance(strategy, str):
        raise ForecastError(f"strategy {name!r} is not written out; known: {', '.join(scenario.strategies)}")
    found = curves(scenario=scenario, strategy=strategy, gpus=gpus, kinds=("strong", "weak"), where=where)
    rows = {
        kind: [
            {
                "gpus": p.gpus,
                "step_s": p.step_s,
                "scaling_efficiency": p.efficiency,
                "cause": p.cause,
                "tokens_per_s": p.tokens_per_s,
                "fits": p.fits,
            }
            for p in points
        ]
        for kind, points in found.items()
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario.hash(),
        "versions": {"planner": __version__, "profile": scenario.cluster.profile, "catalog": "2026-12-01"},
        "seed": 0,
        "strategy": name,
        "points": rows["strong"],
        "knee": knee_of(found["strong"]),
        "weak": rows["weak"],
        "weak_knee": knee_of(found["weak"]),
    }


def default_sizes(scenario: Scenario) -> list[int]:
    """From one GPU to 16,384, in doublings."""
    per_node = catalog.node(scenario.cluster.node).gpus_per_node
    return sizes(first=1, last=16_384, per_node=per_node)
