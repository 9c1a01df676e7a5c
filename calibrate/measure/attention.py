"""Scaled dot product attention, forward and forward with backward, causal and not, per back end."""

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from calibrate.measure.sampling import Sample, device_time, sample

# `default` is whatever PyTorch picks, which is what a training step gets (cuDNN on an H200 with torch 2.11).
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def attention_samples(
    *,
    batch: int,
    heads: int,
    kv_heads: int,
    seq: int,
    head_dim: int,
    backend: str = "default",
    causal: bool = True,
    budget_s: float = 0.25,
    device: str = "cuda",
) -> list[Sample]:
    """One call of attention; op is `<backend>_causal` or `<backend>`."""

    def draw(heads: int) -> torch.Tensor:
        return torch.randn(batch, heads, seq, head_dim, device=device, dtype=torch.bfloat16, requires_grad=True)

    q, k, v = draw(heads), draw(kv_heads), draw(kv_heads)
    grad, gqa = torch.randn_like(q), kv_heads != heads
    if gqa and backend == "efficient":
        k, v = (z.detach().repeat_interleave(heads // kv_heads, 1).requires_grad_() for z in (k, v))
        gqa = False

    def forward() -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)

    def inference() -> torch.Tensor:
        with torch.no_grad():
            return forward()

    def both() -> None:
        torch.autograd.grad(forward(), (q, k, v), grad)

    shape = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}
    out = []
    with nullcontext() if backend == "default" else sdpa_kernel(BACKENDS[backend]):
        for phase, call in (("fwd", inference), ("step", both)):
            out.append(
                sample(
                    kind="attention",
                    op=backend + "_causal" * causal,
                    shape=shape,
                    dtype="bf16",
                    phase=phase,
                    measured=device_time([call], budget_s=budget_s),
                )
            )
    return out
