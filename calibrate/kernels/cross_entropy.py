"""Fused softmax-cross-entropy: the loss, then the gradient written over the logits, so no second vocabulary tensor."""

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from calibrate.kernels.gate import Gate, check

BLOCK_COLUMNS = 4096


@triton.jit
def _forward_backward(x_ptr, target_ptr, loss_ptr, vocab, scale, BLOCK: tl.constexpr):  # noqa: PLR0917
    row = tl.program_id(0).to(tl.int64)
    base = x_ptr + row * vocab
    target = tl.load(target_ptr + row)
    columns = tl.arange(0, BLOCK)
    highest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocab, BLOCK):
        x = tl.load(base + start + columns, mask=start + columns < vocab, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, x)
        empty = higher == float("-inf")
        total = tl.where(empty, 0.0, total * tl.exp(highest - higher) + tl.exp(x - higher))
        highest = higher
    top = tl.max(highest, axis=0)
    total_all = tl.sum(tl.where(highest == float("-inf"), 0.0, total * tl.exp(highest - top)), axis=0)
    wanted = tl.load(base + target).to(tl.float32)
    tl.store(loss_ptr + row, tl.log(total_all) + top - wanted)
    tl.debug_barrier()
    for start in range(0, vocab, BLOCK):
        inside = start + columns < vocab
        x = tl.load(base + start + columns, mask=inside, other=float("-inf")).to(tl.float32)
        slope = tl.exp(x - top) / total_all - tl.where(start + columns == target, 1.0, 0.0)
        tl.store(base + start + columns, (slope * scale).to(x_ptr.dtype.element_ty), mask=inside)


def cross_entropy_(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean loss of (rows, vocab) logits; `logits` holds its own gradient afterwards."""
    rows, vocab = logits.shape
    losses = torch.empty(rows, device=logits.device, dtype=torch.float32)
    block = min(BLOCK_COLUMNS, triton.next_power_of_2(vocab))
    _forward_backward[(rows,)](logits, targets, losses, vocab, 1.0 / rows, BLOCK=block, num_warps=max(1, block // 512))
    return losses.mean()


def reference(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and gradient in plain PyTorch, in fp32 inside."""
    z = logits.detach().float().requires_grad_()
    loss = F.cross_entropy(z, targets)
    (slope,) = torch.autograd.grad(loss, z)
    return loss.detach(), slope.to(logits.dtype)


def gate(*, rows: int = 16, vocab: int = 5003, dtype: Any = torch.float32, device: str = "cuda") -> list[Gate]:
    """Compare loss and gradient on random data; `vocab` need not be aligned."""
    generator = torch.Generator(device=device).manual_seed(0)
    logits = (3 * torch.randn(rows, vocab, device=device, generator=generator)).to(dtype)
    targets = torch.randint(0, vocab, (rows,), device=device, generator=generator)
    loss, slope = reference(logits, targets)
    got = cross_entropy_(logits, targets)
    name = f"cross_entropy {rows}x{vocab} {dtype}"
    return [
        check(name=f"{name} loss", got=got, reference=loss, rows_summed=True),
        check(name=f"{name} gradient", got=logits, reference=slope, rows_summed=True),
    ]
