"""Measured collectives: the fit of the packaged curves, and the judge of contract 5."""

import csv
import gzip
import hashlib
import io
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from planner import catalog
from planner.cost.collective import SIBLINGS, WIRE, collective_s
from planner.cost.types import Group, Network

Row = Mapping[str, str]
Z80 = 1.2815515655446004
NOT_CONFIG = {"id", "time_us", "algbw_gbs", "busbw_gbs", "notes"}
SLOW_FACTOR = 1.45  # a table this much slower than its fabric at large sizes is faulty, not noisy
LARGE_BYTES = 8e6


def packaged_rows() -> list[dict[str, str]]:
    """The public rows that travel with the package."""
    raw = files("planner.validate").joinpath("data/collectives.csv.gz").read_bytes()
    return list(csv.DictReader(gzip.decompress(raw).decode("utf-8").splitlines()))


def _number(row: Row, key: str) -> float:
    try:
        return float((row.get(key) or "").strip())
    except ValueError:
        return 0.0


def link_of(row: Row) -> str:
    """Scale-up link of a row."""
    text = (row.get("link") or "").lower()
    for key, value in (("nvlink", ""), ("infinity", "xgmi"), ("xgmi", "xgmi"), ("pcie", "pcie")):
        if key in text:
            found = re.search(r"nvlink\s*([1-5])", text)
            return value or (f"nvlink{found.group(1)}" if found else "nvlink4")
    try:
        return catalog.gpu(row.get("hardware") or "").scaleup_link
    except ValueError:
        return "pcie"


def network_of_row(row: Row) -> tuple[Network, Group, str]:
    """Network, group and operation of a row."""
    nodes, per_node = int(_number(row, "n_nodes") or 1), int(_number(row, "gpus_per_node") or 1)
    text = (row.get("link") or "").lower()
    nvl72 = "nvl72" in text
    in_node = row.get("scope") != "across_nodes"
    size = nodes * per_node
    domain = size if in_node else (72 if nvl72 else per_node)
    link = link_of(row)
    try:
        spec = catalog.gpu(row.get("hardware") or "")
        rate = spec.scaleup_bytes_per_s if spec.scaleup_link == link else 0.0
    except ValueError:
        rate = 0.0
    defaults = {"nvlink1": 80e9, "nvlink2": 150e9, "nvlink3": 300e9, "nvlink4": 450e9, "nvlink5": 900e9, "xgmi": 448e9}
    rate = rate or defaults.get(link, 63e9 if "pcie5" in text else 31.5e9)
    found = re.search(r"(\d+)\s*x\s*(\d+)\s*g", text)
    gbps = int(found.group(1)) * int(found.group(2)) if found else 400 * per_node
    kinds = (
        ("efa", "efa"),
        ("roce", "roce"),
        ("omni", "opa"),
        ("ethernet", "ethernet"),
        ("tcp", "ethernet"),
        ("ib", "ib"),
    )
    kind = next((v for k, v in kinds if k in text), "ib")
    network = Network(
        scaleup=link,
        scaleup_bytes_per_s=rate,
        scaleup_domain_gpus=domain,
        gpus_per_node=per_node,
        scaleout="none" if in_node else kind,
        node_bytes_per_s=0.0 if in_node else gbps / 8 * 1e9,
        nic_count=int(found.group(1)) if found else per_node,
    )
    return network, Group(size=size, per_domain=min(size, domain)), row.get("collective") or ""


def _wire(*, op: str, nbytes: Any, ranks: int) -> Any:
    return nbytes * WIRE.get(op, 1.0) * ((ranks - 1) / ranks if op in WIRE else 1.0)


