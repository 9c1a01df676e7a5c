"""A decoder layer, its head and its optimizer as a training step runs them: device seconds and host seconds apart."""

import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from calibrate.measure.timing import Sample, host_time, quantiles, queue_time


class Layer(nn.Module):
    """GPT (LayerNorm, biases, GELU) or Llama (RMSNorm, rotary, SwiGLU, grouped queries) layer; (batch, seq, hidden)."""

    def __init__(self, *, kind: str, hidden: int, heads: int, kv_heads: int, ffn: int, seq: int, device: str) -> None:
        super().__init__()
        self.gpt, self.heads, self.kv, self.dim = kind == "gpt", heads, kv_heads, hidden // heads
        norm = nn.LayerNorm if self.gpt else nn.RMSNorm
        self.first, self.second = norm(hidden), norm(hidden)
        self.qkv = nn.Linear(hidden, hidden + 2 * kv_heads * self.dim, bias=self.gpt)
        self.out = nn.Linear(hidden, hidden, bias=self.gpt)
        self.up = nn.Linear(hidden, ffn * (1 if self.gpt else 2), bias=self.gpt)
        self.down = nn.Linear(ffn, hidden, bias=self.gpt)
        angle = torch.outer(torch.arange(seq), 10000 ** -torch.linspace(0, 1, self.dim // 2)).to(device)
        self.cos, self.sin = angle.cos(), angle.sin()

    def turn(self, z: torch.Tensor) -> torch.Tensor:
        """Rotary positions."""
        a, b = z.chunk(2, -1)
        return torch.cat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], -1).to(z.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer."""
        b, s, h = x.shape
        width = self.kv * self.dim
        q, k, v = self.qkv(self.first(x)).split([h, width, width], -1)
        q, k, v = (z.view(b, s, -1, self.dim).transpose(1, 2) for z in (q, k, v))
        if not self.gpt:
            q, k = self.turn(q), self.turn(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, h))
        y = self.up(self.second(x))
        if self.gpt:
            return x + self.down(F.gelu(y, approximate="tanh"))
        gate, up = y.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def _sample(
    *, kind: str, op: str, shape: dict[str, Any], dtype: str, phase: str, method: str, measured: Any, mode: str
) -> Sample:
    times, at = measured
    return {
        "kind": kind, "op": op, "shape": shape, "dtype": dtype, "layout": mode, "phase": phase, "state": "hot",
        "method": method, "n": len(times), **quantiles(times), **at,
    }  # fmt: skip


def layer_samples(
    *, kind: str, hidden: int, heads: int, kv_heads: int, ffn: int, mbs: int, seq: int, precision: str, mode: str,
    device: str = "cuda", budget_s: float = 0.4,
) -> list[Sample]:  # fmt: skip
    """Forward and backward of a layer: device seconds with a full queue, host seconds to issue it, compile seconds."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    layer: Any = Layer(kind=kind, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn, seq=seq, device=device)
    layer = layer.to(device=device, dtype=dtype)
    x = torch.randn(mbs, seq, hidden, device=device, dtype=torch.bfloat16 if precision == "bf16" else dtype)
    x.requires_grad_()
    grad = torch.randn_like(x)
    out: list[Sample] = []
    shape = {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "ffn": ffn, "mbs": mbs, "seq": seq}
    if mode == "regional":
        layer.compile()
    start = time.perf_counter()

    def forward() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=precision == "amp"):
            return layer(x)

    def both() -> None:
        y = forward()
        y.backward(grad.to(y.dtype))
        for p in layer.parameters():
            p.grad = None
        x.grad = None

    both()
    both()
    if mode == "regional":
        times = [time.perf_counter() - start]
        op = f"{kind}_layer"
        out.append(_sample(kind="compile", op=op, shape=shape, dtype=precision, phase="step", method="wall",
                           measured=(times, {}), mode=mode))  # fmt: skip
    queue = queue_time(both, calls=20, budget_s=budget_s)
    host = host_time(both, budget_s=budget_s / 2)
    out.append(_sample(kind="block", op=f"{kind}_layer", shape=shape, dtype=precision, phase="step", method="queue",
                       measured=queue, mode=mode))  # fmt: skip
    out.append(_sample(kind="dispatch", op=f"{kind}_layer", shape=shape, dtype=precision, phase="step", method="wall",
                       measured=host, mode=mode))  # fmt: skip
    return out


def head_samples(
    *,
    hidden: int,
    vocab: int,
    mbs: int,
    seq: int,
    precision: str,
    mode: str,
    device: str = "cuda",
    budget_s: float = 0.3,
) -> list[Sample]:
    """Output projection, fp32 logits and cross-entropy, forward and backward."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    head = nn.Linear(hidden, vocab, bias=False).to(device=device, dtype=dtype)
    x = torch.randn(mbs, seq, hidden, device=device, dtype=dtype, requires_grad=True)
    target = torch.randint(0, vocab, (mbs * seq,), device=device)

    def loss(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=precision == "amp"):
            logits = head(x).float()
        return F.cross_entropy(logits.view(-1, vocab), target)

    run = torch.compile(loss) if mode == "regional" else loss

    def both() -> None:
        run(x).backward()
        head.weight.grad = None
        x.grad = None

    both()
    shape = {"hidden": hidden, "vocab": vocab, "mbs": mbs, "seq": seq}
    queue = queue_time(both, calls=10, budget_s=budget_s)
    return [_sample(kind="block", op="head_loss", shape=shape, dtype=precision, phase="step", method="queue",
                    measured=queue, mode=mode)]  # fmt: skip


def optimizer_samples(
    *, params: float, precision: str, variant: str, tensors: int, device: str = "cuda"
) -> list[Sample]:
    """AdamW over `tensors` equal tensors: device seconds with a full queue, and host seconds."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    side = int(params / tensors)
    weights = [nn.Parameter(torch.randn(side, device=device, dtype=dtype)) for _ in range(tensors)]
    for w in weights:
        w.grad = torch.randn_like(w)
    optimizer = torch.optim.AdamW(weights, lr=1e-5, fused=variant == "fused", foreach=variant == "foreach")
    shape = {"params": side * tensors, "tensors": tensors}
    queue = queue_time(optimizer.step, calls=3, budget_s=0.3)
    host = host_time(optimizer.step, budget_s=0.2)
    return [
        _sample(kind="optimizer", op=f"adamw_{variant}", shape=shape, dtype=precision, phase="step", method="queue",
                measured=queue, mode="eager"),
        _sample(kind="dispatch", op=f"adamw_{variant}", shape=shape, dtype=precision, phase="step", method="wall",
                measured=host, mode="eager"),
    ]  # fmt: skip
