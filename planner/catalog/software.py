"""Which fused kernels, attention and overlaps a framework of a given year had: the one home of software age."""

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Software:
    """Capabilities of one framework from one release on.

    Attributes:
        from_month: month of `from_year`, 1 to 12.
        attention: kernel family (unfused, flash1, flash2, flash3).
        fusions: operators that run as one kernel.
        dp_overlap: gradient exchange runs under the backward pass.
        gather_overlap: parameter gathers run under the forward pass.
        tp_overlap_frac: share of a tensor-parallel collective hidden under its own matmul.
        host_scale: host time per operator over that of eager PyTorch.
        optimizer_bytes_per_param: device-memory traffic of the optimizer step per owned parameter.
        gradient_bytes: bytes of an accumulated gradient.
        shard_wire_frac: share of the fabric that fully sharded exchanges reach, against plain collectives.
        shard_node_bytes_per_s: the most that a node takes in during them; 0 = no limit but the fabric.
    """

    framework: str
    from_year: int
    from_month: int
    attention: str
    fusions: frozenset[str]
    dp_overlap: bool
    gather_overlap: bool
    tp_overlap_frac: float
    host_scale: float
    optimizer_bytes_per_param: float
    gradient_bytes: int
    fsdp_prefetch: int
    shard_wire_frac: float
    shard_node_bytes_per_s: float
    evidence: str


@lru_cache(maxsize=1)
def releases() -> tuple[Software, ...]:
    """Every row of the packaged table, oldest first within a framework."""
    text = files("planner.catalog").joinpath("data/software.csv").read_text("utf-8")
    rows = []
    for r in csv.DictReader(text.splitlines()):
        rows.append(
            Software(
                framework=r["framework"],
                from_year=int(r["from_year"]),
                from_month=int(r["from_month"]),
                attention=r["attention"],
                fusions=frozenset(r["fusions"].split("|")),
                dp_overlap=r["dp_overlap"] == "yes",
                gather_overlap=r["gather_overlap"] == "yes",
                tp_overlap_frac=float(r["tp_overlap_frac"]),
                host_scale=float(r["host_scale"]),
                optimizer_bytes_per_param=float(r["optimizer_bytes_per_param"]),
                gradient_bytes=int(r["gradient_bytes"]),
                fsdp_prefetch=int(r["fsdp_prefetch"]),
                shard_wire_frac=float(r["shard_wire_frac"]),
                shard_node_bytes_per_s=float(r["shard_node_gbytes_per_s"] or 0.0) * 1e9,
                evidence=r["evidence"],
            )
        )
    return tuple(rows)


@lru_cache(maxsize=256)
def software(*, framework: str, year: int, month: int = 12) -> Software:
    """The newest row of `framework` not later than a release (the oldest row when all are later).

    Args:
        framework: a name of the table.
        year: year of the release.
        month: its month; without one, the last release of the year.

    Raises:
        ValueError: an unknown framework; the message lists the known ones.
    """
    rows = sorted((r for r in releases() if r.framework == framework.lower()), key=age)
    if not rows:
        known = ", ".join(sorted({r.framework for r in releases()}))
        raise ValueError(f"unknown framework {framework!r}; known: {known}")
    older = [r for r in rows if age(r) <= (year, month)]
    return older[-1] if older else rows[0]


def age(soft: Software) -> tuple[int, int]:
    """Year and month a row holds from."""
    return soft.from_year, soft.from_month
