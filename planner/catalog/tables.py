"""Reading the packaged CSV tables: plain rows, blank cells as None."""

import csv
from functools import lru_cache
from importlib.resources import files


@lru_cache(maxsize=32)
def rows(name: str) -> tuple[dict[str, str], ...]:
    """All rows of `data/<name>`."""
    text = files("planner.catalog").joinpath(f"data/{name}").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def number(row: dict[str, str], key: str, *, default: float = 0.0) -> float:
    """A numeric cell, `default` when blank."""
    text = (row.get(key) or "").strip()
    return float(text) if text else default
