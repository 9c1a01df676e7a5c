"""Seconds read off a profile: a measured shape as measured, one between measured shapes interpolated, others assumed.

Between shapes the *efficiency* is interpolated, not the time: seconds = floor + roofline * excess. The roofline is the
larger of work over the best measured rate and bytes over the best measured bandwidth; the excess, near 1 or more, is
averaged over the nearest samples with inverse squared distance in the logarithms of the shape.
"""

import math
import statistics
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from planner.profile.schema import Profile, Sample

Label = Literal["measured", "interpolated", "assumed"]
FLOOR_S = 2e-6
NEIGHBOURS = 6
SMALLEST = 0.9  # of the smallest size measured: what is left of it is launch, not traffic
INNER_RAMP = 100.0  # inner size at which a product runs at half its rate: pipeline fill of a tile
OUTSIDE = 1.0
ITEM_BYTES = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "fp8": 1}
STREAM_OPS = ("copy", "add", "gelu")


class SurfaceError(LookupError):
    """Nothing of this kind was measured."""


@dataclass(frozen=True)
class Reading:
    """Seconds, where they come from, and their relative spread (p90 - p10 over the median, of the samples used).

    `clock_mhz` is the clock at which the samples ran, None where it was not recorded.
    """

    seconds: float
    label: Label
    spread_frac: float
    clock_mhz: float | None = None


@dataclass(frozen=True)
class _Surface:
    points: np.ndarray[Any, np.dtype[np.float64]]
    excess: np.ndarray[Any, np.dtype[np.float64]]
    spread: np.ndarray[Any, np.dtype[np.float64]]
    clock: np.ndarray[Any, np.dtype[np.float64]]
    exact: dict[tuple[float, ...], tuple[float, float, float]]


def _spread(sample: Sample) -> float:
    return (sample.p90_s - sample.p10_s) / sample.p50_s if sample.p50_s > 0 else 0.0


