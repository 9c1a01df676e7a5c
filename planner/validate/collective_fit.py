"""The fit of the packaged collective constants over healthy public tables."""

import csv
import io
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from planner.cost.collective import (
    ANCHORS,
    IN_SWITCH,
    IN_SWITCH_OP,
    LINK_BYTES_PER_S,
    OPS,
    Curves,
    anchor_weights,
    curve_link,
    curve_wire_bytes,
    extra_latency_s,
    mesh_factor,
    predict,
    protocol_factor,
    protocol_wire_bytes,
    switched,
)
from planner.cost.types import Fabric
from planner.validate.collective_rows import JUDGED_BYTES, Row, network_of_row, number_of, payload_and_time

# One standard deviation of each effect on log a, log b, log c: the looser, the less tables are pulled to each other.
EFFECT_SIGMA = {
    "all": (5.0, 5.0, 5.0),
    "link": (1.2, 0.2, 1.0),
    "kind": (0.3, 0.12, 0.3),
    "kind_ranks": (1.0, 0.13, 0.45),
    "link_kind": (0.06, 0.15, 0.035),
    "link_ranks": (0.4, 0.16, 0.13),
    "cell": (0.075, 0.04, 0.02),
}
PCIE_PAIR = 2  # cards without bridges: more than two meet at a host bridge or cross sockets
PCIE_SIGMA = (0.3, 1.0, 0.3)
ROW_SIGMA = 0.07
ROWS_OF_A_TABLE = 10.0  # what a whole table weighs, in independent rows
ROBUST = 0.5  # row sigmas beyond which an error counts in proportion
OUTSIDE_WEIGHT = 0.2  # of rows smaller or larger than judged
START = (math.log(8e-6), math.log(0.75), math.log(0.008e-6 * math.sqrt(450e9)))

# Prior of a fabric: efficiency, microseconds a hop, square-root microseconds; their sigmas on logarithms stand below.
FABRIC_PRIOR = {
    "ib": (0.92, 8.0, 0.006),
    "roce": (0.92, 8.0, 0.006),
    "efa": (0.90, 25.0, 0.025),
    "ethernet": (0.9, 40.0, 0.02),
}
FABRIC_SIGMA = (0.05, 0.2, 0.4)
FABRIC_ROW_SIGMA = 0.1
ASSUMED_FABRICS = (
    ("opa", 0.2, 8, 0.02, "assumed", 0.35, "below BigScience runs (10 of 50 GB/s) and their slow all-reduce tests"),
    ("tcpx", 0.75, 40, 0.05, "assumed", 0.3, "no public table; GPUDirect-TCPX over Ethernet"),
    ("none", 0.82, 20, 0.02, "assumed", 0.4, "no fabric named"),
)
FIT_COLUMNS = ("link", "op", "ranks", "a_us", "b_gbs", "c_us", "n_tables", "spread", "label", "source")
FABRIC_COLUMNS = ("kind", "efficiency", "latency_us", "sqrt_us", "label", "spread", "n_tables", "source")


@dataclass(frozen=True, slots=True)
class _Sample:
    """One measured row on the way to a fit: its cells with their weights, and what is known of it."""

    cells: tuple[tuple[tuple[str, str, int], float], ...]
    wire: float
    seconds: float
    rate_scale: float
    extra_s: float
    start_factor: float
    weight: float
    table: str
    source: str


def _usable(*, row: Row, scope: str) -> bool:
    nbytes, seconds = payload_and_time(row)
    return (
        row.get("healthy") == "yes"
        and row.get("scope") == scope
        and row.get("collective") in OPS[:4]
        and nbytes > 0
        and seconds > 0
        and number_of(row, "n_nodes") * number_of(row, "gpus_per_node") > 1
    )


def _samples(rows: Sequence[Row]) -> list[_Sample]:
    used = [r for r in rows if _usable(row=r, scope="in_node")]
    of_table: dict[str, int] = defaultdict(int)
    for row in used:
        of_table[row.get("table_id") or ""] += 1
    out = []
    for row in used:
        network, group, op = network_of_row(row)
        nbytes, seconds = payload_and_time(row)
        link, ring_only = curve_link(link=network.scaleup, link_bytes_per_s=network.scaleup_bytes_per_s)
        in_switch = switched(op=op, size=group.size, link=link, ring_only=ring_only)
        kind = IN_SWITCH_OP if in_switch else op
        anchors = [(ANCHORS[-1], 1.0)] if in_switch else anchor_weights(group.size)
        weight = ROWS_OF_A_TABLE / max(ROWS_OF_A_TABLE, of_table[row.get("table_id") or ""])
        if not JUDGED_BYTES[0] <= nbytes <= JUDGED_BYTES[1]:
            weight *= OUTSIDE_WEIGHT
        wire = curve_wire_bytes(op=kind, payload_bytes=nbytes, size=group.size)
        change = protocol_wire_bytes(op=kind, size=group.size, link=link, link_bytes_per_s=network.scaleup_bytes_per_s)
        out.append(
            _Sample(
                cells=tuple(((link, kind, n), w) for n, w in anchors),
                wire=wire,
                seconds=seconds,
                rate_scale=network.scaleup_bytes_per_s * mesh_factor(link=link, size=group.size),
                extra_s=extra_latency_s(op=kind, size=group.size),
                start_factor=protocol_factor(wire=wire, change_at=change),
                weight=weight,
                table=row.get("table_id") or "",
                source=row.get("source") or "",
            )
        )
    return out


