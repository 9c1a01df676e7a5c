"""Fused rotary embedding of one tensor of heads, in place of the eager split, multiply and join."""

from typing import Any

import torch
import triton
import triton.language as tl

from calibrate.kernels.gate import Gate, check


@triton.jit
def _rotate(x_ptr, cos_ptr, sin_ptr, y_ptr, heads, half, sequence, BLOCK: tl.constexpr):  # noqa: PLR0917
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    column = tl.arange(0, BLOCK)
    inside = column < half
    angle = (token % sequence) * half + column
    cos = tl.load(cos_ptr + angle, mask=inside, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + angle, mask=inside, other=0.0).to(tl.float32)
    base = (token * heads + head) * 2 * half + column
    low = tl.load(x_ptr + base, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(x_ptr + base + half, mask=inside, other=0.0).to(tl.float32)
    kind = y_ptr.dtype.element_ty
    tl.store(y_ptr + base, (low * cos - high * sin).to(kind), mask=inside)
    tl.store(y_ptr + base + half, (high * cos + low * sin).to(kind), mask=inside)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """(batch, sequence, heads, head_dim) turned by (sequence, head_dim / 2) angles, first half against second half."""
    x = x.contiguous()
    batch, sequence, heads, width = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(width // 2)
    _rotate[(batch * sequence, heads)](x, cos, sin, y, heads, width // 2, sequence, BLOCK=block, num_warps=1)
    return y


def reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The same in plain PyTorch, in fp32 inside."""
    low, high = x.float().chunk(2, -1)
    c, s = cos.float()[None, :, None, :], sin.float()[None, :, None, :]
    return torch.cat((low * c - high * s, high * c + low * s), -1).to(x.dtype)


def angles(*, sequence: int, head_dim: int, device: str = "cuda", base: float = 1e4) -> tuple[torch.Tensor, ...]:
    """Cosines and sines, (sequence, head_dim / 2) each, fp32."""
    rate = base ** (-torch.arange(0, head_dim, 2, device=device).float() / head_dim)
    phase = torch.arange(sequence, device=device).float()[:, None] * rate
    return phase.cos(), phase.sin()


def gate(
    *, sequence: int = 33, heads: int = 3, head_dim: int = 96, dtype: Any = torch.float32, device: str = "cuda"
) -> Gate:
    """Compare on random data; half a head need not be a power of two."""
    generator = torch.Generator(device=device).manual_seed(0)
    x = torch.randn(2, sequence, heads, head_dim, device=device, generator=generator).to(dtype)
    cos, sin = angles(sequence=sequence, head_dim=head_dim, device=device)
    name = f"rotary {sequence}x{heads}x{head_dim} {dtype}"
    return check(name=name, got=rotary(x, cos, sin), reference=reference(x, cos, sin))