def _by_shape(rows: Iterable[Sample], names: tuple[str, ...]) -> dict[tuple[float, ...], tuple[float, float, float]]:
    """Seconds, spread and clock of each shape: the median over sessions and machines."""
    found: dict[tuple[float, ...], list[Sample]] = defaultdict(list)
    for s in rows:
        found[tuple(s.shape[x] for x in names)].append(s)
    return {
        shape: (
            statistics.median(s.p50_s for s in same),
            statistics.median(_spread(s) for s in same),
            statistics.median(s.clock_mhz or 0.0 for s in same),
        )
        for shape, same in found.items()
    }


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
    """Lookups over one profile; the median of its sessions where a shape was measured twice."""

    def __init__(self, profile: Profile) -> None:
        self._samples: dict[tuple[str, ...], list[Sample]] = defaultdict(list)
        for s in profile.samples:
            key = (s.kind, s.op, s.dtype, s.phase, s.state)
            self._samples[key].append(s)
        self._cache: dict[Any, _Surface] = {}
        self._lines: dict[Any, list[tuple[float, ...]]] = {}
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
            inner = {"fwd": s["k"], "dgrad": s["n"], "wgrad": s["m"]}[phase]
            work = 2.0 * s["m"] * s["n"] * s["k"] / rate * (1 + INNER_RAMP / inner)
            moved = item * (s["m"] * s["k"] + s["n"] * s["k"]) + max(2, item) * s["m"] * s["n"]
            return float((work**4 + (moved / self.bandwidth_bytes_per_s) ** 4) ** 0.25)

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
        op: str = "default_causal",
        phase: str = "step",
        layout: str | None = None,
    ) -> Reading:
        """One attention call of back end `op`; phase `step` is forward with backward.

        `default` is what PyTorch picks. The layout matters for a measured shape only:
        between shapes all layouts are read together.
        """
        rows = self._rows("attention", op, "bf16", phase, "hot")
        causal = 0.5 if op.endswith("causal") else 1.0
        passes = 14.0 if phase == "step" else 4.0

        def flops(s: dict[str, Any]) -> float:
            return float(causal * passes * s["batch"] * s["heads"] * s["seq"] ** 2 * s["head_dim"])

        rate = self._rate(("attention", op, phase), rows, flops)
        shape = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}
        same = [s for s in rows if s.layout == layout and all(s.shape[k] == v for k, v in shape.items())]
        key = ("attention", op, phase, layout, *shape.values()) if same else ("attention", op, phase)
        return self._read(key, same or rows, shape, lambda s: flops(s) / rate, place=_attention_place)

    def memory(self, *, op: str, elements: int, dtype: str = "bf16", phase: str = "fwd") -> Reading:
        """A bandwidth-bound operator on `elements` values; rows of any width count as one size."""
        rows = self._rows("memory", op, dtype, phase, "hot", where=lambda s: "elements" in s.shape)
        return self._line(("memory", op, dtype, phase), rows, "elements", float(elements))

    def rows(self, *, op: str, rows: int, width: int, dtype: str, phase: str = "fwd") -> Reading:
        """An operator over `rows` rows of `width` values whose time depends on both: norms, sums over rows."""
        found = self._rows("memory", op, dtype, phase, "hot", where=lambda s: "width" in s.shape)
        rate = self._rate(("rows", op, dtype, phase), found, lambda s: float(s["elements"]))

        def place(s: dict[str, Any]) -> tuple[float, ...]:
            return (math.log2(s["elements"] / s["width"]), math.log2(s["width"]))

        shape = {"elements": rows * width, "width": width}
        key = ("rows", op, dtype, phase)
        return self._read(key, found, shape, lambda s: s["elements"] / rate, place=place)

    def embedding(self, *, tokens: int, vocab: int, hidden: int, dtype: str, phase: str) -> Reading:
        """Look-up of `tokens` rows (fwd), or look-up with its dense gradient (step)."""
        rows = self._rows("memory", "embedding", dtype, phase, "hot")
        item = ITEM_BYTES[dtype]

        def moved(s: dict[str, Any]) -> float:
            rows_bytes = 2.0 * item * s["tokens"] * s["hidden"]
            return float(rows_bytes if phase == "fwd" else 3 * rows_bytes + item * s["vocab"] * s["hidden"])

        rate = self._rate(("embedding", dtype, phase), rows, moved)
        shape = {"tokens": tokens, "vocab": vocab, "hidden": hidden}
        return self._read(("embedding", dtype, phase), rows, shape, lambda s: moved(s) / rate)

    def loss(self, *, tokens: int, vocab: int, layout: str = "") -> Reading:
        """Cross-entropy in fp32 over 16-bit logits, forward with backward; layout `compile` for generated kernels."""
        rows = self._rows("memory", "loss", "bf16", "step", "hot", where=lambda s: s.layout == layout)
        same = [s for s in rows if _aligned(s.shape["vocab"]) == _aligned(vocab)] or rows
        rate = self._rate(("loss", layout), rows, lambda s: float(s["tokens"]) * s["vocab"])
        key = ("loss", layout, _aligned(vocab))
        return self._read(
            key, same, {"tokens": tokens, "vocab": vocab}, lambda s: float(s["tokens"]) * s["vocab"] / rate
        )

    def stream(self, *, nbytes: float) -> Reading:
        """A generated kernel that moves `nbytes`: read off the copies and additions of all sizes, by traffic."""
        rows = [
            s
            for (kind, op, *_), group in self._samples.items()
            if kind == "memory" and op in ("copy", "add") and group
            for s in group
            if s.phase == "fwd"
        ]
        if not rows:
            raise SurfaceError("the profile has no copy to read the bandwidth from")
        return self._line(("stream",), rows, "bytes", nbytes)

    def optimizer(self, *, params: float, tensors: int, variant: str = "fused", precision: str = "amp") -> Reading:
        """Device seconds of one AdamW update over all parameters (launch gaps included where the host is the limit)."""
        rows = self._rows("optimizer", f"adamw_{variant}", precision, "step", "hot")
        if variant != "fused":
            # Small updates in these forms wait for the host: only the sample with the best rate is device time.
            best = min(rows, key=lambda s: s.p50_s / s.shape["params"])
            return Reading(best.p50_s / best.shape["params"] * params, "interpolated", _spread(best))
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

    def graph_launch(self, *, kernels: int) -> Reading:
        """Host seconds to launch a captured graph of `kernels` kernels."""
        return self._line(("graph",), self._rows("graph", "launch", "", "fwd", "hot"), "kernels", float(kernels))

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

    def _line(self, key: Any, rows: list[Sample], name: str, at: float) -> Reading:
        """Piecewise linear between the sizes measured, continued beyond the ends; never below the smallest."""
        if key not in self._lines:
            self._lines[key] = sorted((p[0], *values) for p, values in _by_shape(rows, (name,)).items())
        line = self._lines[key]
        sizes = [size for size, *_ in line]
        if at in sizes or len(line) == 1:
            size, seconds, spread, clock = line[sizes.index(at) if at in sizes else 0]
            label: Label = "measured" if size == at else "assumed"
            return Reading(seconds * at / size, label, spread, clock or None)
        right = min(max(bisect(sizes, at), 1), len(line) - 1)
        (x0, t0, spread, clock), (x1, t1, *_) = line[right - 1], line[right]
        seconds = max(t0 + (t1 - t0) * (at - x0) / (x1 - x0), SMALLEST * line[0][1] if at < sizes[0] else 0.0)
        inside = sizes[0] / 8 <= at <= 8 * sizes[-1]
        return Reading(seconds, "interpolated" if inside else "assumed", spread, clock or None)

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
            exact = _by_shape(rows, names)
            self._cache[key] = _Surface(
                points=np.array([where(dict(zip(names, p, strict=True))) for p in exact]),
                excess=np.array(
                    [
                        math.log(max(t - floor_s, 0.1 * t) / roof(dict(zip(names, p, strict=True))))
                        for p, (t, _, _) in exact.items()
                    ]
                ),
                spread=np.array([spread for _, spread, _ in exact.values()]),
                clock=np.array([clock for _, _, clock in exact.values()]),
                exact=exact,
            )
        surface = self._cache[key]
        point = tuple(shape[x] for x in names)
        if point in surface.exact:
            seconds, spread, clock = surface.exact[point]
            return Reading(seconds, "measured", spread, clock or None)
        at = np.array(where(shape))
        distance = ((surface.points - at) ** 2).sum(axis=1)
        nearest = np.argsort(distance, kind="stable")[:NEIGHBOURS]
        weight = 1.0 / (distance[nearest] + 1e-9)
        excess = float((weight * surface.excess[nearest]).sum() / weight.sum())
        spread = float((weight * surface.spread[nearest]).sum() / weight.sum())
        low, high = surface.points.min(axis=0) - OUTSIDE, surface.points.max(axis=0) + OUTSIDE
        inside = bool(((at >= low) & (at <= high)).all()) and len(surface.exact) > 1
        clock = float((weight * surface.clock[nearest]).sum() / weight.sum())
        label: Label = "interpolated" if inside else "assumed"
        return Reading(floor_s + roof(shape) * math.exp(excess), label, spread, clock or None)
