"""What a stack's public recipe of a run switches on, where the table of results does not print it."""

import csv
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files

RECOMPUTE = "recompute:"
KEYS = ("framework", "model", "gpu", "precision", "ep")


@lru_cache(maxsize=1)
def recipes() -> tuple[dict[str, str], ...]:
    """Packaged facts: a feature, the run it belongs to, the release it is there from, and the file that says so."""
    text = files("planner.validate").joinpath("data/recipes.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def recomputed_modules(features: Iterable[str]) -> tuple[str, ...]:
    """Modules that a recipe among the features runs again."""
    found = next((f for f in features if f.startswith(RECOMPUTE)), "")
    return tuple(found.removeprefix(RECOMPUTE).split("+")) if found else ()


def recipe_features(*, row: Mapping[str, str], framework: str, year: int, month: int) -> frozenset[str]:
    """Features of the recipe that a row's model, part, precision and expert parallelism name, as of a release."""
    run = {**{k: (row.get(k) or "").strip() for k in KEYS}, "framework": framework}
    return frozenset(
        r["feature"]
        for r in recipes()
        if all(r[k] == run[k] for k in KEYS) and (int(r["from_year"]), int(r["from_month"])) <= (year, month)
    )
