"""What another tile is worth: the library's product beside our own kernel swept over tiles, dense and grouped.

Surfaces never read these samples: their operation is `tile_...`. The layout is `library` or the tile's name; a tile
is timed only after its result has passed the gate, and one that the GPU cannot hold (shared memory) is left out.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from calibrate.kernels import product
from calibrate.kernels.product import TILES, Tile
from calibrate.measure.sampling import Sample, device_time, sample


def _passes(*, tile: Tile, groups: int) -> bool:
    try:
        return product.gate(tile=tile, m=300, n=512, k=512, groups=groups, dtype=torch.bfloat16).passed
    except Exception as error:
        if "resource" in str(error).lower() or "shared memory" in str(error).lower():
            return False
        raise


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
    ways |= {t.name: partial(product.product, a, b, tile=t) for t in TILES if _passes(tile=t, groups=1)}
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
        if _passes(tile=tile, groups=4):
            ways[tile.name] = partial(product.grouped, a, b, ends=ends, tile=tile, longest=m)
    return _timed(kind="grouped_matmul", shape={"experts": experts, "m": m, "n": n, "k": k}, ways=ways)


def tile_jobs() -> Iterator[tuple[str, str, Callable[[], list[Sample]]]]:
    """The jobs of the `tiles` group: a square product, a skinny one, a short one, and two sets of experts."""
    for m, n, k in ((8192, 8192, 8192), (8192, 1024, 4096), (512, 4096, 4096)):
        yield "tiles", f"product {m}x{n}x{k}", partial(dense_samples, m=m, n=n, k=k)
    for experts, m, n, k in ((8, 1024, 14336, 4096), (64, 256, 2048, 2048)):
        yield "tiles", f"grouped {experts}x{m}x{n}x{k}", partial(grouped_samples, experts=experts, m=m, n=n, k=k)
