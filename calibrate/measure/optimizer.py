"""AdamW in its three forms, the gradient norm with clipping: device seconds and host seconds."""

from typing import Any

import torch
from torch import nn

from calibrate.measure.sampling import Sample, host_time, queue_time, sample


def optimizer_samples(
    *, params: float, precision: str, variant: str, tensors: int, device: str = "cuda", budget_s: float = 0.2
) -> list[Sample]:
    """AdamW over `tensors` tensors, half of them matrices and half of them short vectors, as in a decoder."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    # Whole vectors of 256: tensors of odd length leave the wide loads, in 16 bits at twice the time.
    big = max(256, int(params / max(1, tensors // 2)) // 256 * 256)
    sizes = [big] * (tensors // 2) + [1024] * (tensors - tensors // 2)
    weights = [nn.Parameter(torch.randn(s, device=device, dtype=dtype)) for s in sizes]
    for w in weights:
        w.grad = torch.randn_like(w)
    shape = {"params": sum(sizes), "tensors": tensors}
    if variant == "clip":
        op, call = "clip_grad_norm", lambda: nn.utils.clip_grad_norm_(weights, 1e9)
    else:
        optimizer = torch.optim.AdamW(weights, lr=1e-5, fused=variant == "fused", foreach=variant == "foreach")
        op, call = f"adamw_{variant}", optimizer.step
    common: dict[str, Any] = {"op": op, "shape": shape, "dtype": precision, "layout": "eager"}
    return [
        sample(kind="optimizer", method="queue", measured=queue_time(call, calls=3, budget_s=budget_s), **common),
        sample(kind="dispatch", method="wall", measured=host_time(call, budget_s=budget_s / 2), **common),
    ]
