"""Fused SwiGLU: silu(gate) * up, read from one tensor that holds both halves."""

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from calibrate.kernels.gate import Gate, check

BLOCK_COLUMNS = 1024


@triton.jit
def _forward(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    base = x_ptr + row * 2 * width + columns
    gate = tl.load(base, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(base + width, mask=inside, other=0.0).to(tl.float32)
    value = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(y_ptr + row * width + columns, value.to(y_ptr.dtype.element_ty), mask=inside)


def swiglu(x: torch.Tensor) -> torch.Tensor:
    """(..., 2 width) -> (..., width)."""
    width = x.shape[-1] // 2
    rows = x.contiguous().view(-1, 2 * width)
    y = torch.empty(rows.shape[0], width, device=x.device, dtype=x.dtype)
    _forward[(rows.shape[0], triton.cdiv(width, BLOCK_COLUMNS))](rows, y, width, BLOCK=BLOCK_COLUMNS, num_warps=4)
    return y.view(*x.shape[:-1], width)


def reference(x: torch.Tensor) -> torch.Tensor:
    """The same in plain PyTorch, in fp32 inside."""
    gate_half, up = x.float().chunk(2, -1)
    return (F.silu(gate_half) * up).to(x.dtype)


def gate(*, rows: int = 64, width: int = 1500, dtype: Any = torch.float32, device: str = "cuda") -> Gate:
    """Compare on random data."""
    generator = torch.Generator(device=device).manual_seed(0)
    x = (4 * torch.randn(rows, 2 * width, device=device, generator=generator)).to(dtype)
    return check(name=f"swiglu {rows}x{width} {dtype}", got=swiglu(x), reference=reference(x))
