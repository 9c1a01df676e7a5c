"""AdamW of a flat parameter in one kernel: weight, gradient and both moments are read once and written once."""

from typing import Any

import torch
import triton
import triton.language as tl

from calibrate.kernels.gate import Gate, check

BLOCK = 1024
BETAS, EPS, DECAY = (0.9, 0.95), 1e-8, 0.1


@triton.jit
def _update(  # noqa: PLR0917
    p_ptr, g_ptr, m_ptr, v_ptr, n, rate, beta1, beta2, fix1, fix2, eps, decay, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    p = tl.load(p_ptr + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float32)
    m = tl.load(m_ptr + at, mask=inside, other=0.0)
    v = tl.load(v_ptr + at, mask=inside, other=0.0)
    m = beta1 * m + (1.0 - beta1) * g
    v = beta2 * v + (1.0 - beta2) * g * g
    p = p * (1.0 - rate * decay) - rate * (m / fix1) / (tl.sqrt(v / fix2) + eps)
    tl.store(p_ptr + at, p.to(p_ptr.dtype.element_ty), mask=inside)
    tl.store(m_ptr + at, m, mask=inside)
    tl.store(v_ptr + at, v, mask=inside)


def adamw_(
    weight: torch.Tensor, grad: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, rate: float, step: int
) -> None:
    """One update in place; moments are fp32, weight and gradient fp32 or 16-bit (Loshchilov and Hutter 2019)."""
    beta1, beta2 = BETAS
    n = weight.numel()
    _update[(triton.cdiv(n, BLOCK),)](
        weight, grad, first, second, n, rate, beta1, beta2, 1 - beta1**step, 1 - beta2**step, EPS, DECAY, BLOCK=BLOCK
    )


def reference(
    weight: torch.Tensor, grad: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, rate: float, step: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weight and moments after the same update, in plain PyTorch and fp32 inside."""
    (beta1, beta2), g = BETAS, grad.float()
    m, v = beta1 * first + (1 - beta1) * g, beta2 * second + (1 - beta2) * g * g
    change = rate * (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + EPS)
    return (weight.float() * (1 - rate * DECAY) - change).to(weight.dtype), m, v


def gate(*, elements: int = 5000, dtype: Any = torch.float32, device: str = "cuda") -> tuple[Gate, ...]:
    """Compare weight and both moments after one update at step 3."""
    generator = torch.Generator(device=device).manual_seed(0)
    weight, grad = (torch.randn(elements, device=device, generator=generator).to(dtype) for _ in range(2))
    first = 0.1 * torch.randn(elements, device=device, generator=generator)
    second = 0.1 * torch.rand(elements, device=device, generator=generator)
    want = reference(weight, grad, first, second, rate=1e-2, step=3)
    got = tuple(t.clone() for t in (weight, first, second))
    adamw_(got[0], grad, got[1], got[2], rate=1e-2, step=3)
    names = ("weight", "first moment", "second moment")
    return tuple(
        check(name=f"adamw {elements} {dtype} {name}", got=a, reference=b)
        for name, a, b in zip(names, got, want, strict=True)
    )
