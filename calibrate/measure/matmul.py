"""Matrix products in the three layouts of training, dense in five precisions, and grouped."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from calibrate.measure.sampling import Sample, copies_beyond_l2, device_time, sample

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}


def matmul_samples(
    *,
    m: int,
    n: int,
    k: int,
    dtype: str = "bf16",
    phase: str = "fwd",
    hot: bool = True,
    budget_s: float = 0.3,
    device: str = "cuda",
) -> list[Sample]:
    """One product of (m, k) activations and (n, k) weights: x W^T, data gradient dy W or weight gradient dy^T x."""
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    kind = DTYPES[dtype]
    left, right = {"fwd": ((m, k), (n, k)), "dgrad": ((m, n), (n, k)), "wgrad": ((m, n), (m, k))}[phase]
    calls: list[Callable[[], Any]] = []
    for _ in range(copies_beyond_l2((m * k + n * k + m * n) * kind.itemsize)):
        a, b = torch.randn(left, device=device, dtype=kind), torch.randn(right, device=device, dtype=kind)
        if phase == "fwd":
            calls.append(partial(F.linear, a, b))
        elif phase == "dgrad":
            calls.append(partial(torch.matmul, a, b))
        else:
            calls.append(partial(torch.matmul, a.t(), b))
    measured = device_time(calls, budget_s=budget_s, hot=hot)
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = False
    return [
        sample(
            kind="matmul",
            op="matmul",
            shape={"m": m, "n": n, "k": k},
            dtype=dtype,
            phase=phase,
            heat="hot" if hot else "cold",
            measured=measured,
        )
    ]


def fp8_samples(*, m: int, n: int, k: int, rowwise: bool, budget_s: float = 0.3) -> list[Sample]:
    """e4m3 product with bf16 result, one scale a tensor or one a row; the cast itself is timed apart."""
    calls: list[Callable[[], Any]] = []
    for _ in range(copies_beyond_l2(m * k + n * k + 2 * m * n)):
        a = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
        b = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn).t()
        if rowwise:
            sa, sb = torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")
        else:
            sa, sb = torch.rand((), device="cuda"), torch.rand((), device="cuda")
        scaled = partial(torch._scaled_mm, scale_a=sa, scale_b=sb, out_dtype=torch.bfloat16, use_fast_accum=True)
        calls.append(partial(scaled, a, b))
    measured = device_time(calls, budget_s=budget_s)
    return [
        sample(
            kind="matmul",
            op="matmul",
            shape={"m": m, "n": n, "k": k},
            dtype="fp8",
            layout="rowwise" if rowwise else "tensorwise",
            phase="fwd",
            measured=measured,
        )
    ]


def grouped_samples(*, experts: int, m: int, n: int, k: int, phase: str = "fwd", budget_s: float = 0.3) -> list[Sample]:
    """`experts` products of m rows each in one launch (bf16), as a mixture of experts runs them in each layout."""
    calls: list[Callable[[], Any]] = []
    offsets = torch.arange(1, experts + 1, device="cuda", dtype=torch.int32) * m

    def rows(width: int) -> torch.Tensor:
        return torch.randn(experts * m, width, device="cuda", dtype=torch.bfloat16)

    for _ in range(copies_beyond_l2(2 * experts * (m * k + n * k + m * n))):
        b = torch.randn(experts, n, k, device="cuda", dtype=torch.bfloat16) if phase != "wgrad" else None
        if b is None:
            left, right = rows(n).t(), rows(k)
        else:
            left, right = (rows(k), b.transpose(-2, -1)) if phase == "fwd" else (rows(n), b)
        calls.append(partial(torch._grouped_mm, left, right, offs=offsets))
    return [
        sample(
            kind="grouped_matmul",
            op="grouped_matmul",
            shape={"experts": experts, "m": m, "n": n, "k": k},
            dtype="bf16",
            phase=phase,
            measured=device_time(calls, budget_s=budget_s),
        )
    ]