def _effects(cell: tuple[str, str, int]) -> dict[tuple[Any, ...], tuple[float, float, float]]:
    """Effects that add up to a cell's log constants, with their prior sigmas."""
    link, kind, ranks = cell
    effects = {
        ("all",): EFFECT_SIGMA["all"],
        ("link", link): EFFECT_SIGMA["link"],
        ("kind", kind): EFFECT_SIGMA["kind"],
        ("kind_ranks", kind, ranks): EFFECT_SIGMA["kind_ranks"],
        ("link_kind", link, kind): EFFECT_SIGMA["link_kind"],
        ("link_ranks", link, ranks): EFFECT_SIGMA["link_ranks"],
        ("cell", link, kind, ranks): EFFECT_SIGMA["cell"],
    }
    if link.startswith("pcie") and ranks > PCIE_PAIR:
        effects[("beyond_a_pair", link)] = PCIE_SIGMA
    return effects


def _grid() -> list[tuple[str, str, int]]:
    """Every cell that a forecast may ask for; a link without tables stays at the priors, by ratio of rates."""
    links = set(LINK_BYTES_PER_S) - {"nvlink1"}
    cells = [(link, op, n) for link in sorted(links) for op in OPS[:4] for n in ANCHORS]
    return cells + [(link, IN_SWITCH_OP, ANCHORS[-1]) for link in sorted(links & IN_SWITCH)]


def _solve(*, samples: Sequence[_Sample], cells: Sequence[tuple[str, str, int]]) -> tuple[Any, Any]:
    """Log constants of every cell (cells x 3) and log residuals of the samples: a damped Gauss-Newton fit."""
    import numpy as np

    sigmas: dict[tuple[Any, ...], tuple[float, float, float]] = {}
    for cell in cells:
        sigmas |= _effects(cell)
    index = {name: i for i, name in enumerate(sigmas)}
    grid = np.zeros((len(cells), len(index)))
    for i, cell in enumerate(cells):
        grid[i, [index[name] for name in _effects(cell)]] = 1.0
    place = {cell: i for i, cell in enumerate(cells)}
    design = np.array([sum(w * grid[place[c]] for c, w in s.cells) for s in samples])
    v = np.array([s.wire for s in samples])
    scale = np.array([s.rate_scale for s in samples])
    target = np.log([s.seconds for s in samples])
    extra = np.array([s.extra_s * s.start_factor for s in samples])
    start = np.array([s.start_factor for s in samples])
    weight = np.array([s.weight for s in samples])
    prior = 1.0 / np.array(list(sigmas.values())).T.reshape(-1) ** 2
    n = len(index)

    def parts(u: Any) -> Any:
        a, b, c = (START[k] + design @ u[k * n : (k + 1) * n] for k in range(3))
        # The square-root term of a faster link is smaller by the root of the rates.
        return np.exp(a) * start + extra, v / (scale * np.exp(b)), np.exp(c) * np.sqrt(v / scale)

    def cost(u: Any) -> float:
        r = (np.log(sum(parts(u))) - target) / ROW_SIGMA
        return float((weight * ROBUST**2 * 2 * (np.sqrt(1 + (r / ROBUST) ** 2) - 1)).sum() + (prior * u * u).sum())

    u, damping = np.zeros(3 * n), 1e-2
    best = cost(u)
    for _ in range(80):
        a, b, c = parts(u)
        total = a + b + c
        r = (np.log(total) - target) / ROW_SIGMA
        w = weight / np.sqrt(1 + (r / ROBUST) ** 2)
        slopes = np.hstack([design * (x / total / ROW_SIGMA)[:, None] for x in (a - extra, -b, c)])
        normal = slopes.T @ (slopes * w[:, None]) + np.diag(prior)
        gradient = slopes.T @ (w * r) + prior * u
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
        trial = cost(u - step)
        if trial < best:
            done = best - trial < 1e-7 * best
            u, best, damping = u - step, trial, damping / 3
            if done:
                break
        else:
            damping *= 4
            if damping > 1e8:
                break
    constants = np.stack([START[k] + grid @ u[k * n : (k + 1) * n] for k in range(3)], axis=1)
    return constants, np.log(sum(parts(u))) - target


