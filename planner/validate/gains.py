"""Measured speed-ups of single optimisations: both sides forecast from the row's setting, never from its result.

A row's model, part, cluster and batch come from its columns, the stack before the change from its baseline text; the
change itself is `workload.transforms.apply`. Predicted and measured are speed-ups (time before over time after).
"""

import csv
import gzip
import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from planner import catalog
from planner.catalog.optimisations import optimisation
from planner.decide.roadmap_step import gain_sigma
from planner.simulate.stack_step import stack_step
from planner.validate.gains_setup import Row, keys_of, ladder, stack_of_row
from planner.validate.setup import SkipRowError, number
from planner.workload.transforms import apply

Z80 = 1.2815515655446004
NOT_CONFIG = {"id", "baseline_value", "after_value", "speedup", "verified", "notes"}
SIGN_DEAD_ZONE = 0.02


def packaged_rows() -> list[dict[str, str]]:
    """The public rows that travel with the package."""
    raw = files("planner.validate").joinpath("data/optimisation_gains.csv.gz").read_bytes()
    return list(csv.DictReader(gzip.decompress(raw).decode("utf-8").splitlines()))


def _skip(row: Row) -> str | None:
    """Why a row cannot be forecast, None where it can."""
    scope = (row.get("scope") or "").strip()
    if scope in {"vision", "speech", "encoder", "other", "kernel"}:
        return f"not_a_decoder: {scope}"
    keys = keys_of(row)
    if not keys:
        return "setting_missing: no optimisation of the catalogue fits"
    try:
        entries = [optimisation(k) for k in keys]
    except catalog.CatalogError as error:
        return f"setting_missing: {error}"
    if (row.get("in_scope") or "").strip() == "no":
        if any(e.modelled_by == "pilot" for e in entries):
            return "convergence: steps to the same quality change"
        return "setting_missing: both sides cannot be simulated from the row"
    return None


def predict(row: Row, earlier: Sequence[Row] = ()) -> float:
    """Speed-up that a row's change should bring.

    Args:
        row: one row of the gains table.
        earlier: rows of the same source before it (rungs of a ladder build on each other).

    Raises:
        SkipRowError: a setting that is missing or not modelled.
    """
    if "allows larger batch" in (row.get("notes") or ""):
        raise SkipRowError("setting_missing", "batch differs between both sides")
    rung = "previous rung" in (row.get("baseline") or "")
    try:
        before, network = ladder(row, earlier) if rung else stack_of_row(row)
        after = before
        for key in keys_of(row):
            after = apply(key=key, stack=after, variant=row.get("optimisation") or "", force=True)
        old, new = (stack_step(stack=s, network=network) for s in (before, after))
    except (ValueError, ArithmeticError, LookupError) as error:
        raise SkipRowError("setting_missing", str(error)) from error
    # Goodput is not part of a step: what acts on it alone gets the catalogue's usual factor.
    run = math.prod(e.factor_typical for e in map(optimisation, keys_of(row)) if e.modelled_by == "run")
    return old.effective_s / new.effective_s / run


def config_hash(row: Row) -> str:
    """Hash of all settings of a row."""
    text = "\x1f".join(f"{k}={row.get(k) or ''}" for k in sorted(k for k in row if k and k not in NOT_CONFIG))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@lru_cache(maxsize=1)
def _class_medians() -> dict[str, dict[str, float]]:
    """Median measured speed-up by class and source of the packaged in-scope rows."""
    seen: dict[str, dict[str, list[float]]] = {}
    for row in packaged_rows():
        value = number(row, "speedup")
        if row.get("in_scope") == "yes" and value:
            seen.setdefault(row["class"], {}).setdefault(row["source"], []).append(value)
    return {c: {s: statistics.median(v) for s, v in by.items()} for c, by in seen.items()}


def _baseline(row: Row) -> float | None:
    """The usual speed-up of the class over other sources: what a person without a model would say."""
    others = [v for s, v in _class_medians().get(row.get("class") or "", {}).items() if s != row.get("source")]
    return statistics.median(others) if others else None


def _answer(*, index: int, row: Row, earlier: Sequence[Row]) -> dict[str, Any]:
    measured = number(row, "speedup")
    out: dict[str, Any] = {
        "row": index,
        "id": row.get("id") or None,
        "source": row.get("source") or "",
        "config": config_hash(row),
        "group": row.get("class") or "",
        "metric": "speedup",
        "unit": "1",
        "measured": measured,
        "skipped": _skip(row),
        "zero_shot": None,
        "site": None,
        "baseline": None,
        "fits": None,
        "memory_over_gb": None,
        "assumed": [],
        "flags": [],
    }
    if out["skipped"] is None and not measured:
        out["skipped"] = "setting_missing: no measured speed-up"
    if out["skipped"] is not None or measured is None:
        return out
    try:
        value = predict(row, earlier)
    except SkipRowError as error:
        return out | {"skipped": str(error)}
    sigma = gain_sigma(math.log(value))
    out["zero_shot"] = {
        "predicted": value,
        "p10": value * math.exp(-Z80 * sigma),
        "p90": value * math.exp(Z80 * sigma),
        "error_pct": 100 * (value - measured) / measured,
    }
    usual = _baseline(row)
    if usual is not None:
        out["baseline"] = {"predicted": usual, "error_pct": 100 * (usual - measured) / measured}
    return out


def validate_gains(rows: Sequence[Row] | None = None, profile: str | None = None) -> list[dict[str, Any]]:
    """One answer row for each measured gain, in file order."""
    del profile  # both sides use the catalogue's rates; a profile would change them alike
    data = list(rows) if rows is not None else packaged_rows()
    out = []
    for index, row in enumerate(data):
        earlier = [
            r
            for r in data[:index]
            if r.get("source") == row.get("source")
            and r.get("gpu") == row.get("gpu")
            and "previous rung" in (r.get("baseline") or "")
        ]
        out.append(_answer(index=index, row=row, earlier=earlier))
    return out


def gain_scores(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rank correlation, median error in points, signs and losses, over all rows and by class."""
    from scipy.stats import spearmanr

    used = [a for a in answers if a["zero_shot"]]

    def score(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        pairs = [(float(a["measured"]), float(a["zero_shot"]["predicted"])) for a in rows]
        clear = [(m, p) for m, p in pairs if abs(m - 1) > SIGN_DEAD_ZONE]
        lost = [(m, p) for m, p in clear if m < 1]
        rho = float(spearmanr(*zip(*pairs, strict=True)).statistic) if len(pairs) > 2 else math.nan
        return {
            "n": len(pairs),
            "sources": len({a["source"] for a in rows}),
            "spearman": None if math.isnan(rho) else rho,
            "median_error_points": statistics.median(100 * abs(p - m) for m, p in pairs) if pairs else None,
            "sign_right_frac": sum((m > 1) == (p > 1) for m, p in clear) / len(clear) if clear else None,
            "losses": len(lost),
            "losses_found": sum(p < 1 for _, p in lost),
        }

    classes = sorted({a["group"] for a in used})
    return score(used) | {"by_class": {c: score([a for a in used if a["group"] == c]) for c in classes}}
