"""Matrix products by tiles, dense and grouped: what another tile than the library's is worth."""

import os
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from calibrate.kernels.gate import Gate, check


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Rows, columns and depth of a tile, warps and pipeline stages."""

    m: int
    n: int
    k: int
    warps: int = 4
    stages: int = 3

    @property
    def name(self) -> str:
        """As it stands in a sample's layout."""
        return f"{self.m}x{self.n}x{self.k}w{self.warps}s{self.stages}"


TILES = (
    Tile(m=64, n=64, k=64, stages=4),
    Tile(m=64, n=128, k=64, stages=4),
    Tile(m=128, n=64, k=64, stages=4),
    Tile(m=128, n=128, k=32, stages=4),
    Tile(m=128, n=128, k=64),
    Tile(m=128, n=128, k=64, warps=8),
    Tile(m=128, n=256, k=64, warps=8),
    Tile(m=256, n=128, k=64, warps=8),
)


# The interpreter multiplies 16-bit values by their bits.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@triton.jit
def _product(  # noqa: PLR0917
    a_ptr,
    b_ptr,
    c_ptr,
    ends_ptr,
    n,
    k,
    tiles_a_group,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    WIDEN: tl.constexpr,
):
    # Columns vary fastest: neighbours share rows of `a` in the cache.
    group = tl.program_id(0) // tiles_a_group
    first = tl.load(ends_ptr + group)
    last = tl.load(ends_ptr + group + 1)
    row = first + (tl.program_id(0) % tiles_a_group) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    weights = b_ptr + group.to(tl.int64) * n * k
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        depth = start + tl.arange(0, K)
        a = tl.load(
            a_ptr + row[:, None].to(tl.int64) * k + depth[None, :],
            mask=(row[:, None] < last) & (depth[None, :] < k),
            other=0.0,
        )
        b = tl.load(
            weights + column[None, :].to(tl.int64) * k + depth[:, None],
            mask=(column[None, :] < n) & (depth[:, None] < k),
            other=0.0,
        )
        if WIDEN:
            a, b = a.to(tl.float32), b.to(tl.float32)
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(
        c_ptr + row[:, None].to(tl.int64) * n + column[None, :],
        total.to(c_ptr.dtype.element_ty),
        mask=(row[:, None] < last) & (column[None, :] < n),
    )


def grouped(a: torch.Tensor, b: torch.Tensor, *, ends: torch.Tensor, tile: Tile, longest: int) -> torch.Tensor:
    """Rows of `a` (sum of groups, k) by each group's weights in `b` (groups, n, k): (sum of groups, n).

    `ends` is int32, one longer than the groups: rows ends[g] to ends[g + 1] belong to group g. No group is longer than
    `longest` rows.
    """
    groups, n, k = b.shape
    c = torch.empty(a.shape[0], n, device=a.device, dtype=a.dtype)
    tall = triton.cdiv(longest, tile.m)
    _product[(groups * tall, triton.cdiv(n, tile.n))](
        a,
        b,
        c,
        ends,
        n,
        k,
        tall,
        M=tile.m,
        N=tile.n,
        K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
        WIDEN=INTERPRETED,
    )
    return c


def product(a: torch.Tensor, b: torch.Tensor, *, tile: Tile) -> torch.Tensor:
    """(m, k) activations by (n, k) weights: (m, n), accumulated in fp32."""
    ends = torch.tensor([0, a.shape[0]], device=a.device, dtype=torch.int32)
    return grouped(a, b[None], ends=ends, tile=tile, longest=a.shape[0])


def gate(
    *,
    tile: Tile,
    m: int = 70,
    n: int = 50,
    k: int = 130,
    groups: int = 1,
    dtype: Any = torch.float32,
    device: str = "cuda",
) -> Gate:
    """Compare on random data: uneven groups, one of them empty where there are three or more; any sizes."""
    generator = torch.Generator(device=device).manual_seed(0)
    lengths = [m] if groups == 1 else [m * (g % 3) // 2 for g in range(groups)]
    ends = torch.tensor([sum(lengths[:g]) for g in range(groups + 1)], device=device, dtype=torch.int32)
    a = torch.randn(sum(lengths), k, device=device, generator=generator).to(dtype)
    b = torch.randn(groups, n, k, device=device, generator=generator).to(dtype)
    got = grouped(a, b, ends=ends, tile=tile, longest=max(lengths))
    parts = [a[ends[g] : ends[g + 1]].double() @ b[g].double().t() for g in range(groups)]
    name = f"product {tile.name} {groups} x {m}x{n}x{k} {dtype}"
    return check(name=name, got=got, reference=torch.cat(parts).to(dtype), rows_summed=True)
