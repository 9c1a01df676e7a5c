"""Single operators: matrix products in three layouts, attention, memory-bound kernels."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from calibrate.measure.timing import Sample, copies_beyond_l2, graph_time, quantiles

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}


def _sample(
    *, kind: str, op: str, shape: dict[str, Any], dtype: str, phase: str, state: str, measured: Any, layout: str = ""
) -> Sample:
    times, at = measured
    return {
        "kind": kind, "op": op, "shape": shape, "dtype": dtype, "layout": layout, "phase": phase, "state": state,
        "method": "graph", "n": len(times), **quantiles(times), **at,
    }  # fmt: skip


def matmul_samples(*, m: int, n: int, k: int, dtype: str, phase: str = "fwd", hot: bool = True) -> list[Sample]:
    """One product: forward x W^T, data gradient dy W or weight gradient dy^T x; hot after half a second at load."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    kind = DTYPES[dtype]
    sets = copies_beyond_l2((m * k + n * k + m * n) * kind.itemsize)
    left, right = {"fwd": ((m, k), (n, k)), "dgrad": ((m, n), (n, k)), "wgrad": ((m, n), (m, k))}[phase]
    calls: list[Callable[[], Any]] = []
    for _ in range(sets):
        a, b = torch.randn(left, device="cuda", dtype=kind), torch.randn(right, device="cuda", dtype=kind)
        if phase == "fwd":
            calls.append(partial(F.linear, a, b))
        elif phase == "dgrad":
            calls.append(partial(torch.matmul, a, b))
        else:
            calls.append(partial(torch.matmul, a.t(), b))
    guess = 2 * m * n * k / 6e14 + 5e-6
    repeats = max(1, min(200, int(0.01 / (guess * sets))))
    shape = {"m": m, "n": n, "k": k}
    out = []
    if hot:
        measured = graph_time(calls, repeats=repeats, budget_s=0.7)
        measured = (measured[0][len(measured[0]) // 2 :], measured[1])
        out.append(
            _sample(kind="matmul", op="matmul", shape=shape, dtype=dtype, phase=phase, state="hot", measured=measured)
        )
    else:
        torch.cuda.synchronize()
        torch.cuda._sleep(200_000_000)
        measured = graph_time(calls, repeats=max(1, repeats // 5), budget_s=0.0)
        out.append(
            _sample(kind="matmul", op="matmul", shape=shape, dtype=dtype, phase=phase, state="cold", measured=measured)
        )
    return out


def attention_samples(*, batch: int, heads: int, kv_heads: int, seq: int, head_dim: int) -> list[Sample]:
    """Causal flash attention, forward, and forward with backward."""
    q = torch.randn(batch, heads, seq, head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    k, v = (
        torch.randn(batch, kv_heads, seq, head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in "kv"
    )
    grad = torch.randn_like(q)
    gqa = kv_heads != heads

    def forward() -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)

    def both() -> None:
        torch.autograd.grad(forward(), (q, k, v), grad)

    shape = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}
    out = []
    for phase, call in (("fwd", forward), ("step", both)):
        measured = graph_time([call], repeats=5, budget_s=0.3)
        out.append(
            _sample(
                kind="attention",
                op="flash_causal",
                shape=shape,
                dtype="bf16",
                phase=phase,
                state="hot",
                measured=measured,
            )
        )
    return out


def memory_samples(*, elements: int) -> list[Sample]:
    """Bandwidth-bound kernels on `elements` 16-bit values in rows of 4096."""
    x = torch.randn(elements // 4096, 4096, device="cuda", dtype=torch.bfloat16)
    y, w, single = torch.randn_like(x), torch.randn(4096, device="cuda", dtype=torch.bfloat16), x.float()
    half = elements // 2
    table: dict[str, tuple[Callable[[], Any], float]] = {
        "copy": (lambda: y.copy_(x), 4 * elements),
        "add": (lambda: x + y, 6 * elements),
        "gelu": (lambda: F.gelu(x, approximate="tanh"), 4 * elements),
        "silu_mul": (lambda: F.silu(x[:, :2048]) * x[:, 2048:], 10 * half),
        "layernorm": (lambda: F.layer_norm(x, (4096,), w, w), 4 * elements),
        "rmsnorm": (lambda: F.rms_norm(x, (4096,), w), 4 * elements),
        "cast_to_fp32": (x.float, 6 * elements),
        "cast_to_bf16": (lambda: single.to(torch.bfloat16), 6 * elements),
        "softmax_fp32": (lambda: torch.softmax(single, -1), 8 * elements),
    }
    out = []
    for op, (call, nbytes) in table.items():
        measured = graph_time([call], repeats=10, budget_s=0.1)
        shape = {"elements": elements, "bytes": nbytes}
        out.append(
            _sample(kind="memory", op=op, shape=shape, dtype="bf16", phase="fwd", state="hot", measured=measured)
        )
    return out
