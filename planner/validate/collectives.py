"""Measured collectives judged: the answer rows of contract 5, and cross-validation over whole tables."""

import hashlib
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.cost.collective import OPS, collective_s, curves_of, predict
from planner.cost.network import fabrics_of
from planner.cost.protocol import steps_of
from planner.validate.collective_fit import fit_collectives, fit_fabrics
from planner.validate.collective_rows import JUDGED_BYTES, Row, network_of_row, packaged_rows, payload_and_time
from planner.validate.protocols import fit_steps

Z80 = 1.2815515655446004
NOT_CONFIG = {"id", "time_us", "algbw_gbs", "busbw_gbs", "notes"}
SLOW_FACTOR = 1.25  # a table this much slower than its fabric at large sizes is faulty, not noisy
LARGE_BYTES = 8e6


def cross_validate(*, rows: Sequence[Row], folds: int = 5, salt: str = "") -> dict[str, dict[str, list[float]]]:
    """Signed errors in percent by scope and table, each table predicted from a fit without it.

    Healthy tables, 64 KB to 4 GB. Tables are dealt to folds by the hash of their name and a salt.
    """
    names = {r.get("table_id") or "" for r in rows}
    dealt = sorted(names, key=lambda t: hashlib.sha256((t + salt).encode()).hexdigest())
    fold_of = {name: i % folds for i, name in enumerate(dealt)}
    errors: dict[str, dict[str, list[float]]] = {"in_node": {}, "across_nodes": {}}
    for fold in range(folds):
        kept = [r for r in rows if fold_of[r.get("table_id") or ""] != fold]
        curves = curves_of(fit_collectives(kept))
        fabrics = fabrics_of(fit_fabrics(rows=kept, curves=curves))
        steps = steps_of(fit_steps(rows=kept, curves=curves))
        for row in rows:
            scope = row.get("scope") or ""
            nbytes, seconds = payload_and_time(row)
            judged = JUDGED_BYTES[0] <= nbytes <= JUDGED_BYTES[1] and seconds > 0 and row.get("healthy") == "yes"
            if fold_of[row.get("table_id") or ""] != fold or scope not in errors or not judged:
                continue
            network, group, op = network_of_row(row)
            value = predict(
                op=op,
                payload_bytes=nbytes,
                group=group,
                network=network,
                curves=curves,
                fabrics=fabrics,
                steps=steps,
            ).seconds
            errors[scope].setdefault(row.get("table_id") or "", []).append(100 * (value / seconds - 1))
    return errors


def median_of_tables(errors: Mapping[str, Sequence[float]]) -> float:
    """Median absolute error of each table, then the median over tables."""
    return statistics.median(statistics.median(abs(e) for e in v) for v in errors.values())


def _answer(*, index: int, row: Row) -> tuple[dict[str, Any], float]:
    """The answer row, and how much slower than a healthy fabric the measurement is (0 where nothing is known)."""
    settings = "\x1f".join(f"{c}={row.get(c) or ''}" for c in sorted(c for c in row if c and c not in NOT_CONFIG))
    out: dict[str, Any] = {
        "row": index,
        "id": row.get("id") or None,
        "source": row.get("source") or "",
        "config": hashlib.sha256(settings.encode()).hexdigest()[:12],
        "group": row.get("table_id") or "",
        "metric": "time_s",
        "unit": "s",
        "measured": None,
        "skipped": None,
        "zero_shot": None,
        "site": None,
        "baseline": None,
        "fits": None,
        "memory_over_gb": None,
        "assumed": [],
        "flags": [],
    }
    network, group, op = network_of_row(row)
    nbytes, seconds = payload_and_time(row)
    if op not in OPS:
        return out | {"skipped": f"setting_missing: unknown collective {op!r}"}, 0.0
    if seconds > 0:
        out["measured"] = seconds
    if nbytes <= 0 or seconds <= 0:
        return out | {"skipped": "setting_missing: no message size or time"}, 0.0
    if group.size < 2:
        return out | {"skipped": "setting_missing: number of ranks"}, 0.0
    estimate = collective_s(op=op, payload_bytes=nbytes, group=group, network=network)
    value, sigma = estimate.seconds, max(0.065, estimate.spread_frac)
    out["zero_shot"] = {
        "predicted": value,
        "p10": value * math.exp(-Z80 * sigma),
        "p90": value * math.exp(Z80 * sigma),
        "error_pct": 100 * (value / seconds - 1),
    }
    healthy = value
    if network.scaleout == "opa":
        # The forecast follows the sites that exist, all of them slow; health is judged on the default share.
        sound = replace(network, scaleout="none")
        healthy = min(value, collective_s(op=op, payload_bytes=nbytes, group=group, network=sound).seconds)
    if not (row.get("link") or "").strip():
        out["assumed"].append("link")
    return out, seconds / healthy


def validate_collectives(rows: Sequence[Row] | None = None, profile: str | None = None) -> list[dict[str, Any]]:
    """One answer row for each measured collective, in file order; slow tables are flagged with their factor."""
    del profile  # packaged tables answer; a profile of one GPU has none of these parts
    data = rows if rows is not None else packaged_rows()
    pairs = [_answer(index=i, row=r) for i, r in enumerate(data)]
    factors: dict[str, list[float]] = defaultdict(list)
    for (answer, factor), row in zip(pairs, data, strict=True):
        if factor > 0 and payload_and_time(row)[0] >= LARGE_BYTES:
            factors[answer["group"]].append(factor)
    for answer, _ in pairs:
        slow = statistics.median(factors[answer["group"]]) if factors.get(answer["group"]) else 1.0
        if slow > SLOW_FACTOR:
            answer["flags"] = [f"slower_than_fabric: factor {slow:.2f}"]
    return [answer for answer, _ in pairs]
