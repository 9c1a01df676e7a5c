"""Steps on one calibrated GPU: rows of `h200_steps.csv` forecast from a profile, seconds and peak memory (contract 5).

The packaged rows are measurements of a plain training step (`source` yardstick), none of which a profile was fitted to:
profiles hold samples of single kernels, and a forecast composes them.
"""

import csv
import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from planner.cost.profiled import ProfiledCosts
from planner.profile.load import load_profile
from planner.profile.surfaces import SurfaceError
from planner.simulate.profiled_step import ProfiledStep, profiled_step
from planner.workload.torch_memory import step_memory
from planner.workload.torch_step import StepShape

DEFAULT_PROFILE = "h200-sxm"
PACKAGED = ("h200_steps.csv", "h200_steps_fresh.csv")
NOT_CONFIG = {"id", "params", "step_time_s", "p10_s", "p90_s", "memory_gb", "power_w", "source"}
Z80 = 1.2815515655446004
MEMORY_SIGMA = 0.012  # of the packaged rows
CHOICES = {
    "kind": ("gpt", "llama"),
    "mode": ("eager", "compile", "regional"),
    "precision": ("amp", "bf16"),
    "optimizer": ("fused", "foreach", "loop"),
    "recompute": ("none", "full"),
}
NUMBERS = ("layers", "hidden", "heads", "ffn", "vocab", "mbs", "seq")
Row = Mapping[str, str]


class StepRowError(ValueError):
    """A row that cannot be forecast, with the reason of contract 5."""


def packaged_rows() -> list[dict[str, str]]:
    """The public rows that travel with the package."""
    out: list[dict[str, str]] = []
    for name in PACKAGED:
        text = files("planner.validate").joinpath(f"data/{name}").read_text("utf-8")
        out += list(csv.DictReader(text.splitlines()))
    return out


