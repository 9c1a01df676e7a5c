"""Per-GPU constants of the kernel formulas, with where each comes from.

Two states: `burst`, fitted on published kernel tables (short, full clock), and `hot`, the rate at the power cap that a
training run sees. A part without its own row takes a sibling's by the ratio of dense peaks (`transferred`), then the
data sheet times the usual share (`datasheet`).
"""

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from planner import catalog
from planner.catalog.types import GpuSpec

# Rate of a dtype over bf16 in training at the power cap (public runs of 2025-26 vendor stacks), and over fp8's K0.
LOW_PRECISION = {"fp8": 1.85, "mxfp8": 1.72, "nvfp4": 2.96, "fp8_block": 1.65, "fp8_rowwise": 1.4, "mxfp4": 2.6}
DATASHEET_SHARE = 0.72  # kernel tables: share of dense peak of large products, median over parts
HOT_OVER_BURST = 0.88  # measured hot/burst ratio of large products on H200, B200, GB200: 0.84-0.95
DEFAULT_K0 = {"Ampere": 120.0, "Hopper": 240.0}
DEFAULT_FLOOR_S, DEFAULT_STREAM_SHARE = 3e-6, 0.86


@dataclass(frozen=True, slots=True)
class Rate:
    """Constants of `T = floor + max(flops / (plateau e), bytes / stream)`, `e = 1/((1+k0/k)(1+mn0/m)(1+mn0/n))`."""

    plateau_flops: float
    k0: float
    mn0: float
    stream_bytes_per_s: float
    floor_s: float
    label: str
    spread_frac: float
    source: str


@lru_cache(maxsize=8)
def table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of a packaged table of this room."""
    path = files("planner.cost").joinpath(f"data/{name}")
    if not path.is_file():
        return ()
    return tuple(csv.DictReader(path.read_text("utf-8").splitlines()))


def base_dtype(dtype: str) -> str:
    """fp16 products run at bf16's rate; autocast computes in bf16."""
    return {"fp16": "bf16", "amp": "bf16"}.get(dtype, dtype)


def _peak(spec: GpuSpec, dtype: str) -> float:
    key = {"bf16": "bf16", "tf32": "tf32", "fp32": "fp32", "nvfp4": "fp4", "mxfp4": "fp4"}.get(dtype, "fp8")
    order = (key, "bf16", "fp16", "fp32") if key == "bf16" else (key, "fp32") if key in {"tf32", "fp32"} else (key,)
    return next((spec.peak_flops[k] for k in order if spec.peak_flops.get(k)), 0.0)


def _share(spec: GpuSpec) -> tuple[float, float, float]:
    """Floor, stream rate and mn0 of a part.

    Large memory-bound kernels reach 0.84-0.98 of the data sheet's bandwidth on A100 to GH200 (kernel tables); 0.86 is
    what training kernels sustain.
    """
    floor = next(
        (
            float(r["floor_us"]) * 1e-6
            for r in table("kernel_fits.csv")
            if (r["gpu"], r["dtype"]) == (spec.name, "bf16")
        ),
        DEFAULT_FLOOR_S,
    )
    return floor, DEFAULT_STREAM_SHARE * spec.mem_bytes_per_s, 40.0


@lru_cache(maxsize=2048)
def burst_rate(*, gpu: str, dtype: str) -> Rate:
    """Constants of a short product at full clock."""
    spec, dtype = catalog.gpu(gpu), base_dtype(dtype)
    rows = [r for r in table("kernel_fits.csv") if r["dtype"] == dtype]
    for row in rows:
        if row["gpu"] == spec.name:
            return Rate(
                float(row["plateau_tflops"]) * 1e12,
                float(row["k0"]),
                float(row["mn0"]),
                float(row["stream_gbs"]) * 1e9,
                float(row["floor_us"]) * 1e-6,
                "published",
                float(row["held_out_mae_frac"]) * 1.25,
                row["source"],
            )
    floor, stream, mn0 = _share(spec)
    peak = _peak(spec, dtype)
    if peak <= 0:
        # No such unit: the product runs in bf16 (or fp16).
        return burst_rate(gpu=gpu, dtype="bf16")
    for row in rows:
        sibling = catalog.gpu(row["gpu"])
        if sibling.arch == spec.arch and _peak(sibling, dtype) > 0:
            plateau = float(row["plateau_tflops"]) * 1e12 * peak / _peak(sibling, dtype)
            source = f"{sibling.name} by peak ratio"
            return Rate(plateau, float(row["k0"]), float(row["mn0"]), stream, floor, "transferred", 0.12, source)
    k0 = DEFAULT_K0.get(spec.arch, 400.0)
    return Rate(DATASHEET_SHARE * peak, k0, mn0, stream, floor, "datasheet", 0.2, "dense peak x usual share")


