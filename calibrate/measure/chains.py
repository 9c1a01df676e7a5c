"""Whole layers, and the head with its loss, as a step runs them: device, host, memory and compile seconds apart."""

import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from calibrate.measure.layer import Layer
from calibrate.measure.sampling import Sample, device_time, host_time, sample, state, synchronize


def depth(*, hidden: int, ffn: int) -> int:
    """How many layers to chain so that weights and activations come from memory, not from the cache."""
    return 4 if hidden * (4 * hidden + 3 * ffn) < 1.2e8 else 2


def layer_samples(
    *,
    kind: str,
    hidden: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    mbs: int,
    seq: int,
    precision: str = "amp",
    mode: str = "eager",
    recompute: bool = False,
    device: str = "cuda",
    budget_s: float = 0.35,
    host: bool = False,
    device_part: bool = True,
) -> list[Sample]:
    """A chain of layers, divided by its length: forward, and forward with backward.

    Device seconds are graph replays. Host seconds (`host`) are only meaningful at a tiny batch, where nothing waits for
    the device. Bytes kept for the backward pass and the peak over the start are `allocator` samples.
    """
    torch.manual_seed(0)
    amp, count = precision == "amp", depth(hidden=hidden, ffn=ffn)
    dtype = torch.float32 if amp else torch.bfloat16
    layers: list[Any] = [
        Layer(kind=kind, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn, seq=seq, device=device).to(dtype)
        for _ in range(count)
    ]
    x = torch.randn(mbs, seq, hidden, device=device, dtype=dtype, requires_grad=True)
    grad = torch.randn_like(x)
    leaves = [x] + [p for layer in layers for p in layer.parameters()]
    if mode == "regional":
        torch._dynamo.reset()
        for layer in layers:
            layer.compile()

    def forward() -> torch.Tensor:
        y = x
        with torch.autocast(device, torch.bfloat16, enabled=amp):
            for layer in layers:
                y = checkpoint(layer, y, use_reentrant=False, preserve_rng_state=False) if recompute else layer(y)
        return y

    def both() -> None:
        torch.autograd.grad(forward(), leaves, grad)

    shape = {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "ffn": ffn, "mbs": mbs, "seq": seq}
    label = mode + "+recompute" * recompute
    common: dict[str, Any] = {"op": f"{kind}_layer", "shape": shape, "dtype": precision, "layout": label}
    out: list[Sample] = []
    start = time.perf_counter()
    both()
    synchronize()
    if mode == "regional":
        out.append(sample(kind="compile", method="wall", measured=([time.perf_counter() - start], state()), **common))
    if device_part:
        out += _memory(forward, leaves, grad, count, common)
        for phase, call in (("step", both), ("fwd", forward)):
            times, at = device_time([call], budget_s=budget_s if phase == "step" else budget_s / 2)
            out.append(sample(kind="block", phase=phase, measured=([t / count for t in times], at), **common))
    if host:
        for phase, call in (("step", both), ("fwd", forward)):
            measured = host_time(call, budget_s=0.3, per=count)
            out.append(sample(kind="dispatch", phase=phase, method="wall", measured=measured, **common))
    return out


def _memory(forward: Any, leaves: list[Any], grad: Any, count: int, common: dict[str, Any]) -> list[Sample]:
    if not torch.cuda.is_available():
        return []
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    y = forward()
    kept = torch.cuda.memory_allocated() - before
    top = torch.cuda.max_memory_allocated() - before
    torch.autograd.grad(y, leaves, grad)
    peak = torch.cuda.max_memory_allocated() - before
    del y
    shape = common["shape"] | {"layers": count, "kept_bytes": kept, "forward_peak_bytes": top, "peak_bytes": peak}
    return [sample(kind="allocator", method="event", measured=([0.0], state()), **(common | {"shape": shape}))]


def head_samples(
    *,
    hidden: int,
    vocab: int,
    mbs: int,
    seq: int,
    precision: str = "amp",
    mode: str = "eager",
    device: str = "cuda",
    budget_s: float = 0.25,
) -> list[Sample]:
    """Output projection, fp32 logits and cross-entropy, forward and backward."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    head = nn.Linear(hidden, vocab, bias=False, device=device, dtype=dtype)
    x = torch.randn(mbs, seq, hidden, device=device, dtype=dtype, requires_grad=True)
    target = torch.randint(0, vocab, (mbs * seq,), device=device)

    def loss(x: torch.Tensor) -> torch.Tensor:
        logits = head(x).float()
        return F.cross_entropy(logits.view(-1, vocab), target)

    if mode != "eager":
        torch._dynamo.reset()
    run = torch.compile(loss) if mode != "eager" else loss

    def both() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=precision == "amp"):
            value = run(x)
        torch.autograd.grad(value, (x, head.weight))

    base = 0
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
    start = time.perf_counter()
    both()
    synchronize()
    took = time.perf_counter() - start
    shape = {"hidden": hidden, "vocab": vocab, "mbs": mbs, "seq": seq}
    common: dict[str, Any] = {"op": "head_loss", "dtype": precision, "layout": mode}
    out = []
    if torch.cuda.is_available():
        more = shape | {"peak_bytes": torch.cuda.max_memory_allocated() - base}
        out.append(sample(kind="allocator", method="event", shape=more, measured=([0.0], state()), **common))
    if mode != "eager":
        out.append(sample(kind="compile", method="wall", shape=shape, measured=([took], state()), **common))
    return [*out, sample(kind="block", shape=shape, measured=device_time([both], budget_s=budget_s), **common)]
