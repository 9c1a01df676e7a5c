"""The answer of a sizing in words: every goal, tenure and rule has a text in both languages, formatted."""

import pytest

from planner.decide.size_goals import GOALS
from planner.ui import sizing
from planner.ui.text import TEXT, t
from planner.ui.units import Shown

OPTION = {"gpu": "H100-SXM", "node": "hgx-h100", "nodes": 12, "gpus": 96, "provider": "market", "tenure": "spot",
          "days": 12.25, "cost_usd": 1.5e6, "power_kw": 170.4, "meets": True}  # fmt: skip


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_goal_and_tenure_has_words(lang):
    rows = [
        {"constraint": goal, "to": 100.0, "by": 10.0, "alone": True, "result": OPTION | {"tenure": tenure}}
        for goal, tenure in zip(GOALS, ["on_demand", "reserved_1y", "reserved_3y", "spot", "own"], strict=True)
    ]
    found = sizing.relax_rows(document={"relax": rows}, lang=lang, shown=Shown())
    assert [r[t("size.goal", lang)] for r in found] == [t(f"goal.{g}", lang) for g in GOALS]
    assert all("_" not in r[t("size.result", lang)].replace("hgx-h100", "") for r in found)


def test_options_and_tests_are_formatted():
    (row,) = sizing.option_rows(document={"options": [OPTION]}, lang="en", shown=Shown())
    assert list(row.values()) == [
        "H100-SXM",
        "12 × hgx-h100",
        "96",
        "market",
        "spot",
        "12.2 d",
        "$1.50 M",
        "170",
        "yes",
    ]
    tests = [{"test": "x", "value": 88.36, "unit": "GB/s", "rule": "at_least", "forecast": 107.9, "label": "published"}]
    (row,) = sizing.acceptance_rows(document={"acceptance": tests}, lang="en")
    assert row["accept at"] == "at least 88.36 GB/s"


def test_no_text_is_written_twice():
    import ast
    import inspect

    from planner.ui import words

    for node in ast.walk(ast.parse(inspect.getsource(words))):
        if isinstance(node, ast.Dict):
            keys = [k.value for k in node.keys if isinstance(k, ast.Constant)]
            assert len(keys) == len(set(keys))
    assert "size_knee" in TEXT