def fit_collectives(rows: Sequence[Row]) -> str:
    """The packaged table of in-domain curves: one row a link, operation and rank count, over healthy tables.

    Log constants are a sum of effects (link, operation, ranks, their pairs) under priors, so that a combination nobody
    measured follows its neighbours. Tables weigh alike, whatever their number of rows.
    """
    samples = _samples(rows)
    cells = _grid()
    constants, residuals = _solve(samples=samples, cells=cells)
    near: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    of_link: dict[str, list[int]] = defaultdict(list)
    for i, sample in enumerate(samples):
        near[max(sample.cells, key=lambda c: c[1])[0]].append(i)
        of_link[sample.cells[0][0][0]].append(i)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIT_COLUMNS)
    for cell, (a, b, c) in zip(cells, constants, strict=True):
        link, op, ranks = cell
        reference = LINK_BYTES_PER_S[link]
        members = near.get(cell) or []
        basis = members or of_link[link]
        few = len({samples[i].table for i in of_link[link]}) < 3
        spread = 1.5 * statistics.median([abs(float(residuals[i])) for i in basis] or [0.1])
        spread = max(0.04, spread) if members else max(0.1, spread) * (2 if few else 1)
        label = "published" if members else "transferred" if few else "fitted"
        names = ", ".join(sorted({samples[i].source for i in basis})) or "ratio of link rates"
        writer.writerow(
            (
                link,
                op,
                ranks,
                f"{math.exp(a) * 1e6:.4g}",
                f"{math.exp(b) * reference / 1e9:.4g}",
                f"{math.exp(c) / math.sqrt(reference) * 1e6:.4g}",
                len({samples[i].table for i in members}),
                f"{spread:.3f}",
                label,
                names,
            )
        )
    return out.getvalue()


def fit_fabrics(*, rows: Sequence[Row], curves: Curves) -> str:
    """The packaged table of fabrics, over healthy tables across nodes; a prior holds what they leave open."""
    import numpy as np
    from scipy.optimize import least_squares

    by_kind: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if _usable(row=row, scope="across_nodes"):
            by_kind[network_of_row(row)[0].scaleout].append(row)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FABRIC_COLUMNS)
    for kind, prior in FABRIC_PRIOR.items():
        members = by_kind.get(kind, [])
        tables: dict[str, int] = defaultdict(int)
        for row in members:
            tables[row.get("table_id") or ""] += 1
        cases = [(*network_of_row(r), *payload_and_time(r)) for r in members]
        weights = [
            math.sqrt(
                min(1.0, ROWS_OF_A_TABLE / tables[r.get("table_id") or ""])
                * (1.0 if payload_and_time(r)[0] >= JUDGED_BYTES[0] else 0.3)
            )
            for r in members
        ]

        def residuals(p: Any, prior: Any = prior, cases: Any = cases, weights: Any = weights) -> Any:
            values = [prior_k * math.exp(s * x) for prior_k, s, x in zip(prior, FABRIC_SIGMA, p, strict=True)]
            fabric = Fabric(values[0], values[1] * 1e-6, values[2] * 1e-6, "", 0.0, "")
            logs = [
                w
                / FABRIC_ROW_SIGMA
                * math.log(
                    predict(
                        op=op,
                        payload_bytes=nbytes,
                        group=group,
                        network=network,
                        curves=curves,
                        fabrics={"none": fabric},
                    ).seconds
                    / seconds
                )
                for (network, group, op, nbytes, seconds), w in zip(cases, weights, strict=True)
            ]
            soft = [math.copysign(math.sqrt(2 * (math.sqrt(1 + r * r) - 1)), r) for r in logs]
            return np.array(soft + list(p))

        fit = least_squares(residuals, np.zeros(3), diff_step=1e-4, max_nfev=60)
        values = [k * math.exp(s * float(x)) for k, s, x in zip(prior, FABRIC_SIGMA, fit.x, strict=True)]
        scatter = statistics.median(abs(float(r)) for r in fit.fun[:-3]) * FABRIC_ROW_SIGMA if cases else 0.2
        names = ", ".join(sorted({r.get("source") or "" for r in members})) or "prior"
        writer.writerow(
            (
                kind,
                f"{min(0.98, values[0]):.3f}",
                f"{values[1]:.3g}",
                f"{values[2]:.3g}",
                "published" if len(tables) > 1 else "fitted" if cases else "assumed",
                f"{max(0.12, 1.5 * scatter) * (1 if len(tables) > 2 else 1.5):.2f}",
                len(tables),
                names,
            )
        )
    for kind, efficiency, latency, root, label, spread, source in ASSUMED_FABRICS:
        writer.writerow((kind, efficiency, latency, root, label, spread, 0, source))
    return out.getvalue()


@lru_cache(maxsize=1)
def shipped_table() -> str:
    """The packaged curves, as text."""
    return files("planner.cost").joinpath("data/collective_fits.csv").read_text("utf-8")


@lru_cache(maxsize=1)
def shipped_fabric_table() -> str:
    """The packaged fabrics, as text."""
    return files("planner.cost").joinpath("data/collective_fabrics.csv").read_text("utf-8")
