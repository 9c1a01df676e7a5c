"""Reads what nccl-tests print (text table, or JSON of newer versions) as samples of kind collective."""

import json
import re
from typing import Any

TESTS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "alltoall": "all_to_all", "sendrecv": "send_recv", "reduce": "reduce",
}  # fmt: skip
ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\S+)\s+(-?\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+\S+(.*)$")
RANK = re.compile(r"^#\s+Rank\s+\d+", re.MULTILINE)
HOST = re.compile(r"^#\s+Rank\s+\d+.*\son\s+(\S+)\s+device", re.MULTILINE)
MAX_BYTES = 20_000_000


class NcclError(ValueError):
    """Output in which no measurement is found, and why."""


def _sample(
    *, op: str, nbytes: int, dtype: str, seconds: float, ranks: int, nodes: int, in_place: bool, session: int
) -> dict[str, Any]:
    return {
        "kind": "collective", "op": op, "shape": {"bytes": nbytes, "ranks": ranks, "nodes": nodes}, "dtype": dtype,
        "layout": "in_place" if in_place else "out_of_place", "phase": "step", "state": "hot", "method": "wall", "n": 1,
        "p10_s": seconds, "p50_s": seconds, "p90_s": seconds, "clock_mhz": None, "power_w": None, "temp_c": None,
        "session": session,
    }  # fmt: skip


def _operation(text: str, given: str | None) -> str:
    if given:
        return given
    for name in sorted(TESTS, key=len, reverse=True):
        if f"{name}_perf" in text:
            return TESTS[name]
    raise NcclError("the output does not name its test (all_reduce_perf, ...): give --op")


def _table(text: str, *, op: str | None, ranks: int | None, session: int) -> list[dict[str, Any]]:
    found = ranks or len(RANK.findall(text))
    if not found:
        raise NcclError("the output lists no ranks ('# Rank 0 ...'): give --ranks")
    nodes = max(1, len(set(HOST.findall(text))))
    name, samples = _operation(text, op), []
    for line in text.splitlines():
        match = ROW.match(line)
        if not match:
            continue
        nbytes, dtype = int(match[1]), match[3]
        runs = [(match[6], False)]
        rest = match[9].split()
        if len(rest) >= 3:
            runs.append((rest[0], True))
        for micros, in_place in runs:
            if float(micros) > 0 and nbytes > 0:
                samples.append(_sample(op=name, nbytes=nbytes, dtype=dtype, seconds=float(micros) * 1e-6, ranks=found,
                                       nodes=nodes, in_place=in_place, session=session))  # fmt: skip
    return samples


def _json(data: dict[str, Any], *, op: str | None, ranks: int | None, session: int) -> list[dict[str, Any]]:
    config = data.get("config") if isinstance(data.get("config"), dict) else {}
    found = ranks or data.get("ranks") or (config or {}).get("total_ranks")
    if isinstance(found, list):
        found = len(found)
    if not isinstance(found, int) or found < 1:
        raise NcclError("the JSON gives no number of ranks: give --ranks")
    name, samples = _operation(json.dumps(data), op), []
    for row in data.get("results") or []:
        for key, in_place in (("out_of_place", False), ("in_place", True)):
            part = row.get(key)
            if isinstance(part, dict) and float(part.get("time") or 0) > 0:
                samples.append(_sample(op=name, nbytes=int(row["size"]), dtype=str(row.get("type", "")),
                                       seconds=float(part["time"]) * 1e-6, ranks=found,
                                       nodes=int(data.get("nodes") or 1), in_place=in_place,
                                       session=session))  # fmt: skip
    return samples


def parse_nccl(text: str, *, op: str | None = None, ranks: int | None = None, session: int = 1) -> list[dict[str, Any]]:
    """Samples of kind collective from the text or JSON output of nccl-tests (times there are microseconds).

    Raises:
        NcclError: no measurement found, or the operation or the number of ranks is not in the output.
    """
    if len(text) > MAX_BYTES:
        raise NcclError(f"more than {MAX_BYTES} characters")
    if text.lstrip().startswith("{"):
        try:
            samples = _json(json.loads(text), op=op, ranks=ranks, session=session)
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise NcclError(f"not the JSON of nccl-tests: {error}") from error
    else:
        samples = _table(text, op=op, ranks=ranks, session=session)
    if not samples:
        raise NcclError("no row of measurements found")
    return samples
