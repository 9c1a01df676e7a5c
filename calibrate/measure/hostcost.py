"""What the host pays: seconds to issue each kind of operator, a graph, a synchronising read, a garbage collection."""

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from calibrate.measure.sampling import Sample, host_time, sample, wall_time

REPEAT = 20


def _synchronise(*, on_cuda: bool) -> None:
    for _ in range(REPEAT):
        if on_cuda:
            torch.cuda.synchronize()


def _operators(device: str, dtype: torch.dtype) -> dict[str, tuple[Callable[..., Any], list[torch.Tensor]]]:
    def new(*s: int) -> torch.Tensor:
        return torch.randn(s, device=device, dtype=dtype, requires_grad=True)

    x, w, b = new(64, 64), new(64, 64), new(64)
    q, ids = new(1, 2, 64, 32), torch.randint(0, 64, (64,), device=device)
    return {
        "linear": (F.linear, [x, w]),
        "linear_bias": (F.linear, [x, w, b]),
        "layernorm": (lambda x, b: F.layer_norm(x, (64,), b, b), [x, b]),
        "rmsnorm": (lambda x, b: F.rms_norm(x, (64,), b), [x, b]),
        "gelu": (lambda x: F.gelu(x, approximate="tanh"), [x]),
        "silu": (F.silu, [x]),
        "add": (lambda x, w: x + w, [x, w]),
        "mul": (lambda x, w: x * w, [x, w]),
        "cat": (lambda x, w: torch.cat([x, w], -1), [x, w]),
        "view": (lambda x: x.view(8, 8, 64), [x]),
        "transpose_copy": (lambda x: x.t().reshape(-1), [x]),
        "split": (lambda x: x.split([32, 32], -1)[0], [x]),
        "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), [q]),
        "cross_entropy": (lambda x: F.cross_entropy(x.float(), ids), [x]),
        "embedding": (lambda w: F.embedding(ids, w), [w]),
        "cast": (lambda x: x.to(torch.float16), [x]),
        "dropout": (lambda x: F.dropout(x, 0.1), [x]),
    }


def dispatch_samples(*, device: str = "cuda", budget_s: float = 0.04) -> list[Sample]:
    """Host seconds of one operator, forward with gradient tracking, and forward with backward; amp and bf16."""
    out = []
    for precision in ("bf16", "amp"):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        for op, (call, inputs) in _operators(device, dtype).items():

            def forward(call: Any = call, inputs: Any = inputs, precision: str = precision) -> list[torch.Tensor]:
                with torch.autocast(device, torch.bfloat16, enabled=precision == "amp"):
                    return [call(*inputs) for _ in range(REPEAT)]

            grads = [torch.ones_like(y) for y in forward()]

            def both(forward: Any = forward, inputs: Any = inputs, grads: Any = grads) -> None:
                torch.autograd.grad(forward(), inputs, grads)

            for phase, fn in (("fwd", forward), ("step", both)):
                out.append(
                    sample(
                        kind="dispatch",
                        op=op,
                        shape={},
                        dtype=precision,
                        layout="eager",
                        phase=phase,
                        method="wall",
                        measured=host_time(fn, budget_s=budget_s, per=REPEAT),
                    )
                )
    x = torch.randn(64, device=device)
    calls: tuple[tuple[str, Callable[[], Any], int], ...] = (
        ("raw_launch", lambda: [x.add_(0.0) for _ in range(REPEAT)], REPEAT),
        ("sync_read", lambda: [x[0].item() for _ in range(REPEAT)], REPEAT),
        ("empty_sync", partial(_synchronise, on_cuda=x.is_cuda), REPEAT),
        ("python_gc", gc.collect, 1),
    )
    for op, single, per in calls:
        measured = wall_time(single, budget_s=2 * budget_s, per=per)
        out.append(sample(kind="dispatch", op=op, shape={}, phase="fwd", method="wall", measured=measured))
    return out


def graph_samples(*, kernels: tuple[int, ...] = (1, 10, 100, 1000)) -> list[Sample]:
    """Launch of a captured graph of small kernels: host seconds to issue it, wall seconds until it is done."""
    out = []
    x = torch.randn(64, device="cuda")
    for count in kernels:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                x.add_(0.0)
        for op, timer in (("launch", host_time), ("replay", wall_time)):
            out.append(
                sample(
                    kind="graph",
                    op=op,
                    shape={"kernels": count},
                    phase="fwd",
                    method="wall",
                    measured=timer(graph.replay, budget_s=0.1),
                )
            )
    return out
