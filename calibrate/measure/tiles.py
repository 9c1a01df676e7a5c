"""What another tile is worth: the library's kernel beside our own swept over tiles; products, grouped ones, attention.

Surfaces never read these samples: their operation is `tile_...`. The layout is `library` or the tile's name; a tile
is timed only after its result has passed the gate, and one that the GPU cannot hold (shared memory) is left out.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from calibrate.kernels import attention, product
from calibrate.kernels.attention import ATTENTION_TILES, AttentionTile
from calibrate.kernels.gate import Gate
from calibrate.kernels.product import TILES, Tile
from calibrate.measure.sampling import Sample, device_time, sample


def _passes(gate: Callable[[], Gate]) -> bool:
    try:
        return gate().passed
    except Exception as error:
        if "resource" in str(error).lower() or "shared memory" in str(error).lower():
            return False
        raise


def _product_passes(*, tile: Tile, groups: int) -> bool:
    return _passes(partial(product.gate, tile=tile, m=300, n=512, k=512, groups=groups, dtype=torch.bfloat16))


def _attention_passes(*, tile: AttentionTile, head_dim: int) -> bool:
    return _passes(partial(attention.gate, tile=tile, sequence=700, head_dim=head_dim, dtype=torch.bfloat16))


def _timed(*, kind: str, shape: dict[str, Any], ways: dict[str, Callable[[], Any]]) -> list[Sample]:
    return [
        sample(
            kind=kind,
            op=f"tile_{kind}",
            shape=shape,
            dtype="bf16",
            layout=way,
            phase="fwd",
            measured=device_time([call], budget_s=0.15),
        )
        for way, call in ways.items()
    ]


def dense_samples(*, m: int, n: int, k: int) -> list[Sample]:
    """One product (m, k) x (n, k): the library and every tile."""
    a, b = (torch.randn(r, k, device="cuda", dtype=torch.bfloat16) for r in (m, n))
    ways: dict[str, Callable[[], Any]] = {"library": partial(F.linear, a, b)}
    ways |= {t.name: partial(product.product, a, b, tile=t) for t in TILES if _product_passes(tile=t, groups=1)}
    return _timed(kind="matmul", shape={"m": m, "n": n, "k": k}, ways=ways)


def grouped_samples(*, experts: int, m: int, n: int, k: int) -> list[Sample]:
    """`experts` products of m rows each: the library's grouped product and every tile."""
    a = torch.randn(experts * m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(experts, n, k, device="cuda", dtype=torch.bfloat16)
    ends = torch.arange(experts + 1, device="cuda", dtype=torch.int32) * m
    ways: dict[str, Callable[[], Any]] = {
        "library": partial(torch._grouped_mm, a, b.transpose(-2, -1), offs=ends[1:].contiguous())
    }
    for tile in TILES:
        if _product_passes(tile=tile, groups=4):
            ways[tile.name] = partial(product.grouped, a, b, ends=ends, tile=tile, longest=m)
    return _timed(kind="grouped_matmul", shape={"experts": experts, "m": m, "n": n, "k": k}, ways=ways)


def attention_samples(*, batch: int, heads: int, kv_heads: int, seq: int, head_dim: int) -> list[Sample]:
    """Causal attention forward: PyTorch's choice, its flash back end and every tile."""
    q, k, v = (
        torch.randn(batch, h, seq, head_dim, device="cuda", dtype=torch.bfloat16) for h in (heads, kv_heads, kv_heads)
    )
    library = partial(F.scaled_dot_product_attention, q, k, v, is_causal=True, enable_gqa=kv_heads != heads)

    def flash() -> torch.Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return library()

    ways: dict[str, Callable[[], Any]] = {"library": library, "flash": flash}
    ways |= {
        t.name: partial(attention.attention, q, k, v, tile=t)
        for t in ATTENTION_TILES
        if _attention_passes(tile=t, head_dim=head_dim)
    }
    shape = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}
    return _timed(kind="attention", shape=shape, ways=ways)


def tile_jobs() -> Iterator[tuple[str, str, Callable[[], list[Sample]]]]:
    """The jobs of the `tiles` group: a square product, a skinny one, a short one, two sets of experts, attention."""
    for m, n, k in ((8192, 8192, 8192), (8192, 1024, 4096), (512, 4096, 4096)):
        yield "tiles", f"product {m}x{n}x{k}", partial(dense_samples, m=m, n=n, k=k)
    for experts, m, n, k in ((8, 1024, 14336, 4096), (64, 256, 2048, 2048)):
        yield "tiles", f"grouped {experts}x{m}x{n}x{k}", partial(grouped_samples, experts=experts, m=m, n=n, k=k)
    for batch, heads, kv_heads, seq, head_dim in ((8, 12, 12, 1024, 64), (2, 32, 8, 4096, 128)):
        call: dict[str, Any] = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}
        yield "tiles", f"attention {batch}x{heads}/{kv_heads}x{seq}x{head_dim}", partial(attention_samples, **call)
