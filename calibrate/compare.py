"""Two profiles against each other: the same sample in both, and how far apart they lie."""

import json
from dataclasses import dataclass
from statistics import median
from typing import Any

from planner.profile.schema import Profile, Sample

Key = tuple[Any, ...]
REPEATABILITY = {
    "matmul": 0.05, "attention": 0.05, "memory": 0.08, "block": 0.05, "optimizer": 0.08, "dispatch": 0.25,
    "graph": 0.15, "hostlink": 0.2, "collective": 0.15, "compile": 0.4,
}  # fmt: skip
DEFAULT_REPEATABILITY = 0.2


@dataclass(frozen=True, kw_only=True)
class Row:
    """The samples of one kind that both profiles hold."""

    kind: str
    count: int
    median_ratio: float
    worst_ratio: float
    within: int
    allowed: float


def key(sample: Sample) -> Key:
    """What must agree for two samples to be the same measurement (its time and session apart)."""
    shape = json.dumps({k: v for k, v in sample.shape.items() if not k.endswith("_bytes")}, sort_keys=True)
    return (sample.kind, sample.op, shape, sample.dtype, sample.layout, sample.phase, sample.state, sample.method)


def _by_key(profile: Profile) -> dict[Key, float]:
    times: dict[Key, list[float]] = {}
    for s in profile.samples:
        if s.p50_s > 0:
            times.setdefault(key(s), []).append(s.p50_s)
    return {k: median(v) for k, v in times.items()}


def compare(*, first: Profile, second: Profile) -> list[Row]:
    """One row a kind: ratio second to first, and how many lie within the allowed repeatability of that kind."""
    a, b = _by_key(first), _by_key(second)
    ratios: dict[str, list[float]] = {}
    for k in a.keys() & b.keys():
        ratios.setdefault(str(k[0]), []).append(b[k] / a[k])
    rows = []
    for kind, values in sorted(ratios.items()):
        allowed = REPEATABILITY.get(kind, DEFAULT_REPEATABILITY)
        off = [max(v, 1 / v) - 1 for v in values]
        rows.append(Row(kind=kind, count=len(values), median_ratio=median(values), allowed=allowed,
                        worst_ratio=max(values, key=lambda v: max(v, 1 / v)),
                        within=sum(o <= allowed for o in off)))  # fmt: skip
    return rows