def _number(row: Row, column: str) -> float | None:
    try:
        value = float(row.get(column) or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def shape_of_row(row: Row) -> tuple[StepShape, list[str]]:
    """The step a row describes, and the columns that were assumed.

    Raises:
        StepRowError: a needed size is missing, or a setting is not one of the known.
    """
    missing = [c for c in NUMBERS if _number(row, c) is None]
    if missing:
        raise StepRowError(f"shape_missing: {', '.join(missing)}")
    defaults = {"mode": "eager", "precision": "amp", "optimizer": "fused", "recompute": "none"}
    chosen, assumed = {}, []
    for column, known in CHOICES.items():
        value = (row.get(column) or "").strip()
        if not value and column in defaults:
            value = defaults[column]
            assumed.append(column)
        if value not in known:
            raise StepRowError(f"setting_missing: {column} {value!r} is none of {', '.join(known)}")
        chosen[column] = value
    size = {c: int(_number(row, c) or 0) for c in NUMBERS}
    kv = int(_number(row, "kv_heads") or size["heads"])
    shape = StepShape(
        kind=chosen["kind"],  # type: ignore[arg-type]
        layers=size["layers"],
        hidden=size["hidden"],
        heads=size["heads"],
        kv_heads=kv,
        ffn=size["ffn"],
        vocab=size["vocab"],
        micro_batch=size["mbs"],
        sequence=size["seq"],
        accumulation=int(_number(row, "accumulation") or 1),
        mode=chosen["mode"],  # type: ignore[arg-type]
        precision=chosen["precision"],  # type: ignore[arg-type]
        optimizer=chosen["optimizer"],  # type: ignore[arg-type]
        recompute=chosen["recompute"] == "full",
    )
    return shape, assumed


def model_flops(shape: StepShape) -> float:
    """FLOPs of a step: 6 a matrix weight and token, head included, and causal attention."""
    weights = shape.layers * shape.layer_weights + shape.vocab * shape.hidden
    attention = 6.0 * shape.layers * shape.sequence * shape.hidden
    return shape.accumulation * shape.tokens * (6.0 * weights + attention)


@lru_cache(maxsize=1)
def _usual_flops_per_s() -> float:
    """Median model FLOP/s of the packaged rows: the constant-MFU baseline."""
    rates = []
    for row in packaged_rows():
        seconds = _number(row, "step_time_s")
        if seconds:
            rates.append(model_flops(shape_of_row(row)[0]) / seconds)
    return statistics.median(rates)


def _blank(*, index: int, row: Row, metric: str, column: str) -> dict[str, Any]:
    settings = "\x1f".join(f"{c}={row.get(c) or ''}" for c in sorted(c for c in row if c and c not in NOT_CONFIG))
    return {
        "row": index,
        "id": row.get("id") or None,
        "source": row.get("source") or "yardstick",
        "config": hashlib.sha256(settings.encode()).hexdigest()[:12],
        "group": f"{row.get('source') or 'yardstick'} | {row.get('gpu') or '?'} | 1-node",
        "metric": metric,
        "unit": "s" if metric == "step_time_s" else "GB",
        "measured": _number(row, column),
        "skipped": None,
        "zero_shot": None,
        "site": None,
        "baseline": None,
        "fits": None,
        "memory_over_gb": None,
        "assumed": [],
        "flags": [],
    }


def _scored(*, value: float, sigma: float, measured: float | None) -> dict[str, Any]:
    return {
        "predicted": value,
        "p10": value * math.exp(-Z80 * sigma),
        "p90": value * math.exp(Z80 * sigma),
        "error_pct": None if not measured else 100.0 * (value - measured) / measured,
    }


def _flags(*, row: Row, step: ProfiledStep) -> list[str]:
    flags = ["launch_bound"] if step.device_s < 0.85 * step.step_s else []
    low, high = _number(row, "p10_s"), _number(row, "p90_s")
    if low and high and low <= step.step_s <= high:
        flags.append("inside_measured_spread")
    return flags


def validate_row(*, index: int, row: Row, costs: ProfiledCosts) -> list[dict[str, Any]]:
    """Two answer rows, step time and peak memory, or the reason they are skipped."""
    time = _blank(index=index, row=row, metric="step_time_s", column="step_time_s")
    memory = _blank(index=index, row=row, metric="memory_gb", column="memory_gb")
    device = costs.profile.device
    if row.get("gpu") and row["gpu"] != device.gpu:
        reason = f"gpu: the profile is of {device.gpu}, the row of {row['gpu']}"
        return [time | {"skipped": reason}, memory | {"skipped": reason}]
    try:
        shape, assumed = shape_of_row(row)
        step = profiled_step(costs=costs, shape=shape)
    except (StepRowError, SurfaceError) as error:
        text = str(error) if isinstance(error, StepRowError) else f"setting_missing: {error}"
        return [time | {"skipped": text}, memory | {"skipped": text}]
    peak = step_memory(shape).peak_bytes
    for out in (time, memory):
        out["assumed"] = assumed
        out["fits"] = peak <= device.mem_bytes
        out["memory_over_gb"] = max(0.0, peak - device.mem_bytes) / 1e9
        if not out["measured"]:
            out["skipped"] = f"setting_missing: no measured {out['metric']}"
    time["zero_shot"] = _scored(value=step.step_s, sigma=step.sigma, measured=time["measured"])
    memory["zero_shot"] = _scored(value=peak / 1e9, sigma=MEMORY_SIGMA, measured=memory["measured"])
    if time["measured"]:
        usual = model_flops(shape) / _usual_flops_per_s()
        off = 100.0 * (usual - time["measured"]) / time["measured"]
        time["baseline"] = {"predicted": usual, "error_pct": off}
        time["flags"] = _flags(row=row, step=step)
    return [time, memory]


def validate_steps(rows: Sequence[Row] | None = None, profile: str | None = None) -> list[dict[str, Any]]:
    """Two answer rows for each measured step, in file order."""
    costs = ProfiledCosts(load_profile(profile or DEFAULT_PROFILE))
    data = rows if rows is not None else packaged_rows()
    return [answer for i, row in enumerate(data) for answer in validate_row(index=i, row=row, costs=costs)]
