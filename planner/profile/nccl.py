"""Reads what nccl-tests print (text tables of every version, or the JSON of newer ones) as samples of kind collective.

Logs in the wild hold several tables, words of the launcher in front of each row, NCCL's own messages in between,
columns that come and go between versions (`redop`, `root`, `error` or `#wrong`, time stamps), `N/A` values, and end
anywhere.
Times are microseconds; sizes are those that nccl-tests print (the full buffer for gather and scatter).
"""

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TESTS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast", "alltoallv": "all_to_all_v", "alltoall": "all_to_all", "sendrecv": "send_recv",
    "reduce": "reduce", "gather": "gather", "scatter": "scatter", "hypercube": "hypercube",
}  # fmt: skip
TYPES = r"u?int(?:8|32|64)|half|float|double|bfloat16|f8e\dm\d|fp8e\dm\d|fp8_e\dm\d"
# Anything may stand before a row (launcher tags, time stamps); a row is size, count, type and figures.
ROW = re.compile(rf"(?:^|[\s:>\]|])(\d+)\s+(\d+)\s+({TYPES})\b(.*)$")
CUT_ROW = re.compile(r"(?:^|[\s:>\]|])\d+(?:\s+\d+)?(?:\s+[a-z]\w*)?\s*$")
HEADER = re.compile(r"#\s+size\s+count\s+type\b(.*)$")
TEST = re.compile(r"\b(" + "|".join(sorted(TESTS, key=len, reverse=True)) + r")_perf(?:_mpi)?\b")
RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)$")
OTHER_RANK = re.compile(r"#\s+Rank\s+(\d+)\b")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
MAX_BYTES = 20_000_000


class NcclError(ValueError):
    """Output in which no measurement is found, and why."""


