"""One entry for every kind of measured rows: reads the file, picks the judge, returns the document of contract 5."""

import csv
import gzip
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from planner.profile.site import load_site

MAX_BYTES = 200_000_000
# Each judge takes (rows or None, profile name or None) and returns answer rows; runs have their own entry.
JUDGES = {
    "memory": "planner.validate.memory:validate_memory",
    "steps": "planner.validate.steps:validate_steps",
    "kernels": "planner.validate.kernels:validate_kernels",
    "collectives": "planner.validate.collectives:validate_collectives",
    "gains": "planner.validate.gains:validate_gains",
    "outcomes": "planner.validate.outcomes:validate_outcomes",
}
KINDS = ("runs", *JUDGES)


class UnreadableRowsError(ValueError):
    """A file that is not a table of rows."""


def read_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file, plain or gzip.

    Raises:
        UnreadableRowsError: missing, too large, or without a header.
    """
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise UnreadableRowsError(f"cannot read {path}: {error}") from error
    if len(raw) > MAX_BYTES:
        raise UnreadableRowsError(f"{path} has {len(raw)} bytes; at most {MAX_BYTES}")
    rows = list(csv.DictReader(raw.decode("utf-8", errors="replace").splitlines()))
    if not rows:
        raise UnreadableRowsError(f"{path} holds no rows")
    return rows


def validate_kind(
    *,
    kind: str,
    path: Path | None,
    engine: str,
    group: str | None,
    profile: str | None = None,
    site: Path | None = None,
) -> dict[str, Any]:
    """Judge packaged rows, or those of a file; `site` names the constants of the `site` column of runs.

    Raises:
        UnreadableRowsError: the file cannot be read or lacks a needed column, or a site for rows other than runs.
        SiteError: the site file cannot be used.
    """
    if kind not in KINDS:
        raise UnreadableRowsError(f"unknown kind {kind!r}; known: {', '.join(KINDS)}")
    if site is not None and kind != "runs":
        raise UnreadableRowsError(f"--site is for --runs: its constants say nothing of {kind}")
    rows = read_rows(path) if path else None
    if kind == "runs":
        from planner.validate.runs import validate_runs

        _need(rows, ("metric", "measured", "gpu"), path)
        return validate_runs(rows=rows, engine=engine, group=group, site=load_site(site) if site else None)
    module, name = JUDGES[kind].split(":")
    answers = list(getattr(import_module(module), name)(rows=rows, profile=profile))
    if group:
        answers = [a for a in answers if group.lower() in a["group"].lower()]
    from planner.validate.summary import summarise

    document = summarise(
        kind=kind, engine=engine, profile=profile or "catalog", answers=answers, rows=[{} for _ in answers]
    )
    if kind == "gains":
        from planner.validate.gains import gain_scores

        document["summary"]["gains"] = gain_scores(answers)
    if kind == "outcomes":
        from planner.validate.outcomes import outcome_scores

        document["summary"]["outcomes"] = outcome_scores(answers)
    return document


def _need(rows: Sequence[Mapping[str, str]] | None, columns: tuple[str, ...], path: Path | None) -> None:
    if rows is None:
        return
    missing = [c for c in columns if c not in rows[0]]
    if missing:
        raise UnreadableRowsError(f"{path} lacks the columns {', '.join(missing)}")