@lru_cache(maxsize=2048)
def hot_rate(*, gpu: str, dtype: str) -> Rate:
    """Constants of a product in a long run at the power cap."""
    spec, dtype = catalog.gpu(gpu), base_dtype(dtype)
    floor, stream, _ = _share(spec)
    factor = LOW_PRECISION.get(dtype, 1.0)
    low = factor != 1.0
    rows = [r for r in table("training_rates.csv") if r["gpu"] == spec.name]
    for row in rows:
        # At the power cap low precision gains more than by the clock: a row of its own goes before the usual factor.
        if low and row["dtype"] == dtype:
            plateau = float(row["sustained_tflops"]) * 1e12
            return Rate(plateau, float(row["k0"]), 40.0, stream, floor, row["label"], 0.1, row["source"])
    for row in rows:
        if row["dtype"] == "bf16" and (dtype == "bf16" or (low and _peak(spec, dtype) > 0)):
            plateau = float(row["sustained_tflops"]) * 1e12 * factor
            k0 = float(row["k0"]) * (1.5 if low else 1.0)
            label = row["label"] if not low else "published"
            return Rate(plateau, k0, 40.0, stream, floor, label, 0.06 if not low else 0.1, row["source"])
    if low and _peak(spec, dtype) <= 0:
        return hot_rate(gpu=gpu, dtype="bf16")
    burst = burst_rate(gpu=gpu, dtype=dtype)
    label = "transferred" if burst.label == "published" else burst.label
    return Rate(
        burst.plateau_flops * HOT_OVER_BURST,
        burst.k0,
        burst.mn0,
        stream,
        floor,
        label,
        0.12,
        f"burst x {HOT_OVER_BURST}",
    )


@dataclass(frozen=True, slots=True)
class AttentionRate:
    """Causal-counted rates at head 128 and long sequence; shorter ones reach s / (s + s0) of them."""

    forward_flops: float
    backward_flops: float
    s0: float
    label: str
    source: str


@lru_cache(maxsize=512)
def attention_rate(*, gpu: str, implementation: str) -> AttentionRate:
    """Rates of a fused attention kernel family on a part; other parts of an architecture by ratio of sustained rate."""
    spec = catalog.gpu(gpu)
    arch = "Blackwell" if spec.arch.startswith("Blackwell") else spec.arch
    rows = [r for r in table("attention_rates.csv") if r["arch"] == arch]
    found = next((r for r in rows if r["implementation"] == implementation), rows[0] if rows else None)
    if found is None:
        peak = _peak(spec, "bf16")
        return AttentionRate(0.4 * peak, 0.33 * peak, 500.0, "datasheet", "dense peak x 0.4 / 0.33")
    reference = {
        "Ampere": "A100-80-SXM",
        "Hopper": "H100-SXM",
        "Blackwell": "B200-SXM",
        "Volta": "V100-SXM2-32GB",
        "CDNA3": "MI300X",
        "CDNA4": "MI355X",
    }[arch]
    ratio = hot_rate(gpu=gpu, dtype="bf16").plateau_flops / hot_rate(gpu=reference, dtype="bf16").plateau_flops
    label = found["label"] if spec.name == reference else "transferred"
    return AttentionRate(
        float(found["forward_tflops"]) * 1e12 * ratio,
        float(found["backward_tflops"]) * 1e12 * ratio,
        float(found["s0"]),
        label,
        found["source"],
    )
