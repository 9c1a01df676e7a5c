"""Generated blocks of a page are replaced in place."""

import pytest

from planner.report.stories import claims_table, renew

CLAIM = {
    "sentence": "It holds",
    "story": "a",
    "verdict": "holds_when",
    "conditions": {"holds_when": ["x"]},
    "numbers": {"cases": {"x": 0.5, "y": 1234.0}, "unit": "kW"},
}


def test_blocks_are_replaced_and_the_rest_stays(tmp_path):
    page = tmp_path / "p.md"
    page.write_text("head\n<!-- t: begin -->\nold\n<!-- t: end -->\ntail\n")
    renew(path=page, blocks={"t": "new"})
    assert page.read_text() == "head\n<!-- t: begin -->\nnew\n<!-- t: end -->\ntail\n"
    with pytest.raises(ValueError, match="no <!-- u: begin"):
        renew(path=page, blocks={"u": "x"})


def test_cases_that_hold_are_bold():
    table = claims_table(answers=[CLAIM], story="a")
    assert "**x: 0.5**; y: 1,234 (kW)" in table
    assert "It holds" not in claims_table(answers=[CLAIM], story="b")
