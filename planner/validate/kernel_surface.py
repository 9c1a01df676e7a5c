"""A kernel of a measured part, read between the published kernels of the same part, operator and dtype.

The closed form of `planner.cost.kernels` gives the base; its log residual is interpolated by a local linear fit over
the nearest measured shapes (logarithms of sizes; library, source, clock and layout as further distance). A row never
answers for itself, nor for its twin whose odd size differs by one.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

Row = Mapping[str, str]
NEIGHBOURS = 12
SPARE = 6  # fetched beyond, so that a row and its twins can be left out
SOFTEN = 0.02  # squared distance below which neighbours count alike
RIDGE = 5.0
SIGMA_FLOOR = 0.045
# Distance between shapes measured by another library and version, library, clock, layout, source, remark.
APART = (1.5, 1.05, 1.5, 1.5, 1.5, 1.0)
LIBRARIES = (
    "sglang", "trtllm", "tensorrt-llm", "vllm", "deepgemm", "cublas", "aiter", "transformer engine", "flashinfer",
    "fa3", "fa2", "cudnn", "triton", "torch", "liger",
)  # fmt: skip
TWIN = ("source", "gpu", "op", "dtype", "n", "k", "batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim", "causal",
        "experts", "layout", "bytes", "clock_note", "software")  # fmt: skip
Vector = np.ndarray[Any, np.dtype[np.float64]]


def _number(row: Row, column: str) -> float:
    try:
        value = float(row.get(column) or 0.0)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


def _log2(value: float) -> float:
    return math.log2(value) if value > 0 else 0.0


def place(row: Row) -> list[float]:
    """Where a shape lies: logarithms of its sizes, weighted by how much they move the efficiency."""
    op = row.get("op") or ""
    m, n, k = (_number(row, c) for c in ("m", "n", "k"))
    batch = _number(row, "batch") or 1.0
    if op == "gemm":
        odd = 0.8 if m > 16 and int(m) % 8 else 0.0
        return [_log2(m), _log2(n), _log2(k), 1.5 * _log2(batch), odd]
    if op == "grouped_gemm":
        return [_log2(m), _log2(n), _log2(k), _log2(batch), _log2(_number(row, "experts") or 1.0)]
    if op.startswith("attention"):
        heads, seq = _number(row, "heads"), _number(row, "seq_q")
        kv = _number(row, "kv_heads") or heads or 1.0
        causal = 3.0 if (row.get("causal") or "1") in {"1", "1.0", "True", "true"} else 0.0
        return [
            0.7 * _log2(batch * heads),
            0.5 * _log2(heads / kv),
            _log2(seq),
            _log2(_number(row, "seq_kv") or seq),
            2.0 * _log2(_number(row, "head_dim") or 128.0),
            causal,
        ]
    return [_log2(_number(row, "bytes")), 0.5 * _log2(m), 0.5 * _log2(n)]


def _library(row: Row) -> str:
    text = f"{row.get('software') or ''} {row.get('notes') or ''}".lower()
    return next((name for name in LIBRARIES if name in text), (row.get("source") or "")[:12])


def _kinds(row: Row) -> tuple[str, ...]:
    dense = row.get("op") in {"gemm", "attention_fwd", "attention_bwd"}
    library = _library(row)
    return (
        f"{library}|{(row.get('software') or '')[:22]}",
        library,
        row.get("clock_note") or "",
        row.get("layout") or "",
        (row.get("source") or "")[:14],
        "" if dense else (row.get("notes") or "")[:24],
    )


def _twin(row: Row) -> tuple[str, ...]:
    return (*(row.get(c) or "" for c in TWIN), str(int(_number(row, "m")) // 2))


@dataclass(frozen=True)
class _Surface:
    tree: Any
    points: Vector
    residual: Vector
    axes: Mapping[tuple[int, str], int]
    twins: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Between:
    """Seconds between measured shapes and one standard deviation of their logarithm."""

    seconds: float
    sigma: float


class KernelSurfaces:
    """Published kernels as surfaces, by (gpu, op, dtype)."""

    def __init__(self, *, rows: Sequence[Row], base_s: Callable[[Row], float | None]) -> None:
        groups: dict[tuple[str, str, str], list[tuple[Row, float]]] = defaultdict(list)
        self._base_s = base_s
        for row in rows:
            measured, base = _number(row, "time_us") * 1e-6, base_s(row)
            if base and measured > 0:
                groups[_key(row)].append((row, math.log(measured / base)))
        self._surfaces = {key: _surface(pairs) for key, pairs in groups.items() if len(pairs) >= 4}

    def read(self, row: Row) -> Between | None:
        """The time of a row, None where its part, operator and dtype were never measured."""
        surface, base = self._surfaces.get(_key(row)), self._base_s(row)
        if surface is None or not base:
            return None
        point = _point(row, axes=surface.axes)
        count = min(NEIGHBOURS + SPARE, len(surface.residual))
        distance, index = surface.tree.query(point, k=count)
        twin = _twin(row)
        near = [(d, i) for d, i in zip(np.atleast_1d(distance), np.atleast_1d(index), strict=True)
                if surface.twins[i] != twin][:NEIGHBOURS]  # fmt: skip
        if len(near) < 3:
            return None
        squared = np.array([d for d, _ in near]) ** 2
        chosen = np.array([i for _, i in near])
        sizes = len(place(row))
        residual, sigma = _local_fit(
            offsets=surface.points[chosen, :sizes] - point[:sizes],
            residual=surface.residual[chosen],
            weight=1.0 / (squared + SOFTEN),
        )
        return Between(base * math.exp(residual), math.hypot(SIGMA_FLOOR, sigma))


def _local_fit(*, offsets: Vector, residual: Vector, weight: Vector) -> tuple[float, float]:
    """Ridge-damped linear fit at offset zero, and the weighted scatter around it."""
    total = weight.sum()
    mean, centre = float((weight * residual).sum() / total), (weight[:, None] * offsets).sum(0) / total
    spread = offsets - centre
    damped = (spread * weight[:, None]).T @ spread + RIDGE * total / len(weight) * np.eye(offsets.shape[1])
    slope = np.linalg.solve(damped, (spread * weight[:, None]).T @ (residual - mean))
    left = residual - mean - spread @ slope
    return mean - float(centre @ slope), float(np.sqrt((weight * left**2).sum() / total))


def _key(row: Row) -> tuple[str, str, str]:
    return (row.get("gpu") or "", row.get("op") or "", row.get("dtype") or "")


def _point(row: Row, *, axes: Mapping[tuple[int, str], int]) -> Vector:
    sizes = place(row)
    point = np.zeros(len(sizes) + len(axes))
    point[: len(sizes)] = sizes
    for i, (name, apart) in enumerate(zip(_kinds(row), APART, strict=True)):
        if (i, name) in axes:
            point[len(sizes) + axes[i, name]] = apart / math.sqrt(2.0)
    return point


def _surface(pairs: Sequence[tuple[Row, float]]) -> _Surface:
    names = sorted({(i, name) for row, _ in pairs for i, name in enumerate(_kinds(row))})
    axes = {name: i for i, name in enumerate(names)}
    points = np.array([_point(row, axes=axes) for row, _ in pairs])
    residual = np.array([r for _, r in pairs])
    return _Surface(cKDTree(points), points, residual, axes, tuple(_twin(row) for row, _ in pairs))
