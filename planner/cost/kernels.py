"""Seconds of single kernels: matrix products, attention and memory-bound work.

The form `T = floor + max(2mnk / (plateau e), bytes / stream)` with `e = 1/((1+k0/k)(1+mn0/m)(1+mn0/n))` errs 4-5 % on
163 measured H200 shapes; constants per GPU and dtype stand in `planner.cost.rates` with their source.
"""

import math
from functools import lru_cache

from planner.cost.rates import (
    DEFAULT_FLOOR_S,
    LOW_PRECISION,
    Rate,
    attention_rate,
    base_dtype,
    burst_rate,
    hot_rate,
)
from planner.cost.types import Estimate

# Products whose inner sizes are not multiples of 16 bytes leave the fast path. H200, 8192 x 50257 x 1024 against 50304:
# 97, 140 and 148 of 628, 702 and 702 TFLOP/s forward, data and weight gradient (an earlier
# run; profile h200-sxm repeats it: 96, 139, 147).
MISALIGNED = 0.19
QUANTISE_STREAM_SHARE = 0.75  # fp8 quantise kernels reach 0.86-0.90 of HBM on Hopper, 0.57-0.60 on Blackwell
# Kernels that quantise one expert's rows: scale by the largest value (reduce, scale, cast), or block by block at once.
QUANTISE_LAUNCHES = {"fp8": 3}
GROUP_EXPOSED = 0.5  # share of a group's bytes and start left open by the four streams of Transformer Engine
HEAD64_SHARE = 0.78  # attention rate at head 64 over head 128 on Hopper


def _efficiency(*, rate: Rate, m: float, n: float, k: float) -> float:
    return 1.0 / ((1 + rate.k0 / k) * (1 + rate.mn0 / m) * (1 + rate.mn0 / n))


