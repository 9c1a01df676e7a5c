"""Seconds read off a profile: a measured shape as measured, one between measured shapes interpolated, others assumed.

Between shapes the *efficiency* is interpolated, not the time: seconds = floor + roofline * excess. The roofline is the
larger of work over the best measured rate and bytes over the best measured bandwidth; the excess, near 1 or more, is
averaged over the nearest samples with inverse squared distance in the logarithms of the shape.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from planner.profile.schema import Profile, Sample

Label = Literal["measured", "interpolated", "assumed"]
FLOOR_S = 2e-6
NEIGHBOURS = 6
OUTSIDE = 1.0
ITEM_BYTES = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "fp8": 1}
STREAM_OPS = ("copy", "add", "gelu")


class SurfaceError(LookupError):
    """Nothing of this kind was measured."""


@dataclass(frozen=True)
class Reading:
    """Seconds, where they come from, and their relative spread (p90 - p10 over the median, of the samples used)."""

    seconds: float
    label: Label
    spread_frac: float


@dataclass(frozen=True)
class _Surface:
    points: np.ndarray[Any, np.dtype[np.float64]]
    excess: np.ndarray[Any, np.dtype[np.float64]]
    spread: np.ndarray[Any, np.dtype[np.float64]]
    exact: dict[tuple[float, ...], tuple[float, float]]


def _spread(sample: Sample) -> float:
    return (sample.p90_s - sample.p10_s) / sample.p50_s if sample.p50_s > 0 else 0.0


def _aligned(*sides: int) -> bool:
    return all(side % 8 == 0 for side in sides)


def _attention_place(shape: dict[str, Any]) -> tuple[float, ...]:
    """Head size and sequence length decide the efficiency, the number of heads in flight less so."""
    return (
        2.0 * math.log2(shape["head_dim"]),
        math.log2(shape["seq"]),
        0.5 * math.log2(shape["batch"] * shape["heads"]),
    )


def _optimizer_place(shape: dict[str, Any]) -> tuple[float, ...]:
    return (math.log2(shape["params"]), 0.5 * math.log2(shape["tensors"]))


class Surfaces:
    """Lookups over one profile; the last session wins where a shape was measured twice with the same method."""

    def __init__(self, profile: Profile) -> None:
        self._samples: dict[tuple[str, ...], list[Sample]] = defaultdict(list)
        for s in profile.samples:
            key = (s.kind, s.op, s.dtype, s.phase, s.state)
            self._samples[key].append(s)
        self._cache: dict[Any, _Surface] = {}
        self._rates: dict[Any, float] = {}
        self.bandwidth_bytes_per_s = self._best_bandwidth()

    def matmul(
        self, *, m: int, n: int, k: int, dtype: str = "bf16", phase: str = "fwd", state: str = "hot", layout: str = ""
    ) -> Reading:
        """One product of (m, k) activations with (n, k) weights, in the layout of its phase."""
        item = ITEM_BYTES[dtype]
        rows = self._rows("matmul", "matmul", dtype, phase, state, where=lambda s: s.layout == layout)
        rate = self._rate(("matmul", dtype, phase, state, layout), rows, lambda s: 2.0 * s["m"] * s["n"] * s["k"])

        def roof(s: dict[str, Any]) -> float:
            work = 2.0 * s["m"] * s["n"] * s["k"] / rate
            moved = item * (s["m"] * s["k"] + s["n"] * s["k"]) + max(2, item) * s["m"] * s["n"]
            return float(max(work, moved / self.bandwidth_bytes_per_s))

        same = [s for s in rows if _aligned(s.shape["n"], s.shape["k"]) == _aligned(n, k)]
        near = same or rows
        reading = self._read(
            ("matmul", dtype, phase, state, layout, bool(same), _aligned(n, k)), near, {"m": m, "n": n, "k": k}, roof
        )
        return (
            reading if same or reading.label == "measured" else Reading(reading.seconds, "assumed", reading.spread_frac)
        )

    def attention(
        self,
        *,
        batch: int,
        heads: int,
        kv_heads: int,
        seq: int,
        head_dim: int,
        op: str,
        phase: str = "step",
    ) -> Reading:
        """One attention call of back end `op` (`cudnn_causal`, ...); phase `step` is forward with backward."""
        rows = self._rows("attention", op, "bf16", phase, "hot")
        causal = 0.5 if op.endswith("causal") else 1.0
        passes = 14.0 if phase == "step" else 4.0

        def flops(s: dict[str, Any]) -> float:
            return float(causal * passes * s["batch"] * s["heads"] * s["seq"] ** 2 * s["head_dim"])

        rate = self._rate(("attention", op, phase), rows, flops)
        shape = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}
        return self._read(("attention", op, phase), rows, shape, lambda s: flops(s) / rate, place=_attention_place)

    def memory(self, *, op: str, elements: int, dtype: str = "bf16", phase: str = "fwd") -> Reading:
        """A bandwidth-bound operator on `elements` values; rows of any width count as one size."""
        rows = self._rows("memory", op, dtype, phase, "hot", where=lambda s: "elements" in s.shape)
        rate = self._rate(("memory", op, dtype, phase), rows, lambda s: float(s["elements"]))
        return self._read(
            ("memory", op, dtype, phase),
            rows,
            {"elements": elements},
            lambda s: s["elements"] / rate,
            keys=("elements",),
        )

    def optimizer(self, *, params: float, tensors: int, variant: str = "fused", precision: str = "amp") -> Reading:
        """Device seconds of one AdamW update over all parameters (launch gaps included where the host is the limit)."""
        rows = self._rows("optimizer", f"adamw_{variant}", precision, "step", "hot")
        rate = self._rate(("optimizer", variant, precision), rows, lambda s: float(s["params"]))
        floor = min(s.p50_s for s in rows)
        return self._read(
            ("optimizer", variant, precision),
            rows,
            {"params": params, "tensors": tensors},
            lambda s: s["params"] / rate,
            floor_s=floor,
            place=_optimizer_place,
        )

    def dispatch(self, *, op: str, precision: str = "bf16", phase: str = "fwd", layout: str = "eager") -> Reading:
        """Host seconds to issue one operator, or one layer (`gpt_layer`, `llama_layer`)."""
        rows = self._rows("dispatch", op, precision, phase, "hot", where=lambda s: s.layout == layout)
        middle = sorted(rows, key=lambda s: s.p50_s)[len(rows) // 2]
        return Reading(middle.p50_s, "measured", _spread(middle))

    def layer(
        self,
        *,
        kind: str,
        hidden: int,
        heads: int,
        kv_heads: int,
        ffn: int,
        mbs: int,
        seq: int,
        precision: str = "amp",
        mode: str = "eager",
        phase: str = "step",
        method: str = "graph",
    ) -> Reading:
        """Device seconds of a whole layer, only where exactly this shape was measured.

        Raises:
            SurfaceError: this shape was not measured; compose it from operators.
        """
        shape = {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "ffn": ffn, "mbs": mbs, "seq": seq}
        rows = self._rows(
            "block",
            f"{kind}_layer",
            precision,
            phase,
            "hot",
            where=lambda s: s.layout == mode and s.method == method and s.shape == shape,
        )
        return Reading(rows[-1].p50_s, "measured", _spread(rows[-1]))

    def _rows(
        self,
        kind: str,
        op: str,
        dtype: str,
        phase: str,
        state: str,
        *,
        where: Callable[[Sample], bool] = lambda s: True,
    ) -> list[Sample]:
        rows = [s for s in self._samples.get((kind, op, dtype, phase, state), []) if where(s)]
        if not rows:
            raise SurfaceError(f"the profile has no {state} {kind} sample of {op} in {dtype}, phase {phase}")
        return rows

    def _rate(self, key: Any, rows: Iterable[Sample], work: Callable[[dict[str, Any]], float]) -> float:
        if key not in self._rates:
            self._rates[key] = max(work(s.shape) / s.p50_s for s in rows)
        return self._rates[key]

    def _best_bandwidth(self) -> float:
        best = 0.0
        for (kind, op, *_), rows in self._samples.items():
            if kind == "memory" and op in STREAM_OPS:
                large = max(s.shape.get("bytes", 0.0) for s in rows)
                best = max(
                    [best]
                    + [
                        s.shape["bytes"] / s.p50_s
                        for s in rows
                        if s.phase == "fwd" and s.shape.get("bytes", 0.0) == large
                    ]
                )
        return best or math.inf

    def _read(
        self,
        key: Any,
        rows: list[Sample],
        shape: dict[str, Any],
        roof: Callable[[dict[str, Any]], float],
        *,
        keys: tuple[str, ...] = (),
        place: Callable[[dict[str, Any]], tuple[float, ...]] | None = None,
        floor_s: float = FLOOR_S,
    ) -> Reading:
        names = keys or tuple(shape)
        where = place or (lambda s: tuple(math.log2(s[x]) for x in names))
        if key not in self._cache:
            exact = {tuple(s.shape[x] for x in names): (s.p50_s, _spread(s)) for s in rows}
            self._cache[key] = _Surface(
                points=np.array([where(dict(zip(names, p, strict=True))) for p in exact]),
                excess=np.array(
                    [
                        math.log(max(t - floor_s, 0.1 * t) / roof(dict(zip(names, p, strict=True))))
                        for p, (t, _) in exact.items()
                    ]
                ),
                spread=np.array([spread for _, spread in exact.values()]),
                exact=exact,
            )
        surface = self._cache[key]
        point = tuple(shape[x] for x in names)
        if point in surface.exact:
            seconds, spread = surface.exact[point]
            return Reading(seconds, "measured", spread)
        at = np.array(where(shape))
        distance = ((surface.points - at) ** 2).sum(axis=1)
        nearest = np.argsort(distance, kind="stable")[:NEIGHBOURS]
        weight = 1.0 / (distance[nearest] + 1e-9)
        excess = float((weight * surface.excess[nearest]).sum() / weight.sum())
        spread = float((weight * surface.spread[nearest]).sum() / weight.sum())
        low, high = surface.points.min(axis=0) - OUTSIDE, surface.points.max(axis=0) + OUTSIDE
        inside = bool(((at >= low) & (at <= high)).all()) and len(surface.exact) > 1
        return Reading(floor_s + roof(shape) * math.exp(excess), "interpolated" if inside else "assumed", spread)
