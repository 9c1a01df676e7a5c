"""Reading the packaged CSV tables: plain rows, blank cells as None; looking a row up by any of its names."""

import csv
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files


@lru_cache(maxsize=32)
def rows(name: str) -> tuple[dict[str, str], ...]:
    """All rows of `data/<name>`."""
    text = files("planner.catalog").joinpath(f"data/{name}").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def number(row: Mapping[str, str], key: str, *, default: float = 0.0) -> float:
    """A numeric cell, `default` when blank."""
    text = (row.get(key) or "").strip()
    return float(text) if text else default


def aliases_of(row: Mapping[str, str]) -> tuple[str, ...]:
    """Other names of a row: the `aliases` cell, split at bars."""
    return tuple(a.strip() for a in (row.get("aliases") or "").split("|") if a.strip())


def name_key(name: str) -> str:
    """The form in which names are compared: case, blanks, dashes and underscores do not count.

    Points do count, and a digit never meets another by dropping a separator (`gpt-31.3b` is not `gpt3-1.3b`).
    """
    text = name.strip().lower()
    out = []
    for i, ch in enumerate(text):
        if ch not in " -_":
            out.append(ch)
        elif 0 < i < len(text) - 1 and text[i - 1].isdigit() and text[i + 1].isdigit():
            out.append("-")
    return "".join(out)


def index(entries: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, str]:
    """Catalogue name by the key of each of its names.

    Raises:
        ValueError: two entries share a name; the packaged table is wrong.
    """
    out: dict[str, str] = {}
    for name, others in entries:
        for text in (name, *others):
            if out.setdefault(name_key(text), name) != name:
                raise ValueError(f"{text!r} names both {out[name_key(text)]!r} and {name!r}")
    return out
