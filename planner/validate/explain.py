"""The worst answer rows taken apart: which parts their forecast step is made of."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from planner.profile.load import load_profile
from planner.validate.command import read_rows
from planner.validate.runs import log_ratio

SETTINGS = (
    *("model", "kind", "gpu", "n_gpus", "seq", "tp", "pp", "vpp", "cp", "ep", "mbs", "gbs", "precision", "mode"),
    *("optimizer", "recompute", "flash", "framework", "zero_stage"),
)
Row = Mapping[str, str]
FAR_PCT = 15.0  # groups further off than this are explained one by one
UNKNOWN = "not explained"


@lru_cache(maxsize=1)
def group_reasons() -> dict[str, str]:
    """Why groups of packaged runs are far off, as far as it is known."""
    text = files("planner.validate").joinpath("data/explained.csv").read_text("utf-8")
    return {r["group"]: r["reason"] for r in csv.DictReader(text.splitlines())}


def far_groups(document: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], str]]:
    """Groups of a document of contract 5 that err by more than 15 %, worst first, each with its reason."""
    found = [g for g in document["groups"] if g["zero_shot"] and g["zero_shot"]["mape_pct"] > FAR_PCT]
    found.sort(key=lambda g: -g["zero_shot"]["mape_pct"])
    return [(g, group_reasons().get(g["group"], UNKNOWN)) for g in found]


@dataclass(frozen=True, slots=True)
class Explained:
    """One answer row taken apart.

    Attributes:
        answer: the answer row of contract 5.
        settings: the row's own stated settings.
        parts_s: seconds of the forecast step by part; empty where the kind has no step.
        measured_step_s: the measured figure as seconds of that step; None for a figure that is not a speed.
    """

    answer: Mapping[str, Any]
    settings: tuple[tuple[str, str], ...]
    parts_s: tuple[tuple[str, float], ...]
    measured_step_s: float | None


def worst_answers(answers: Sequence[Mapping[str, Any]], *, count: int = 10) -> list[Mapping[str, Any]]:
    """The answers of largest absolute error, one a configuration, largest first; yes-or-no rows have no error."""
    scored = [
        a
        for a in answers
        if a["skipped"] is None and a["metric"] != "oom" and a["zero_shot"] and a["zero_shot"]["error_pct"] is not None
    ]
    scored.sort(key=lambda a: (-abs(a["zero_shot"]["error_pct"]), a["row"]))
    out: dict[str, Mapping[str, Any]] = {}
    for a in scored:
        out.setdefault(a["config"], a)
        if len(out) == count:
            break
    return list(out.values())


def explain_worst(*, document: Mapping[str, Any], path: Path | None, count: int = 10) -> list[Explained]:
    """The worst rows of a document of contract 5; `path` is the file it judged, None = the packaged rows.

    Raises:
        UnreadableRowsError: the file cannot be read again.
    """
    kind = document["kind"]
    worst = worst_answers(document["rows"], count=count)
    rows = _rows(kind=kind, path=path)
    out = []
    for a in worst:
        row = rows[a["row"]] if a["row"] < len(rows) else {}
        settings = tuple((k, row[k]) for k in SETTINGS if (row.get(k) or "").strip())
        parts = _parts(document=document, row=row)
        out.append(Explained(a, settings, parts, _measured_step_s(answer=a, parts=parts)))
    return out


def _rows(*, kind: str, path: Path | None) -> Sequence[Row]:
    if path is not None:
        return read_rows(path)
    if kind == "runs":
        from planner.validate.runs import packaged_rows

        return packaged_rows()
    if kind == "steps":
        from planner.validate.steps import packaged_rows as packaged_steps

        return packaged_steps()
    return []


def _parts(*, document: Mapping[str, Any], row: Row) -> tuple[tuple[str, float], ...]:
    if document["kind"] == "runs":
        from planner.validate.runs import step_of_row

        return step_of_row(row=row, engine=document["engine"]).breakdown_s
    if document["kind"] == "steps":
        from planner.cost.profiled import ProfiledCosts
        from planner.simulate.profiled_step import profiled_step
        from planner.validate.steps import DEFAULT_PROFILE, shape_of_row

        named = document["profile"]
        costs = ProfiledCosts(load_profile(DEFAULT_PROFILE if named == "catalog" else named))
        step = profiled_step(costs=costs, shape=shape_of_row(row)[0])
        kernels = sum(v for _, v in step.groups_s)
        words = {"memory": "compute_memory_bound"}
        return (
            *((words.get(k, f"compute_{k}"), v) for k, v in step.groups_s),
            ("launch_gap", max(0.0, step.step_s - kernels)),
        )
    return ()


def _measured_step_s(*, answer: Mapping[str, Any], parts: tuple[tuple[str, float], ...]) -> float | None:
    """Seconds that the measured figure stands for: those of the forecast, times the ratio of the two."""
    ratio = log_ratio(answer)
    return None if ratio is None or not parts else math.exp(ratio) * sum(v for _, v in parts)
