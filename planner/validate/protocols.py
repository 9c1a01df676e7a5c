"""The fit of protocol steps: what healthy public tables cost over the smooth curves, shared between tables."""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from planner.cost.collective import (
    ANCHORS,
    IN_SWITCH,
    IN_SWITCH_OP,
    LINK_BYTES_PER_S,
    OPS,
    Curves,
    anchor_weights,
    curve_link,
    predict,
    switched,
)
from planner.cost.protocol import CLASSES, HIGH, LOW, NO_STEPS, chunks
from planner.validate.collective_rows import JUDGED_BYTES, network_of_row, payload_and_time

Row = Mapping[str, str]
Cell = tuple[str, str, int]
# One standard deviation of the step that all links of a family share, and of a link's own at a number of ranks.
SHARED_SIGMA = 0.10
OWN_SIGMA = 0.15
ROW_SIGMA = 0.07
ROWS_OF_A_TABLE = 15.0
ROBUST = 1.5
OCTAVES = range(LOW, HIGH + 1)


def _family(link: str) -> str:
    return "pcie" if link.startswith("pcie") else "fabric"


def _place(*, cell: Cell, octave: int) -> tuple[tuple[Any, ...], ...]:
    link, kind, ranks = cell
    return ("shared", _family(link), kind, octave), ("own", link, kind, ranks, octave)


def fit_steps(*, rows: Sequence[Row], curves: Curves) -> str:
    """The packaged table of steps: a ridge fit of log(measured / curve) on octaves of the chunk, healthy tables only.

    A step is the sum of one that a family of links shares and one of the link at this number of ranks, both pulled to
    zero, so that a combination nobody measured takes only what its family shows.
    """
    import numpy as np

    samples, of_table = [], defaultdict[str, int](int)
    tables_of: dict[Cell, set[str]] = defaultdict(set)
    for row in rows:
        network, group, op = network_of_row(row)
        nbytes, seconds = payload_and_time(row)
        usable = row.get("healthy") == "yes" and row.get("scope") == "in_node" and op in OPS[:4]
        if not usable or nbytes <= 0 or seconds <= 0 or group.size < 2:
            continue
        link, ring_only = curve_link(link=network.scaleup, link_bytes_per_s=network.scaleup_bytes_per_s)
        kind = IN_SWITCH_OP if switched(op=op, size=group.size, link=link, ring_only=ring_only) else op
        weights = [(ANCHORS[-1], 1.0)] if kind == IN_SWITCH_OP else anchor_weights(group.size)
        ranks = max(weights, key=lambda a: a[1])[0]
        smooth = predict(
            op=op, payload_bytes=nbytes, group=group, network=network, curves=curves, fabrics={}, steps=NO_STEPS
        ).seconds
        octave = min(max(math.log2(nbytes / chunks(kind=kind, size=group.size)), LOW), HIGH)
        table = row.get("table_id") or ""
        of_table[table] += 1
        cell = (link, CLASSES[kind], ranks)
        tables_of[cell].add(table)
        judged = JUDGED_BYTES[0] <= nbytes <= JUDGED_BYTES[1]
        samples.append((cell, octave, math.log(seconds / smooth), table, 1.0 if judged else 0.3))
    index: dict[tuple[Any, ...], int] = {}
    entries: list[tuple[int, int, float]] = []
    for j, (cell, octave, _, _, _) in enumerate(samples):
        low = math.floor(octave)
        for knot, share in ((low, 1 - octave + low), (low + 1, octave - low)):
            if share > 0:
                entries.extend((j, index.setdefault(p, len(index)), share) for p in _place(cell=cell, octave=knot))
    design = np.zeros((len(samples), len(index)))
    for j, k, share in entries:
        design[j, k] = share
    y = np.array([s[2] for s in samples])
    weight = np.array([s[4] * min(1.0, ROWS_OF_A_TABLE / of_table[s[3]]) for s in samples])
    sigma = np.array([SHARED_SIGMA if key[0] == "shared" else OWN_SIGMA for key in index])
    u = np.zeros(len(index))
    for _ in range(8):
        pull = weight / ROW_SIGMA**2 / np.sqrt(1 + ((design @ u - y) / ROW_SIGMA / ROBUST) ** 2)
        normal = design.T @ (design * pull[:, None]) + np.diag(1 / sigma**2)
        u = np.linalg.solve(normal, design.T @ (pull * y))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("link", "class", "ranks", "n_tables", *(f"f{k}" for k in OCTAVES)))
    links = sorted(set(LINK_BYTES_PER_S) - {"nvlink1"})
    cells = [(link, kind, n) for link in links for kind in ("ring", "exchange") for n in ANCHORS]
    cells += [(link, "switch", ANCHORS[-1]) for link in sorted(IN_SWITCH)]
    for cell in cells:
        values = [sum(u[index[p]] for p in _place(cell=cell, octave=k) if p in index) for k in OCTAVES]
        known = [i for i, k in enumerate(OCTAVES) if any(p in index for p in _place(cell=cell, octave=k))]
        # Beyond the sizes that were measured the last figure stays.
        ends = [values[min(max(i, known[0]), known[-1])] if known else 0.0 for i in range(len(values))]
        writer.writerow((*cell, len(tables_of[cell]), *(f"{v:.4f}" for v in ends)))
    return out.getvalue()


@lru_cache(maxsize=1)
def shipped_step_table() -> str:
    """The packaged steps, as text."""
    return files("planner.cost").joinpath("data/collective_steps.csv").read_text("utf-8")
