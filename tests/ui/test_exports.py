"""Downloads: a spreadsheet cannot be made to run what a name says, and holds the figures of the answer."""

import csv
import io
import re
import xml.etree.ElementTree as tree
import zipfile

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("altair")

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.ui import exports, units, work

MAIN = {"m": exports.MAIN}
PRESET = "gpt2-124m-8xh100"


def cells(data, sheet=1):
    """Rows of a sheet as Python values."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        root = tree.fromstring(file.read(f"xl/worksheets/sheet{sheet}.xml"))
    assert not root.findall(".//m:f", MAIN)
    out = []
    for row in root.findall(".//m:row", MAIN):
        values = []
        for c in row.findall("m:c", MAIN):
            text, number = c.find("m:is/m:t", MAIN), c.find("m:v", MAIN)
            values.append(text.text or "" if text is not None else None if number is None else float(number.text))
        out.append(values)
    return out


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40).filter(lambda x: x != "n"))
@settings(max_examples=60, deadline=None)
def test_no_cell_is_a_formula(text):
    rows = [{text or "x": text, "n": -1.5}]
    plain = exports.csv_bytes(rows).decode("utf-8-sig")
    for line in csv.reader(io.StringIO(plain, newline="")):
        assert not any(c.startswith(exports.ACTIVE) and c != "-1.5" for c in line)
    head, row = cells(exports.xlsx_bytes({text: rows}))
    assert not any(str(c).startswith(exports.ACTIVE) for c in [*head, row[0]] if c)
    assert row[1] == -1.5


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", '=HYPERLINK("http://x","y")', "\x00=1"])
def test_active_text_is_quoted(text):
    assert exports.cell(text).startswith("'")


def test_a_workbook_is_whole_and_the_same_each_time():
    sheets = {"A": [{"x": 1, "y": None, "z": True, "w": float("nan")}], "B/C*?": [], "A" * 60: [{"k": [1, 2]}]}
    data = exports.xlsx_bytes(sheets)
    assert data == exports.xlsx_bytes(sheets)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        names = file.namelist()
        for name in names:
            tree.fromstring(file.read(name))
        book = tree.fromstring(file.read("xl/workbook.xml"))
    titles = [s.get("name") for s in book.findall(".//m:sheet", MAIN)]
    assert len(titles) == len(set(titles)) == 3
    assert all(0 < len(t) <= 31 and not re.search(r"[\[\]:*?/\\]", t) for t in titles)
    assert "[Content_Types].xml" in names
    assert cells(data)[1] == [1.0, None, 1.0, "nan"]


@pytest.mark.parametrize(("column", "letters"), [(0, "A"), (25, "Z"), (26, "AA"), (701, "ZZ"), (702, "AAA")])
def test_columns_are_counted_in_letters(column, letters):
    assert exports._letters(column) == letters


def test_the_spreadsheet_holds_the_answers_figures():
    scenario = work.load_preset(PRESET)
    document = work.comparison(scenario.model_dump_json())
    sheets = exports.forecast_sheets(document=document, scenario=scenario.model_dump(mode="json"))
    data = exports.xlsx_bytes(sheets)
    rows = cells(data, 2)
    figures = [x for d in document["strategies"].values() for x in d["provenance"]]
    assert [r[1] for r in rows[1:]] == [x["id"] for x in figures]
    assert [r[2] for r in rows[1:]] == pytest.approx([x["value"] for x in figures])
    assert {r["setting"] for r in sheets["Inputs"]} >= {"model", "cluster.nodes", "training.tokens"}


def test_units_change_the_figure_and_not_the_amount():
    shown = units.of_code("GiB.hours.EUR")
    assert shown.code == "GiB.hours.EUR"
    assert shown.bytes_value(85.0) == pytest.approx(85e9 / 2**30)
    assert shown.gigabytes(85.0) == "79.2 GiB"
    assert shown.days(10) == "240.0 h"
    assert shown.money_value(1.0) * shown.rate.usd_per_unit == pytest.approx(1.0)
    assert shown.money(2e6).startswith("€")
    assert shown.rate.date is not None
    assert units.Shown().code == ""


@pytest.mark.parametrize("code", ["", "x", "GiB.hours", "GB.auto.XXX", "..", "a.b.c.d", "x" * 1000])
def test_an_unknown_choice_of_units_falls_back(code):
    assert units.of_code(code) == units.Shown()
