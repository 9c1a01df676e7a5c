"""Glue kernels three ways: eager, compiled, Triton; a Triton kernel is timed only after its numerical gate."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from calibrate.kernels import adamw, cross_entropy, pack, rmsnorm, rotary, swiglu
from calibrate.measure.sampling import Sample, device_time, sample


class GateError(RuntimeError):
    """A kernel whose result is wrong is not timed."""


def _fresh() -> None:
    """Forget earlier shapes: a second shape would be compiled with dynamic sizes, which is slower."""
    torch._dynamo.reset()


def _time(op: str, shape: dict[str, Any], ways: dict[str, Callable[[], Any]], gates: list[Any]) -> list[Sample]:
    failed = [f"{g.name}: {g.error:.2g} > {g.limit:.2g}" for g in gates if not g.passed]
    out = []
    for way, call in ways.items():
        if way == "triton" and failed:
            continue
        out.append(
            sample(
                kind="memory",
                op=f"glue_{op}",
                shape=shape,
                dtype="bf16",
                layout=way,
                phase="fwd",
                measured=device_time([call], budget_s=0.15),
            )
        )
    if failed:
        raise GateError("; ".join(failed))
    return out


def _rmsnorm(rows: int, width: int) -> list[Sample]:
    _fresh()
    x = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(width, device="cuda", dtype=torch.bfloat16)
    fast = torch.compile(lambda: rmsnorm.reference(x, w))
    ways = {
        "eager": lambda: rmsnorm.reference(x, w),
        "library": lambda: F.rms_norm(x, (width,), w),
        "compiled": fast,
        "triton": lambda: rmsnorm.rmsnorm(x, w),
    }
    shape = {"rows": rows, "width": width, "bytes": 4 * rows * width}
    return _time("rmsnorm", shape, ways, [rmsnorm.gate(rows=rows, width=width, dtype=torch.bfloat16)])


def _swiglu(rows: int, width: int) -> list[Sample]:
    _fresh()
    x = torch.randn(rows, 2 * width, device="cuda", dtype=torch.bfloat16)

    def plain() -> torch.Tensor:
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up

    ways = {"eager": plain, "compiled": torch.compile(plain), "triton": lambda: swiglu.swiglu(x)}
    shape = {"rows": rows, "width": width, "bytes": 6 * rows * width}
    return _time("swiglu", shape, ways, [swiglu.gate(rows=rows, width=width, dtype=torch.bfloat16)])


def _cross_entropy(rows: int, vocab: int) -> list[Sample]:
    _fresh()
    x = torch.randn(rows, vocab, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(0, vocab, (rows,), device="cuda")
    logits = x.detach().clone()

    def loss(z: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(z.float(), targets)

    fast = torch.compile(loss)
    ways = {
        "eager": lambda: torch.autograd.grad(loss(x), x),
        "compiled": lambda: torch.autograd.grad(fast(x), x),
        "triton": lambda: cross_entropy.cross_entropy_(logits, targets),
    }
    shape = {"rows": rows, "vocab": vocab, "bytes": 6 * rows * vocab}
    return _time("cross_entropy", shape, ways, cross_entropy.gate(rows=256, vocab=vocab, dtype=torch.bfloat16))


def _rotary(tokens: int, heads: int, head_dim: int) -> list[Sample]:
    _fresh()
    x = torch.randn(1, tokens, heads, head_dim, device="cuda", dtype=torch.bfloat16)
    cos, sin = rotary.angles(sequence=tokens, head_dim=head_dim)
    ways = {
        "eager": lambda: rotary.reference(x, cos, sin),
        "compiled": torch.compile(lambda: rotary.reference(x, cos, sin)),
        "triton": lambda: rotary.rotary(x, cos, sin),
    }
    shape = {"tokens": tokens, "heads": heads, "head_dim": head_dim, "bytes": 4 * x.numel()}
    gate = rotary.gate(sequence=512, heads=heads, head_dim=head_dim, dtype=torch.bfloat16)
    return _time("rotary", shape, ways, [gate])


def _adamw(elements: int) -> list[Sample]:
    """One flat parameter, so that the library's loop, foreach and fused forms differ by traffic alone."""
    weight = torch.nn.Parameter(torch.randn(elements, device="cuda", dtype=torch.bfloat16))
    grad = torch.randn_like(weight)
    weight.grad = grad
    moments = [torch.zeros(elements, device="cuda") for _ in range(2)]
    settings: dict[str, Any] = {"lr": 1e-5, "betas": adamw.BETAS, "weight_decay": adamw.DECAY, "capturable": True}
    library = torch.optim.AdamW([weight], fused=True, **settings)
    loop = torch.optim.AdamW([weight], foreach=False, **settings)
    ours = weight.detach().clone()
    ways = {
        "eager": loop.step,
        "library": library.step,
        "triton": lambda: adamw.adamw_(ours, grad, *moments, rate=1e-5, step=10),
    }
    shape = {"elements": elements, "bytes": (2 + 2 + 2 + 16) * elements}
    return _time("adamw", shape, ways, list(adamw.gate(elements=100_000, dtype=torch.bfloat16)))


def _pack(elements: int) -> list[Sample]:
    _fresh()
    x = torch.randn(elements, device="cuda", dtype=torch.bfloat16)
    q, scales = pack.pack(x)
    gates = list(pack.gate(elements=100_000, dtype=torch.bfloat16))
    fast = torch.compile(pack.reference)
    ways = {"eager": lambda: pack.reference(x), "compiled": lambda: fast(x), "triton": lambda: pack.pack(x)}
    back = {"triton": lambda: pack.unpack(q, scales, dtype=torch.bfloat16)}
    shape = {"elements": elements, "bytes": 3 * elements}
    return _time("pack", shape, ways, gates) + _time("unpack", shape, back, gates)


def _casts(rows: int, width: int, columns: int) -> list[Sample]:
    """A product as autocast runs it, its fp32 weights cast on every call, beside one whose weights stay in bf16."""
    _fresh()
    x = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(columns, width, device="cuda")
    kept = weight.to(torch.bfloat16)
    fast = torch.compile(lambda: F.linear(x, weight.to(torch.bfloat16)))
    ways: dict[str, Callable[[], Any]] = {
        "eager": lambda: F.linear(x, weight.to(torch.bfloat16)),
        "compiled": fast,
        "removed": partial(F.linear, x, kept),
    }
    shape = {"rows": rows, "width": width, "columns": columns, "bytes": 6 * columns * width}
    return _time("casts", shape, ways, [])


def glue_jobs() -> Iterator[tuple[str, str, Callable[[], list[Sample]]]]:
    """The jobs of the `glue` group."""
    for rows, width in ((16384, 4096), (32768, 4096)):  # working sets well beyond the cache
        yield "glue", f"rmsnorm {rows}x{width}", partial(_rmsnorm, rows, width)
        yield "glue", f"swiglu {rows}x{2 * width}", partial(_swiglu, rows, 2 * width)
    for rows, vocab in ((4096, 50304), (4096, 50257), (4096, 128256)):
        yield "glue", f"cross entropy {rows}x{vocab}", partial(_cross_entropy, rows, vocab)
    yield "glue", "rotary 16384x32x128", partial(_rotary, 16384, 32, 128)
    yield "glue", "adamw 268M", partial(_adamw, 1 << 28)
    yield "glue", "pack 268M", partial(_pack, 1 << 28)
    for rows, width, columns in ((512, 4096, 4096), (8192, 4096, 4096)):
        yield "glue", f"casts {rows}x{width}x{columns}", partial(_casts, rows, width, columns)
