"""Measured collectives as rows: the packaged table, and what a row says of its network, size and time."""

import csv
import gzip
import math
import re
from collections.abc import Mapping
from importlib.resources import files

from planner import catalog
from planner.cost.collective import LINK_BYTES_PER_S, RING_ONLY
from planner.cost.types import Group, Network

Row = Mapping[str, str]
JUDGED_BYTES = (65536, 4 * 2**30)


def packaged_rows() -> list[dict[str, str]]:
    """The public rows that travel with the package."""
    raw = files("planner.validate").joinpath("data/collectives.csv.gz").read_bytes()
    return list(csv.DictReader(gzip.decompress(raw).decode("utf-8").splitlines()))


def number_of(row: Row, key: str) -> float:
    """A finite number of a column, 0 where there is none."""
    try:
        value = float((row.get(key) or "").strip())
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


def payload_and_time(row: Row) -> tuple[float, float]:
    """Bytes and seconds of a row; one of them is derived from the bandwidth where it is blank. 0 where unknown."""
    nbytes, seconds = number_of(row, "bytes"), number_of(row, "time_us") * 1e-6
    rate = number_of(row, "algbw_gbs") * 1e9
    if nbytes > 0 and seconds <= 0 and rate > 0:
        seconds = nbytes / rate
    elif seconds > 0 and nbytes <= 0 and rate > 0:
        nbytes = seconds * rate
    return nbytes, seconds


def link_of(row: Row) -> str:
    """Scale-up link of a row."""
    text = (row.get("link") or "").lower()
    ring = RING_ONLY if "nvls off" in text or "ring" in text.split() else ""
    if "nvlink" in text:
        found = re.search(r"nvlink\s*([1-5])", text)
        if found:
            return f"nvlink{found.group(1)}{ring}"
    if "infinity" in text or "xgmi" in text:
        return "xgmi"
    if "pcie" in text:
        return "pcie"
    try:
        return catalog.gpu(row.get("hardware") or "").scaleup_link + ring
    except (ValueError, KeyError):
        return f"nvlink4{ring}" if "nvlink" in text or "nvl" in text else "pcie"


def _link_rate(*, row: Row, link: str) -> float:
    base = link.removesuffix(RING_ONLY)
    text = (row.get("link") or "").lower()
    try:
        spec = catalog.gpu(row.get("hardware") or "")
    except (ValueError, KeyError):
        spec = None
    if base == "pcie" and re.search(r"pcie\s*[45]", text):
        return LINK_BYTES_PER_S["pcie5" if re.search(r"pcie\s*5", text) else "pcie"]
    if spec is not None and spec.scaleup_link == base and spec.scaleup_bytes_per_s > 0:
        return float(spec.scaleup_bytes_per_s)
    return LINK_BYTES_PER_S.get(base, LINK_BYTES_PER_S["pcie"])


def _fabric_kind(text: str) -> str:
    kinds = {"efa": "efa", "roce": "roce", "omni": "opa", "tcpx": "tcpx", "ethernet": "ethernet", "tcp": "ethernet"}
    return next((kind for key, kind in kinds.items() if key in text), "ib")


def network_of_row(row: Row) -> tuple[Network, Group, str]:
    """Network, group and operation of a row."""
    nodes, per_node = int(number_of(row, "n_nodes") or 1), int(number_of(row, "gpus_per_node") or 1)
    text = (row.get("link") or "").lower()
    across = row.get("scope") == "across_nodes" or (not row.get("scope") and nodes > 1 and "nvl72" not in text)
    size = max(1, nodes * per_node)
    members = size if not across else per_node
    if across and "nvl72" in text:
        members = math.ceil(size / math.ceil(size / 72))
    link = link_of(row)
    found = re.search(r"(\d+)\s*x\s*(\d+)\s*g", text)
    nics = re.search(r"(\d+)\s*g\b\s*x\s*(\d+)", text)
    count, gbps = (int(found.group(1)), int(found.group(2))) if found else (per_node, 400)
    if nics and not found:
        count, gbps = int(nics.group(2)), int(nics.group(1))
    network = Network(
        scaleup=link,
        scaleup_bytes_per_s=_link_rate(row=row, link=link),
        scaleup_domain_gpus=members,
        gpus_per_node=max(1, per_node),
        scaleout=_fabric_kind(text) if across else "none",
        node_bytes_per_s=count * gbps / 8 * 1e9 if across else 0.0,
        nic_count=count,
        gpu=row.get("hardware") or "",
    )
    return network, Group(size=size, per_domain=members), row.get("collective") or ""
