"""What one GPU (or CPU) can tell about collectives: the kernels that reduce and copy, and the way through the host."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from calibrate.measure.collective_groups import sizes
from calibrate.measure.sampling import Sample, sample, wall_time

CHUNK_BYTES = 2**22


def local_samples(*, largest: int) -> list[Sample]:
    """Reduce and copy kernels by size; on a GPU also a message staged through pinned host memory and back."""
    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    dtype = torch.bfloat16 if gpu else torch.float32
    free = float(torch.cuda.mem_get_info()[0]) if gpu else 2e9
    out = []
    for nbytes in sizes(free_bytes=0.8 * free, largest=largest):
        a = torch.randn(nbytes // dtype.itemsize, dtype=dtype, device=device)
        b = torch.randn_like(a)
        calls: dict[str, Callable[[], Any]] = {
            "reduce_kernel": partial(a.add_, b),
            "copy_kernel": partial(a.copy_, b),
        }
        if gpu:
            near = torch.empty(min(nbytes, CHUNK_BYTES) // dtype.itemsize, dtype=dtype, pin_memory=True)
            calls["host_staged"] = partial(staged, source=a, target=b, near=near)
        for op, call in calls.items():
            shape = {"bytes": nbytes, "ranks": 1, "nodes": 1}
            out.append(
                sample(kind="collective", op=op, shape=shape, dtype=str(dtype).removeprefix("torch."), method="wall",
                       measured=wall_time(call, budget_s=0.1))
            )  # fmt: skip
        del a, b
    return out


def staged(*, source: torch.Tensor, target: torch.Tensor, near: torch.Tensor) -> None:
    """Copy device to host to device through one pinned chunk, as a library does without peer access."""
    for begin in range(0, source.numel(), near.numel()):
        part = source[begin : begin + near.numel()]
        near[: part.numel()].copy_(part, non_blocking=True)
        target[begin : begin + near.numel()].copy_(near[: part.numel()], non_blocking=True)
