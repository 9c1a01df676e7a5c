"""Scaled dot product attention, forward and forward with backward, causal and not, per back end.

Layout `views`: q, k and v are transposed views of one (batch, seq, (heads + 2 kv_heads) head_dim) product, as a layer
without rotary positions passes them; `rotated`: q and k are copies in (batch, heads, seq, head_dim), v a view.
"""

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
    layout: str = "views",
    budget_s: float = 0.25,
    device: str = "cuda",
) -> list[Sample]:
    """One call of attention; op is `<backend>_causal` or `<backend>`."""
    width = (heads + 2 * kv_heads) * head_dim
    joint = torch.randn(batch, seq, width, device=device, dtype=torch.bfloat16)
    sides = joint.split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], -1)
    q, k, v = (z.view(batch, seq, -1, head_dim).transpose(1, 2) for z in sides)
    if layout == "rotated":
        q, k = q.contiguous(), k.contiguous()
    q, k, v = (z.detach().requires_grad_() for z in (q, k, v))
    grad = torch.randn(batch, seq, heads, head_dim, device=device, dtype=torch.bfloat16).transpose(1, 2)
    gqa = kv_heads != heads
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
                    layout=layout,
                    phase=phase,
                    measured=device_time([call], budget_s=budget_s),
                )
            )
    return out
