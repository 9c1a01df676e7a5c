"""Measured kernels of many GPUs: fit of the constants on public rows, and the judge of contract 5."""

import csv
import gzip
import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from planner import catalog
from planner.cost.kernels import attention_s, grouped_matmul_s, matmul_s, memory_bound_s
from planner.cost.types import Estimate
from planner.validate.kernel_surface import KernelSurfaces

Row = Mapping[str, str]
Z80 = 1.2815515655446004
DTYPES = {"bf16": "bf16", "fp16": "bf16", "fp32": "fp32", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
MEMORY_OPS = {"copy", "elementwise", "norm", "softmax", "other"}
GPU_ALIASES = {"RTXPRO6000-SE": "RTX-PRO-6000-Server", "RTX5090": "RTX5090"}
UNKNOWN_AS = "A100-80-SXM"  # only the shape of the closed form counts there: residuals set the level
ALONE_SIGMA = 0.3  # closed form alone, no kernel of the part measured
FIT_SOURCES = ("aiconfigurator", "vidur", "SimuMax", "LLMCompass", "DeepBench")
NOT_CONFIG = {"time_us", "tflops", "bandwidth_gbs", "notes", "software", "date"}


def packaged_rows() -> tuple[dict[str, str], ...]:
    """The public rows that travel with the package."""
    return _load()


@lru_cache(maxsize=1)
def _load() -> tuple[dict[str, str], ...]:
    raw = files("planner.validate").joinpath("data/kernels_measured.csv.gz").read_bytes()
    return tuple(csv.DictReader(gzip.decompress(raw).decode("utf-8").splitlines()))


def _number(row: Row, key: str) -> float:
    text = (row.get(key) or "").strip()
    try:
        return float(text)
    except ValueError:
        return 0.0


def _gpu(row: Row) -> str | None:
    name = row.get("gpu") or ""
    try:
        return catalog.gpu(GPU_ALIASES.get(name, name)).name
    except ValueError:
        return None


def held_out(row: Row) -> bool:
    """Three shapes in ten, drawn by hash of shape alone so that a shape is on one side for every GPU."""
    text = "/".join(row.get(k) or "" for k in ("op", "m", "n", "k", "batch", "seq_q", "heads"))
    return hashlib.sha256(text.encode()).digest()[0] < 77


def _fit_one(rows: Sequence[Row]) -> dict[str, float]:
    """Plateau, k0, mn0, stream rate and floor by robust least squares on the logarithm of time."""
    from scipy.optimize import least_squares

    m, n, k, t = (np.array([_number(r, c) for r in rows]) for c in ("m", "n", "k", "time_us"))
    batch = np.array([_number(r, "batch") or 1.0 for r in rows])
    width = {"fp32": 4.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.56}.get(DTYPES[rows[0]["dtype"] or "bf16"], 2.0)
    flops, nbytes = 2 * m * n * k * batch, batch * (width * (m * k + k * n) + 2 * m * n)
    quantise = 3.0 * m * k * batch if width < 2 else np.zeros_like(m)

    def predict(p: Any) -> Any:
        plateau, k0, mn0, stream, floor = np.exp(p)
        e = 1 / ((1 + k0 / k) * (1 + mn0 / m) * (1 + mn0 / n))
        extra = (floor + quantise / (0.75 * stream)) if width < 2 else 0.0
        return floor + np.maximum(flops / (plateau * e), nbytes / stream) + extra

    rate = np.quantile(flops / t, 0.9)
    spec_stream = catalog.gpu(_gpu(rows[0]) or "").mem_bytes_per_s / 1e6
    start = np.log([rate, 150.0, 40.0, 0.85 * spec_stream, 3.0])
    # Physical limits: no stream above the data sheet, no kernel shorter than a launch, no negative tile loss.
    low = np.log([rate / 10, 1.0, 1.0, 0.5 * spec_stream, 1.5])
    high = np.log([rate * 10, 2000.0, 500.0, spec_stream, 12.0])
    fit = least_squares(
        lambda p: np.log(predict(p)) - np.log(t), start, bounds=(low, high), loss="soft_l1", f_scale=0.1
    )
    plateau, k0, mn0, stream, floor = np.exp(fit.x)
    return {
        "plateau_tflops": plateau * 1e6 / 1e12,
        "k0": k0,
        "mn0": mn0,
        "stream_gbs": stream * 1e6 / 1e9,
        "floor_us": floor,
    }


def _usable(row: Row) -> bool:
    hot = (row.get("clock_note") or "") == "hot"
    clean = any(s in (row.get("source") or "") for s in FIT_SOURCES)
    return row.get("op") == "gemm" and row.get("dtype") in DTYPES and clean and not hot and _number(row, "time_us") > 0


def fit_table(rows: Sequence[Row]) -> str:
    """The packaged table of burst constants: fitted on seven shapes in ten, scored on the other three."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        gpu = _gpu(row)
        if gpu and _usable(row) and min(_number(row, c) for c in ("m", "n", "k")) >= 1:
            groups.setdefault((gpu, DTYPES[row["dtype"]]), []).append(row)
    out = io.StringIO()
    names = [
        *("gpu", "dtype", "plateau_tflops", "k0", "mn0", "stream_gbs", "floor_us"),
        *("n_fit", "n_held_out", "held_out_mae_frac", "source"),
    ]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for (gpu, dtype), members in sorted(groups.items()):
        train = [r for r in members if not held_out(r)]
        test = [r for r in members if held_out(r)]
        if len(train) < 30 or not test:
            continue
        fit = _fit_one(train)
        errors = [abs(_burst_error(r, fit, dtype)) for r in test if min(_number(r, c) for c in "mnk") >= 512]
        writer.writerow(
            {"gpu": gpu, "dtype": dtype}
            | {k: f"{v:.4g}" for k, v in fit.items()}
            | {
                "n_fit": len(train),
                "n_held_out": len(errors),
                "held_out_mae_frac": f"{float(np.mean(errors)) if errors else 0.2:.4f}",
                "source": "public kernel tables: " + ", ".join(sorted({r["source"].split("@")[0] for r in train})),
            }
        )
    return out.getvalue()


def _burst_error(row: Row, fit: Mapping[str, float], dtype: str) -> float:
    m, n, k = (_number(row, c) for c in ("m", "n", "k"))
    batch = _number(row, "batch") or 1.0
    width = {"fp32": 4.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.56}.get(dtype, 2.0)
    e = 1 / ((1 + fit["k0"] / k) * (1 + fit["mn0"] / m) * (1 + fit["mn0"] / n))
    nbytes = batch * (width * (m * k + k * n) + 2 * m * n)
    time = fit["floor_us"] + max(
        2 * m * n * k * batch / (fit["plateau_tflops"] * 1e6 * e), nbytes / (fit["stream_gbs"] * 1e3)
    )
    if width < 2:
        time += fit["floor_us"] + 3.0 * m * k * batch / (0.75 * fit["stream_gbs"] * 1e3)
    return time / _number(row, "time_us") - 1


def _estimate(row: Row, gpu: str) -> Estimate | None:
    op, dtype = row.get("op") or "", row.get("dtype") or "bf16"
    m, n, k = (_number(row, c) for c in ("m", "n", "k"))
    state = "hot" if row.get("clock_note") == "hot" else "burst"
    if op == "gemm" and min(m, n, k) > 0:
        batch = _number(row, "batch") or 1.0
        return matmul_s(gpu=gpu, dtype=dtype, m=m, n=n, k=k, batch=batch, state=state)
    if op == "grouped_gemm" and min(m, n, k) > 0:
        groups = int(_number(row, "batch") or _number(row, "experts") or 1)
        return grouped_matmul_s(gpu=gpu, dtype=dtype, groups=groups, m_per_group=m, n=n, k=k, state=state)
    if op.startswith("attention"):
        heads, seq = _number(row, "heads"), _number(row, "seq_q")
        if heads <= 0 or seq <= 0:
            return None
        return attention_s(
            gpu=gpu,
            dtype=dtype,
            batch=_number(row, "batch") or 1.0,
            heads=heads,
            kv_heads=_number(row, "kv_heads") or heads,
            seq_q=seq,
            seq_kv=_number(row, "seq_kv") or seq,
            head_dim=_number(row, "head_dim") or 128.0,
            causal=(row.get("causal") or "1") in {"1", "1.0", "True", "true"},
            direction="bwd" if op.endswith("bwd") else "fwd",
            implementation="flash3",
        )
    if op in MEMORY_OPS and _number(row, "bytes") > 0:
        return memory_bound_s(gpu=gpu, nbytes=_number(row, "bytes"))
    return None


def base_s(row: Row) -> float | None:
    """The closed form's seconds for a row: the part's constants or data sheet; an A100's where the part is unknown."""
    gpu = _gpu(row) or UNKNOWN_AS
    estimate = _estimate(row, gpu)
    if estimate is not None and estimate.seconds > 0:
        return estimate.seconds
    nbytes = _number(row, "bytes")
    return memory_bound_s(gpu=gpu, nbytes=nbytes).seconds if nbytes > 0 else None


@lru_cache(maxsize=1)
def _surfaces() -> KernelSurfaces:
    return KernelSurfaces(rows=packaged_rows(), base_s=base_s)


def _answer(index: int, row: Row) -> dict[str, Any]:
    settings = "\x1f".join(f"{c}={row.get(c) or ''}" for c in sorted(c for c in row if c and c not in NOT_CONFIG))
    out: dict[str, Any] = {
        "row": index,
        "id": row.get("id") or None,
        "source": row.get("source") or "",
        "config": hashlib.sha256(settings.encode()).hexdigest()[:12],
        "group": f"{row.get('gpu')} | {row.get('op')} | {row.get('dtype')}",
        "metric": "time_s",
        "unit": "s",
        "measured": _number(row, "time_us") * 1e-6 or None,
        "skipped": None,
        "zero_shot": None,
        "site": None,
        "baseline": None,
        "fits": None,
        "memory_over_gb": None,
        "assumed": [],
        "flags": [],
    }
    gpu = _gpu(row)
    base = None if row.get("op") == "launch" else base_s(row)
    if base is None or not out["measured"]:
        return out | {"skipped": f"shape_missing: {row.get('op')} without usable shape or time"}
    between = _surfaces().read(row)
    if gpu is None and between is None:
        return out | {"skipped": f"gpu: {row.get('gpu')} is neither in the catalogue nor in a kernel table"}
    value, sigma = (between.seconds, between.sigma) if between else (base, ALONE_SIGMA)
    out["flags"] = ["interpolated" if between else "transferred"]
    out["zero_shot"] = {
        "predicted": value,
        "p10": value * math.exp(-Z80 * sigma),
        "p90": value * math.exp(Z80 * sigma),
        "error_pct": 100 * (value / out["measured"] - 1),
    }
    return out


def validate_kernels(rows: Sequence[Row] | None = None, profile: str | None = None) -> list[dict[str, Any]]:
    """One answer row for each measured kernel, in file order."""
    del profile  # packaged tables answer; a profile of one GPU has none of these parts
    return [_answer(i, r) for i, r in enumerate(rows if rows is not None else packaged_rows())]
