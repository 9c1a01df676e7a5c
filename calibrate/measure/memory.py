"""Kernels bound by memory bandwidth, in eager PyTorch; `bytes` in the shape is the least the operator must move."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from calibrate.measure.sampling import Sample, copies_beyond_l2, device_time, sample

FORWARD_ONLY = ("copy", "cast", "column_sum", "join3", "heads_copy", "fill")


def _rotary(z: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = z.shape[-1] // 2
    a, b = z[..., :half], z[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(z.dtype)


def _swiglu(wide: torch.Tensor) -> torch.Tensor:
    gate, up = wide.chunk(2, -1)
    return F.silu(gate) * up


def _loss(logits: torch.Tensor) -> torch.Tensor:
    target = torch.arange(len(logits), device=logits.device) * 7919 % logits.shape[-1]
    return F.cross_entropy(logits.float(), target)


def _table(*, elements: int, width: int, dtype: torch.dtype, device: str) -> dict[str, tuple[Any, list[Any], float]]:
    rows, size = max(1, elements // width), dtype.itemsize
    new = lambda *s: torch.randn(s, device=device, dtype=dtype)  # noqa: E731
    x, y, w, wide = new(rows, width), new(rows, width), new(width), new(rows, 2 * width)
    half = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    angle = torch.randn(rows, 64, device=device)
    cos, sin = angle.cos(), angle.sin()
    heads = new(1, rows, max(1, width // 128), 128).transpose(1, 2)
    other = torch.float32 if dtype == torch.bfloat16 else torch.bfloat16
    bias = new(width)
    e = rows * width
    return {
        "copy": (lambda a: a.clone(), [x], 2 * size * e),
        "add": (lambda a, b: a + b, [x, y], 3 * size * e),
        "add_mixed": (lambda a, b: a + b, [x.float(), half], 10 * e),
        "gelu": (lambda a: F.gelu(a, approximate="tanh"), [x], 2 * size * e),
        "swiglu": (_swiglu, [wide], 3 * size * e),
        "layernorm": (lambda a, g, b: F.layer_norm(a, (width,), g, b), [x, w, bias], 2 * size * e),
        "rmsnorm": (lambda a, g: F.rms_norm(a, (width,), g), [x, w], 2 * size * e),
        "rotary": (lambda a: _rotary(a, cos, sin), [heads], 2 * size * heads.numel()),
        "dropout": (lambda a: F.dropout(a, 0.1), [x], 2 * size * e),
        "cast": (lambda a: a.to(other), [x], 6 * e),
        "softmax": (lambda a: torch.softmax(a, -1), [x], 2 * size * e),
        "column_sum": (lambda a: a.sum(0), [x], size * e),
        "join3": (lambda a: torch.cat([a, a, a], -1), [x], 4 * size * e),
        "heads_copy": (lambda a: a.transpose(1, 2).reshape(rows, -1), [heads.contiguous()], 2 * size * e),
        "fill": (torch.zeros_like, [x], size * e),
    }


def _forward_backward(call: Callable[..., Any], leaves: list[torch.Tensor], grad: torch.Tensor) -> None:
    torch.autograd.grad(call(*leaves), leaves, grad)


def memory_samples(
    *,
    elements: int,
    width: int = 4096,
    dtype: str = "bf16",
    device: str = "cuda",
    budget_s: float = 0.08,
    only: tuple[str, ...] = (),
) -> list[Sample]:
    """Every operator forward, and forward with backward, on `elements` values in rows of `width`."""
    kind = torch.bfloat16 if dtype == "bf16" else torch.float32
    sets = min(4, copies_beyond_l2(2 * elements * kind.itemsize))
    tables = [_table(elements=elements, width=width, dtype=kind, device=device) for _ in range(sets)]
    out = []
    for op in tables[0]:
        if only and op not in only:
            continue
        forward: list[Callable[[], Any]] = []
        both: list[Callable[[], Any]] = []
        for t in tables:
            call, inputs, _ = t[op]
            forward.append(partial(call, *inputs))
            if op not in FORWARD_ONLY:
                leaves = [z.detach().requires_grad_() for z in inputs]
                both.append(partial(_forward_backward, call, leaves, torch.randn_like(call(*inputs))))
        shape = {"elements": elements, "width": width, "bytes": tables[0][op][2]}
        for phase, calls in (("fwd", forward), ("step", both)):
            if phase == "step" and op in FORWARD_ONLY:
                continue
            out.append(
                sample(
                    kind="memory",
                    op=op,
                    shape=shape,
                    dtype=dtype,
                    phase=phase,
                    measured=device_time(calls, budget_s=budget_s),
                )
            )
    return out


def loss_samples(
    *, tokens: int, vocab: int, compiled: bool = False, device: str = "cuda", budget_s: float = 0.2
) -> list[Sample]:
    """Cross-entropy over 16-bit logits in fp32, forward with backward: everything behind the output projection."""
    if compiled:
        torch._dynamo.reset()
    run = torch.compile(_loss) if compiled else _loss
    logits = torch.randn(tokens, vocab, device=device, dtype=torch.bfloat16, requires_grad=True)

    def both() -> None:
        torch.autograd.grad(run(logits), logits)

    shape = {"tokens": tokens, "vocab": vocab}
    measured = device_time([both], budget_s=budget_s)
    layout = "compile" if compiled else ""
    return [sample(kind="memory", op="loss", shape=shape, dtype="bf16", layout=layout, measured=measured)]


def embedding_samples(*, tokens: int, vocab: int, hidden: int, dtype: str, device: str = "cuda") -> list[Sample]:
    """Look-up of `tokens` rows and its dense gradient (which first fills vocab x hidden with zeros)."""
    kind = torch.bfloat16 if dtype == "bf16" else torch.float32
    table = torch.randn(vocab, hidden, device=device, dtype=kind, requires_grad=True)
    ids = torch.randint(0, vocab, (tokens,), device=device)
    grad = torch.randn(tokens, hidden, device=device, dtype=kind)
    shape = {"tokens": tokens, "vocab": vocab, "hidden": hidden}
    pairs = (
        ("fwd", lambda: F.embedding(ids, table.detach())),
        ("step", lambda: torch.autograd.grad(F.embedding(ids, table), table, grad)),
    )
    try:
        return [
            sample(
                kind="memory",
                op="embedding",
                shape=shape,
                dtype=dtype,
                phase=phase,
                measured=device_time([call], budget_s=0.1),
            )
            for phase, call in pairs
        ]
    except RuntimeError:  # the gradient sorts its indices with a synchronising copy that a graph cannot hold
        from calibrate.measure.sampling import queue_time

        return [
            sample(
                kind="memory",
                op="embedding",
                shape=shape,
                dtype=dtype,
                phase=phase,
                method="queue",
                measured=queue_time(call, calls=20, budget_s=0.1),
            )
            for phase, call in pairs
        ]
