"""Fused RMSNorm: one read and one write per element, statistics in fp32."""

from typing import Any

import torch
import triton
import triton.language as tl

from calibrate.kernels.gate import Gate, check

EPS = 1e-6


@triton.jit
def _forward(x_ptr, w_ptr, y_ptr, width, eps, BLOCK: tl.constexpr):  # noqa: PLR0917
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / width + eps)
    tl.store(y_ptr + row * width + columns, (x * scale * w).to(y_ptr.dtype.element_ty), mask=inside)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, *, eps: float = EPS) -> torch.Tensor:
    """RMSNorm over the last dimension of `x`."""
    rows = x.contiguous().view(-1, x.shape[-1])
    y = torch.empty_like(rows)
    block = triton.next_power_of_2(rows.shape[1])
    _forward[(rows.shape[0],)](
        rows, weight, y, rows.shape[1], eps, BLOCK=block, num_warps=min(16, max(1, block // 256))
    )
    return y.view(x.shape)


def reference(x: torch.Tensor, weight: torch.Tensor, *, eps: float = EPS) -> torch.Tensor:
    """The same in plain PyTorch, in fp32 inside."""
    z = x.float()
    return (z * torch.rsqrt(z.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def gate(*, rows: int = 64, width: int = 1000, dtype: Any = torch.float32, device: str = "cuda") -> Gate:
    """Compare on random data; `width` need not be a power of two."""
    generator = torch.Generator(device=device).manual_seed(0)
    x = torch.randn(rows, width, device=device, generator=generator).to(dtype)
    w = torch.randn(width, device=device, generator=generator).to(dtype)
    return check(name=f"rmsnorm {rows}x{width} {dtype}", got=rmsnorm(x, w), reference=reference(x, w), rows_summed=True)