def fit_collectives(rows: Sequence[Row]) -> str:
    """The packaged table of in-domain curves: one row a link, operation and rank count, over healthy tables."""
    from scipy.optimize import least_squares

    cells: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("healthy") == "yes" and row.get("scope") == "in_node" and _number(row, "time_us") > 0:
            ranks = int(_number(row, "n_nodes") * _number(row, "gpus_per_node"))
            if ranks > 1 and row.get("collective") in SIBLINGS and _number(row, "bytes") > 0 and ranks <= 8:
                link = link_of(row)
                speed = "5" if "pcie5" in (row.get("link") or "").lower() else ""
                cells[(link + speed if link == "pcie" else link, row["collective"], ranks)].append(row)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("link", "op", "ranks", "a_us", "b_gbs", "c_us", "n_tables", "spread", "source"))
    for (link, op, ranks), members in sorted(cells.items()):
        tables = {r["table_id"] for r in members}
        if len(members) < 5:
            continue
        v = _wire(op=op, nbytes=np.array([_number(r, "bytes") for r in members]), ranks=ranks)
        t = np.array([_number(r, "time_us") for r in members])

        def predict(p: Any, v: Any = v) -> Any:
            a, b, c = np.exp(p)
            return a + v / b + c * np.sqrt(v)

        fit = least_squares(
            lambda p, t=t, predict=predict: np.log(predict(p)) - np.log(t),
            np.log([10.0, 2e5, 0.01]),
            loss="soft_l1",
            f_scale=0.05,
        )
        a, b, c = np.exp(fit.x)
        spread = float(np.median(np.abs(np.log(predict(fit.x) / t)))) * 1.5
        names = ", ".join(sorted({r["source"] for r in members}))
        writer.writerow(
            (link, op, ranks, f"{a:.4g}", f"{b / 1e3:.4g}", f"{c:.4g}", len(tables), f"{spread:.3f}", names)
        )
    return out.getvalue()


def _answer(index: int, row: Row) -> dict[str, Any]:
    settings = "\x1f".join(f"{c}={row.get(c) or ''}" for c in sorted(c for c in row if c and c not in NOT_CONFIG))
    out: dict[str, Any] = {
        "row": index,
        "id": row.get("id") or None,
        "source": row.get("source") or "",
        "config": hashlib.sha256(settings.encode()).hexdigest()[:12],
        "group": row.get("table_id") or "",
        "metric": "time_s",
        "unit": "s",
        "measured": None,
        "skipped": None,
        "zero_shot": None,
        "site": None,
        "baseline": None,
        "fits": None,
        "memory_over_gb": None,
        "assumed": [],
        "flags": [],
    }
    network, group, op = network_of_row(row)
    if op not in SIBLINGS:
        return out | {"skipped": f"setting_missing: unknown collective {op!r}"}
    nbytes, time_us = _number(row, "bytes"), _number(row, "time_us")
    if nbytes <= 0 or time_us <= 0 or group.size < 2:
        return out | {"skipped": "setting_missing: no message size or time"}
    estimate = collective_s(op=op, payload_bytes=nbytes, group=group, network=network)
    value, sigma = estimate.seconds, max(0.05, estimate.spread_frac)
    out["measured"] = time_us * 1e-6
    out["zero_shot"] = {
        "predicted": value,
        "p10": value * math.exp(-Z80 * sigma),
        "p90": value * math.exp(Z80 * sigma),
        "error_pct": 100 * (value / out["measured"] - 1),
    }
    return out


def validate_collectives(rows: Sequence[Row] | None = None) -> list[dict[str, Any]]:
    """One answer row for each measured collective, in file order; slow tables are flagged with their factor."""
    data = rows if rows is not None else packaged_rows()
    answers = [_answer(i, r) for i, r in enumerate(data)]
    factors: dict[str, list[float]] = defaultdict(list)
    for answer, row in zip(answers, data, strict=True):
        if answer["zero_shot"] and _number(row, "bytes") >= LARGE_BYTES:
            factors[answer["group"]].append(answer["measured"] / answer["zero_shot"]["predicted"])
    for answer in answers:
        factor = statistics.median(factors[answer["group"]]) if factors.get(answer["group"]) else 1.0
        if factor > SLOW_FACTOR:
            answer["flags"] = [f"slower_than_fabric: factor {factor:.2f}"]
    return answers


@lru_cache(maxsize=1)
def shipped_table() -> str:
    """The packaged curves, as text."""
    return files("planner.cost").joinpath("data/collective_fits.csv").read_text("utf-8")