def _element_bytes(dtype: str) -> float:
    return {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp64": 8.0, "nvfp4": 0.56, "mxfp4": 0.53}.get(dtype, 1.0)


def _aligned(*, n: float, k: float, element_bytes: float) -> bool:
    step = max(1, round(16 / max(element_bytes, 1.0)))
    return int(n) % step == 0 and int(k) % step == 0


@lru_cache(maxsize=200_000)
def matmul_s(
    *,
    gpu: str,
    dtype: str,
    m: float,
    n: float,
    k: float,
    batch: float = 1,
    state: str = "hot",
    with_quantise: bool = True,
) -> Estimate:
    """Seconds of `batch` products (m, k) x (k, n).

    `state` is `hot` (power cap) or `burst`. Low-precision products quantise their left operand in a kernel of its own
    (read 16-bit, write 8-bit) when `with_quantise`.
    """
    if min(m, n, k, batch) <= 0:
        return Estimate(0.0, "published", 0.0, "nothing to do")
    dtype = base_dtype(dtype)
    rate = hot_rate(gpu=gpu, dtype=dtype) if state == "hot" else burst_rate(gpu=gpu, dtype=dtype)
    plateau = rate.plateau_flops * _efficiency(rate=rate, m=m, n=n, k=k)
    width = _element_bytes(dtype)
    if not _aligned(n=n, k=k, element_bytes=width):
        plateau *= MISALIGNED
    if state == "hot":
        # Small products never heat the part: below 3 GFLOP hot and burst are alike.
        small = burst_rate(gpu=gpu, dtype=dtype).plateau_flops / rate.plateau_flops
        weight = 1.0 / (1.0 + (2 * m * n * k * batch / 3e9) ** 2)
        plateau *= 1 + weight * max(0.0, small - 1)
    nbytes = batch * (width * (m * k + k * n) + 2.0 * m * n)
    seconds = rate.floor_s + max(2.0 * m * n * k * batch / plateau, nbytes / rate.stream_bytes_per_s)
    if with_quantise and dtype in LOW_PRECISION:
        seconds += rate.floor_s + 3.0 * m * k * batch / (QUANTISE_STREAM_SHARE * rate.stream_bytes_per_s)
    return Estimate(seconds, rate.label, rate.spread_frac, rate.source)


@lru_cache(maxsize=100_000)
def grouped_matmul_s(
    *,
    gpu: str,
    dtype: str,
    groups: int,
    m_per_group: float,
    n: float,
    k: float,
    state: str = "hot",
    output_bytes: float = 2.0,
    in_kernel: bool = False,
) -> Estimate:
    """Seconds of `groups` products (m_per_group, k) x (k, n), one after another over a few streams.

    Every group starts cold: half of its traffic and half of a kernel's start are not hidden under its products
    (SimuMax's table of Transformer Engine on B200, 87 shapes of 128-9832 rows: 12 % forward, 10 % data gradient, 16 %
    weight gradient, bias below 3 %; the form of a single product errs 40 % there). A weight gradient has the group's
    rows as inner size and an output of `output_bytes` an element. In low precision every group is quantised by kernels
    of its own; `in_kernel`, one launch does all of it and no group starts cold.
    """
    if m_per_group <= 0 or groups <= 0:
        return Estimate(0.0, "published", 0.0, "nothing to do")
    base = base_dtype(dtype)
    rate = hot_rate(gpu=gpu, dtype=base) if state == "hot" else burst_rate(gpu=gpu, dtype=base)
    width = _element_bytes(base)
    m, n, k = max(1.0, m_per_group), max(1.0, n), max(1.0, k)
    plateau = rate.plateau_flops * _efficiency(rate=rate, m=m, n=n, k=k)
    nbytes = width * (m * k + k * n) + output_bytes * m * n
    if in_kernel:
        seconds = rate.floor_s + max(2.0 * m * n * k * groups / plateau, groups * nbytes / rate.stream_bytes_per_s)
        return Estimate(seconds, "transferred", 0.2, rate.source)
    one = 2.0 * m * n * k / plateau + GROUP_EXPOSED * (nbytes / rate.stream_bytes_per_s + rate.floor_s)
    seconds = groups * one
    if base in LOW_PRECISION:
        launches = QUANTISE_LAUNCHES.get(base, 1)
        seconds += groups * (launches * rate.floor_s + 3.0 * m * k / (QUANTISE_STREAM_SHARE * rate.stream_bytes_per_s))
    return Estimate(seconds, "transferred", 0.2, rate.source)


@lru_cache(maxsize=100_000)
def attention_s(
    *,
    gpu: str,
    dtype: str,
    batch: float,
    heads: float,
    kv_heads: float,
    seq_q: float,
    seq_kv: float,
    head_dim: float,
    causal: bool,
    direction: str = "fwd",
    implementation: str = "flash2",
) -> Estimate:
    """Seconds of a fused attention kernel.

    FLOPs are 4 b h sq skv d, halved when causal, 2.5 times that backward; the rate grows as s / (s + s0).
    """
    rate = attention_rate(gpu=gpu, implementation=implementation)
    flops = 4.0 * batch * heads * seq_q * seq_kv * head_dim * (0.5 if causal else 1.0)
    peak = rate.backward_flops if direction == "bwd" else rate.forward_flops
    flops *= 2.5 if direction == "bwd" else 1.0
    length = math.sqrt(seq_q * seq_kv)
    peak *= length / (length + rate.s0) * (HEAD64_SHARE if head_dim <= 64 else 1.0)
    stream = hot_rate(gpu=gpu, dtype="bf16").stream_bytes_per_s
    nbytes = 2.0 * batch * head_dim * (2 * heads * seq_q + 2 * kv_heads * seq_kv) * (2 if direction == "bwd" else 1)
    floor = kernel_floor_s(gpu=gpu).seconds * (2 if direction == "bwd" else 1)
    spread = 0.1 if rate.label == "published" else 0.2
    return Estimate(floor + max(flops / peak, nbytes / stream), rate.label, spread, rate.source)


@lru_cache(maxsize=256)
def kernel_floor_s(*, gpu: str) -> Estimate:
    """Shortest time of any kernel."""
    rate = hot_rate(gpu=gpu, dtype="bf16")
    return Estimate(rate.floor_s or DEFAULT_FLOOR_S, rate.label, 0.15, rate.source)


@lru_cache(maxsize=50_000)
def memory_bound_s(*, gpu: str, nbytes: float) -> Estimate:
    """Seconds of a kernel that only moves bytes: floor plus traffic over the sustained stream rate."""
    rate = hot_rate(gpu=gpu, dtype="bf16")
    return Estimate(rate.floor_s + nbytes / rate.stream_bytes_per_s, rate.label, 0.12, rate.source)


def optimizer_s(*, gpu: str, params: float, bytes_per_param: float) -> Estimate:
    """Seconds of an optimizer step over owned parameters; HBM-bound at 0.8 of the peak rate."""
    base = memory_bound_s(gpu=gpu, nbytes=params * bytes_per_param)
    return Estimate(base.seconds * 1.07, base.label, 0.15, base.source)
