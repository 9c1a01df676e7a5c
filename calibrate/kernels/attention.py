"""Causal attention forward by tiles: what another tile than the library's is worth.

Online softmax over blocks of keys (Dao, FlashAttention-2, arXiv:2307.08691, algorithm 1).
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from calibrate.kernels.gate import Gate, check
from calibrate.kernels.product import INTERPRETED


@dataclass(frozen=True, kw_only=True)
class AttentionTile:
    """Queries and keys of a tile, warps and pipeline stages."""

    queries: int
    keys: int
    warps: int = 4
    stages: int = 3

    @property
    def name(self) -> str:
        """As it stands in a sample's layout."""
        return f"{self.queries}x{self.keys}w{self.warps}s{self.stages}"


ATTENTION_TILES = (
    AttentionTile(queries=64, keys=64),
    AttentionTile(queries=64, keys=128),
    AttentionTile(queries=128, keys=64),
    AttentionTile(queries=128, keys=64, warps=8),
    AttentionTile(queries=128, keys=128, warps=8, stages=2),
    AttentionTile(queries=128, keys=128, warps=8),
)


@triton.jit
def _attend(  # noqa: PLR0917
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    scale,
    sequence,
    heads,
    heads_a_group,
    D: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    WIDEN: tl.constexpr,
):
    # The longest rows first: the last tiles to start are then the short ones.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    kv_row = (row // heads) * (heads // heads_a_group) + (row % heads) // heads_a_group
    query = block * QUERIES + tl.arange(0, QUERIES)
    lane = tl.arange(0, D)
    at = query[:, None] * D + lane[None, :]
    inside = query[:, None] < sequence
    q = tl.load(q_ptr + row * sequence * D + at, mask=inside, other=0.0)
    if WIDEN:
        q = q.to(tl.float32)
    top = tl.full((QUERIES,), float("-inf"), dtype=tl.float32)
    weight = tl.zeros((QUERIES,), dtype=tl.float32)
    total = tl.zeros((QUERIES, D), dtype=tl.float32)
    last = tl.minimum((block + 1) * QUERIES, sequence)
    for start in range(0, last, KEYS):
        key = start + tl.arange(0, KEYS)
        there = key[:, None] < sequence
        at_key = kv_row * sequence * D + key[:, None] * D + lane[None, :]
        k = tl.load(k_ptr + at_key, mask=there, other=0.0)
        v = tl.load(v_ptr + at_key, mask=there, other=0.0)
        if WIDEN:
            k, v = k.to(tl.float32), v.to(tl.float32)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        score = tl.where((key[None, :] <= query[:, None]) & (key[None, :] < sequence), score, float("-inf"))
        new_top = tl.maximum(top, tl.max(score, 1))
        shrink = tl.exp2(top - new_top)
        p = tl.exp2(score - new_top[:, None])
        weight = weight * shrink + tl.sum(p, 1)
        total = total * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        top = new_top
    tl.store(
        o_ptr + row * sequence * D + at,
        (total / weight[:, None]).to(o_ptr.dtype.element_ty),
        mask=inside,
    )


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, tile: AttentionTile) -> torch.Tensor:
    """Causal attention of q (batch, heads, sequence, head_dim) with k and v (batch, kv_heads, sequence, head_dim).

    All contiguous; head_dim is a power of two from 16, heads a multiple of kv_heads; sums are kept in fp32.
    """
    batch, heads, sequence, head_dim = q.shape
    out = torch.empty_like(q)
    _attend[(triton.cdiv(sequence, tile.queries), batch * heads)](
        q,
        k,
        v,
        out,
        math.log2(math.e) / math.sqrt(head_dim),
        sequence,
        heads,
        heads // k.shape[1],
        D=head_dim,
        QUERIES=tile.queries,
        KEYS=tile.keys,
        WIDEN=INTERPRETED,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The same in fp64 by the definition, in the type of `q`."""
    k, v = (z.double().repeat_interleave(q.shape[1] // z.shape[1], 1) for z in (k, v))
    score = q.double() @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    later = torch.ones(score.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return (score.masked_fill(later, float("-inf")).softmax(-1) @ v).to(q.dtype)


def gate(
    *,
    tile: AttentionTile,
    batch: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    sequence: int = 150,
    head_dim: int = 32,
    dtype: Any = torch.float32,
    device: str = "cuda",
) -> Gate:
    """Compare on random data; any length."""
    generator = torch.Generator(device=device).manual_seed(0)
    q, k, v = (
        torch.randn(batch, h, sequence, head_dim, device=device, generator=generator).to(dtype)
        for h in (heads, kv_heads, kv_heads)
    )
    name = f"attention {tile.name} {batch}x{heads}/{kv_heads}x{sequence}x{head_dim} {dtype}"
    got = attention(q, k, v, tile=tile)
    return check(name=name, got=got, reference=reference(q, k, v), rows_summed=True)
