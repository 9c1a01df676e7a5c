"""Gradients quantised to 8-bit integers with a scale a block, and back: what compressed exchange runs on both ends."""

from typing import Any

import torch
import triton
import triton.language as tl

from calibrate.kernels.gate import Gate, check

GROUP = 256  # values that share a scale
LEVELS = 127.0


@triton.jit
def _quantise(x_ptr, q_ptr, scale_ptr, n, GROUP: tl.constexpr):
    block = tl.program_id(0).to(tl.int64)
    at = block * GROUP + tl.arange(0, GROUP)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(x), axis=0) / 127.0
    level = x / tl.where(scale > 0, scale, 1.0)
    rounded = tl.floor(level + 0.5)
    tl.store(q_ptr + at, rounded.to(tl.int8), mask=at < n)
    tl.store(scale_ptr + block, scale)


@triton.jit
def _unpack(q_ptr, scale_ptr, y_ptr, n, GROUP: tl.constexpr):
    block = tl.program_id(0).to(tl.int64)
    at = block * GROUP + tl.arange(0, GROUP)
    q = tl.load(q_ptr + at, mask=at < n, other=0).to(tl.float32)
    value = q * tl.load(scale_ptr + block)
    tl.store(y_ptr + at, value.to(y_ptr.dtype.element_ty), mask=at < n)


def pack(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Flat values as int8 and one fp32 scale for every `GROUP` of them."""
    flat = x.contiguous().view(-1)
    blocks = triton.cdiv(flat.numel(), GROUP)
    q = torch.empty(flat.numel(), device=x.device, dtype=torch.int8)
    scales = torch.empty(blocks, device=x.device, dtype=torch.float32)
    _quantise[(blocks,)](flat, q, scales, flat.numel(), GROUP=GROUP, num_warps=1)
    return q, scales


def unpack(q: torch.Tensor, scales: torch.Tensor, *, dtype: Any = torch.float32) -> torch.Tensor:
    """Values of `dtype` from packed ones."""
    y = torch.empty(q.numel(), device=q.device, dtype=dtype)
    _unpack[(scales.numel(),)](q, scales, y, q.numel(), GROUP=GROUP, num_warps=1)
    return y


def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same packing in plain PyTorch."""
    flat = x.float().reshape(-1)
    rows = torch.nn.functional.pad(flat, (0, -flat.numel() % GROUP)).view(-1, GROUP)
    scales = rows.abs().amax(1) / LEVELS
    level = rows / torch.where(scales > 0, scales, 1.0)[:, None]
    return (level + 0.5).floor().to(torch.int8).view(-1)[: flat.numel()], scales


def gate(*, elements: int = 5000, dtype: Any = torch.float32, device: str = "cuda") -> tuple[Gate, ...]:
    """Scales and levels against the reference; and the round trip, off by at most half a level of its block."""
    generator = torch.Generator(device=device).manual_seed(0)
    x = torch.randn(elements, device=device, generator=generator).to(dtype)
    q, scales = pack(x)
    want, want_scales = reference(x)
    back = unpack(q, scales)
    allowed = scales.repeat_interleave(GROUP)[:elements] * 0.5
    over = ((back - x.float()).abs() - allowed).clamp(min=0.0)
    return (
        check(name=f"pack scales {elements} {dtype}", got=scales, reference=want_scales),
        # A level that lies on a half may round either way: one of 127.
        Gate(name=f"pack levels {elements} {dtype}", error=float((q - want).abs().max()), limit=1.0),
        Gate(name=f"unpack {elements} {dtype}", error=float(over.max() / scales.max()), limit=1e-3),
    )