@dataclass
class Table:
    """What the lines above a table say of it."""

    op: str | None = None
    ranks: dict[str, set[int]] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    device: str = ""
    root: bool | None = None
    line: int = 0
    rows: list["Row"] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One printed row: microseconds out of place and in place, None where not printed."""

    line: int
    nbytes: int
    dtype: str
    redop: str
    out_us: float | None
    in_us: float | None
    bus_over_alg: float | None


@dataclass(frozen=True)
class Log:
    """A log as samples, with the device it names and every line that could not be used."""

    samples: list[dict[str, Any]]
    device: str
    notes: list[str]


def _sample(
    *, op: str, nbytes: int, dtype: str, seconds: float, ranks: int, nodes: int, in_place: bool, session: int
) -> dict[str, Any]:
    return {
        "kind": "collective", "op": op, "shape": {"bytes": nbytes, "ranks": ranks, "nodes": nodes}, "dtype": dtype,
        "layout": "in_place" if in_place else "out_of_place", "phase": "step", "state": "hot", "method": "wall", "n": 1,
        "p10_s": seconds, "p50_s": seconds, "p90_s": seconds, "clock_mhz": None, "power_w": None, "temp_c": None,
        "session": session,
    }  # fmt: skip


def _figures(words: list[str]) -> list[float | None]:
    """Numbers, None for N/A and the like; ends at the first word that is neither (a time stamp)."""
    out: list[float | None] = []
    for word in words:
        if NUMBER.fullmatch(word):
            out.append(float(word))
        elif word.upper() in {"N/A", "NA", "NAN", "-NAN", "INF", "-"}:
            out.append(None)
        else:
            break
    return out


def _row(*, line: int, match: re.Match[str], root: bool | None) -> Row:
    """One row.

    Raises:
        NcclError: fewer figures than time, algbw and busbw.
    """
    words = match[4].split()
    redop = words.pop(0) if words and words[0][0].isalpha() and not words[0].upper().startswith("N/A") else ""
    values = _figures(words)
    if root or (root is None and len(values) % 4 == 1):
        values = values[1:]
    if len(values) < 3:
        raise NcclError(f"line {line}: the row of {match[1]} bytes is cut off or holds no time")
    out_us, algbw, busbw = values[0], values[1], values[2]
    in_us = values[4] if len(values) >= 7 else None
    ratio = busbw / algbw if algbw is not None and busbw is not None and algbw >= 1 else None
    return Row(line, int(match[1]), match[3], redop, out_us, in_us, ratio)


def _tables(text: str) -> Iterator[Table | str]:
    """Tables of a log in order; a string is a note on a line that could not be used."""
    table, started = Table(line=1), False
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        named = TEST.search(line)
        opens = "Using devices" in line or "Collective test starting" in line or "# nThread" in line
        if (opens or named) and started and "concluded" not in line:
            yield table
            # A launcher script may name the test once above several runs.
            table, started = Table(op=table.op, line=number), False
        if named and "concluded" not in line:
            table.op = TESTS[named[1]]
        rank = RANK.search(line)
        if rank:
            table.ranks.setdefault(rank[2] or "0", set()).add(int(rank[1]))
            table.hosts[rank[3]] = None
            table.device = table.device or rank[4].strip()
        elif unlike := OTHER_RANK.search(line):
            table.ranks.setdefault("0", set()).add(int(unlike[1]))
        header = HEADER.search(line)
        if header:
            if "cputime" in header[1]:
                raise NcclError(f"line {number}: times of the processor (-C 1), not of the collective")
            table.root = "root" in header[1].split()
        if line.lstrip().startswith("#") or header:
            continue
        match = ROW.search(line)
        if match:
            started = True
            try:
                table.rows.append(_row(line=number, match=match, root=table.root))
            except NcclError as error:
                yield str(error)
        elif number == len(lines) and CUT_ROW.search(line) and table.rows:
            yield f"line {number}: the last row is cut off"
    if table.rows or table.ranks:
        yield table


def _ratio(table: Table) -> float | None:
    """Bus over algorithm bandwidth of the large rows: it tells operation and ranks apart."""
    ratios = [r.bus_over_alg for r in table.rows if r.bus_over_alg is not None]
    return statistics.median(ratios[-5:]) if ratios else None


def _operation(table: Table) -> str:
    if table.op:
        return table.op
    ratio, redops = _ratio(table), {r.redop for r in table.rows}
    if ratio is not None and ratio > 1.05 and redops - {"", "none"}:
        return "all_reduce"
    raise NcclError(
        f"line {table.line}: the output does not name the test of this table (all_reduce_perf, ...): give --op"
    )


def _rank_count(table: Table, op: str) -> int:
    """Ranks of a communicator: the largest group of the devices listed, else what the bandwidths imply."""
    if table.ranks:
        return max(map(len, table.ranks.values()))
    ratio = _ratio(table)
    if ratio is not None and op in {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}:
        share = 1 - ratio / (2 if op == "all_reduce" else 1)
        implied = 1 / share if share > 0.02 else 0.0
        if implied > 1.5 and abs(implied - round(implied)) < 0.04 * implied:
            return round(implied)
    raise NcclError(f"line {table.line}: the output lists no ranks ('# Rank 0 ...'): give --ranks")


def _table_samples(
    *, table: Table, op: str | None, ranks: int | None, nodes: int | None, session: int
) -> list[dict[str, Any]]:
    name = op or _operation(table)
    count = ranks or _rank_count(table, name)
    hosts = nodes or max(1, len(table.hosts))
    out = []
    for row in table.rows:
        for micros, in_place in ((row.out_us, False), (row.in_us, True)):
            if micros is not None and micros > 0 and row.nbytes > 0:
                out.append(_sample(op=name, nbytes=row.nbytes, dtype=row.dtype, seconds=micros * 1e-6, ranks=count,
                                   nodes=min(hosts, count), in_place=in_place, session=session))  # fmt: skip
    return out


def _json_log(data: dict[str, Any], *, op: str | None, ranks: int | None, nodes: int | None, session: int) -> Log:
    config = data.get("config") if isinstance(data.get("config"), dict) else {}
    devices = [d for d in (config or {}).get("devices") or data.get("devices") or [] if isinstance(d, dict)]
    groups = Counter(str(d.get("group", 0)) for d in devices)
    found = (
        ranks or (max(groups.values()) if groups else None) or data.get("ranks") or (config or {}).get("total_ranks")
    )
    if isinstance(found, list):
        found = len(found)
    if not isinstance(found, int) or found < 1:
        raise NcclError("the JSON gives no number of ranks: give --ranks")
    hosts = nodes or len({d.get("hostname") for d in devices}) or int(data.get("nodes") or 1)
    named = TEST.search(json.dumps({k: v for k, v in data.items() if k != "results"}))
    name = op or (TESTS[named[1]] if named else None)
    if name is None:
        raise NcclError("the JSON does not name its test (all_reduce_perf, ...): give --op")
    samples, notes = [], []
    for index, row in enumerate(data.get("results") or []):
        for key, in_place in (("out_of_place", False), ("in_place", True)):
            part = row.get(key)
            time_us = part.get("time") if isinstance(part, dict) else None
            if isinstance(part, dict) and "cpu_time" in part:
                raise NcclError("times of the processor (-C 1), not of the collective")
            if isinstance(time_us, int | float) and time_us > 0 and int(row["size"]) > 0:
                samples.append(_sample(op=name, nbytes=int(row["size"]), dtype=str(row.get("type", "")),
                                       seconds=float(time_us) * 1e-6, ranks=found, nodes=min(hosts, found),
                                       in_place=in_place, session=session))  # fmt: skip
            elif part is not None and time_us is None:
                notes.append(f"result {index}: no time {key.replace('_', ' ')}")
    device = str(devices[0].get("device_info", "")) if devices else ""
    return Log(samples, device, notes)


def read_nccl(
    text: str, *, op: str | None = None, ranks: int | None = None, nodes: int | None = None, session: int = 1
) -> Log:
    """Samples, device and notes of a log; what is given overrides what the log says.

    Raises:
        NcclError: no measurement found, or the operation or the number of ranks is not in the output.
    """
    if len(text) > MAX_BYTES:
        raise NcclError(f"more than {MAX_BYTES} characters")
    if text.lstrip().startswith("{"):
        try:
            log = _json_log(json.loads(text), op=op, ranks=ranks, nodes=nodes, session=session)
        except json.JSONDecodeError as error:
            raise NcclError(f"line {error.lineno}: not the JSON of nccl-tests: {error.msg}") from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, NcclError):
                raise
            raise NcclError(f"not the JSON of nccl-tests: {error!r}") from error
        if not log.samples:
            raise NcclError("no row of measurements found")
        return log
    samples: list[dict[str, Any]] = []
    notes, device = [], ""
    for found in _tables(text):
        if isinstance(found, str):
            notes.append(found)
        elif not found.rows:
            notes.append(f"line {found.line}: a table without rows")
        else:
            samples += _table_samples(table=found, op=op, ranks=ranks, nodes=nodes, session=session)
            device = device or found.device
    if not samples:
        raise NcclError("; ".join(["no row of measurements and no list of ranks found", *notes[:3]]))
    return Log(samples, device, notes)


def parse_nccl(text: str, *, op: str | None = None, ranks: int | None = None, session: int = 1) -> list[dict[str, Any]]:
    """The samples of `read_nccl`.

    Raises:
        NcclError: as there.
    """
    return read_nccl(text, op=op, ranks=ranks, session=session).samples
