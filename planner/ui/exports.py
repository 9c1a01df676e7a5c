"""Answers as CSV and as a spreadsheet: plain functions of rows, text that a spreadsheet could run is neutralised.

A workbook is a zip of a few XML parts (ECMA-376); writing them takes no further package.
"""

import csv
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

Rows = Sequence[Mapping[str, Any]]
# A cell that begins with one of these is a formula to Excel, LibreOffice and Google Sheets.
ACTIVE = ("=", "+", "-", "@", "\t", "\r", "\n")
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
MAX_CELL = 32_000  # a cell of a workbook holds 32,767 characters
EPOCH = (1980, 1, 1, 0, 0, 0)
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def cell(value: Any) -> Any:
    """A value that a spreadsheet shows and does not run."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = NOT_XML.sub("", text)[:MAX_CELL]
    return f"'{text}" if text.startswith(ACTIVE) else text


def columns_of(rows: Rows) -> list[str]:
    """Every key of the rows, in the order of first use."""
    return list(dict.fromkeys(str(k) for row in rows for k in row))


def csv_bytes(rows: Rows) -> bytes:
    """Rows as CSV; the mark in front tells spreadsheets that it is UTF-8."""
    columns = columns_of(rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([cell(c) for c in columns])
    for row in rows:
        writer.writerow(["" if row.get(c) is None else cell(row[c]) for c in columns])
    return b"\xef\xbb\xbf" + out.getvalue().encode()


def flat(tree: Any, path: str = "") -> list[dict[str, Any]]:
    """A tree as rows of path and value."""
    if isinstance(tree, Mapping):
        return [row for k, v in tree.items() for row in flat(v, f"{path}.{k}" if path else str(k))]
    if isinstance(tree, list | tuple) and any(isinstance(x, Mapping | list | tuple) for x in tree):
        return [row for i, v in enumerate(tree) for row in flat(v, f"{path}.{i}")]
    return [{"setting": path, "value": tree}]


def forecast_sheets(*, document: Mapping[str, Any], scenario: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """A comparison as sheets: decision table, every figure with its source, what flips the verdict, inputs."""
    decision = [{"criterion": r["text"], "unit": r["unit"]} | dict(r["values"]) for r in document["decision_table"]]
    return {
        "Decision": decision,
        "Figures": figure_rows(document["strategies"]),
        "What flips it": [dict(f) for f in document["flips_at"]],
        "Inputs": flat(scenario),
    }


def figure_rows(strategies: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every figure of every strategy with unit, label, formula, inputs and source."""
    fields = ("id", "value", "unit", "label", "formula", "inputs", "source")
    return [{"strategy": n} | {f: line[f] for f in fields} for n, d in strategies.items() for line in d["provenance"]]


def xlsx_bytes(sheets: Mapping[str, Rows]) -> bytes:
    """Rows as a workbook, a sheet each; equal rows give equal bytes."""
    names = [_sheet_name(name, i) for i, name in enumerate(sheets, 1)]
    numbers = range(1, len(names) + 1)
    parts = {
        "[Content_Types].xml": _types(numbers),
        "_rels/.rels": _relations([("officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets>'
        + "".join(
            f'<sheet name="{_attribute(n)}" sheetId="{i}" r:id="rId{i}"/>' for i, n in zip(numbers, names, strict=True)
        )
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": _relations(
            [*(("worksheet", f"worksheets/sheet{i}.xml") for i in numbers), ("styles", "styles.xml")]
        ),
        "xl/styles.xml": _styles(),
    } | {f"xl/worksheets/sheet{i}.xml": _sheet(rows) for i, rows in zip(numbers, sheets.values(), strict=True)}
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    return zip_bytes({path: (head + text).encode() for path, text in parts.items()})


def zip_bytes(files: Mapping[str, bytes]) -> bytes:
    """Files in an archive; equal files give equal bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for path, data in files.items():
            file.writestr(zipfile.ZipInfo(path, EPOCH), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})


def _sheet_name(name: str, number: int) -> str:
    text = re.sub(r"[\[\]:*?/\\']", " ", NOT_XML.sub("", name)).strip()[:28]
    return text or f"Sheet {number}"


def _types(numbers: range) -> str:
    sheets = "".join(
        f'<Override PartName="/xl/worksheets/sheet{i}.xml" ContentType="{OFFICE}.worksheet+xml"/>' for i in numbers
    )
    return (
        f'<Types xmlns="{PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{OFFICE}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{OFFICE}.styles+xml"/>{sheets}</Types>'
    )


def _relations(targets: Sequence[tuple[str, str]]) -> str:
    lines = "".join(
        f'<Relationship Id="rId{i}" Type="{RELATIONS}/{kind}" Target="{target}"/>'
        for i, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{PACKAGE}/relationships">{lines}</Relationships>'


def _styles() -> str:
    """Two formats: plain, and bold for the head."""
    plain, bold = (f'<font>{b}<sz val="11"/><name val="Calibri"/></font>' for b in ("", "<b/>"))
    fills = '<fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>'
    formats = "".join(
        f'<xf numFmtId="0" fontId="{i}" fillId="0" borderId="0" xfId="0" applyFont="{i}"/>' for i in (0, 1)
    )
    return (
        f'<styleSheet xmlns="{MAIN}"><fonts count="2">{plain}{bold}</fonts><fills count="2">{fills}</fills>'
        '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
        '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
        f'<cellXfs count="2">{formats}</cellXfs></styleSheet>'
    )


def _sheet(rows: Rows) -> str:
    columns = columns_of(rows)
    widths = "".join(
        f'<col min="{i}" max="{i}" width="{_width(c, rows)}" customWidth="1"/>' for i, c in enumerate(columns, 1)
    )
    lines = [_row(1, columns, style=1)]
    lines += [_row(i, [row.get(c) for c in columns]) for i, row in enumerate(rows, 2)]
    pane = '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/>'
    frozen = f'<sheetViews><sheetView workbookViewId="0">{pane}</sheetView></sheetViews>'
    cols = f"<cols>{widths}</cols>" if widths else ""
    return f'<worksheet xmlns="{MAIN}">{frozen}{cols}<sheetData>{"".join(lines)}</sheetData></worksheet>'


def _width(column: str, rows: Rows) -> int:
    return min(60, 2 + max([len(column), *(len(str(row.get(column) or "")) for row in rows[:200])]))


def _row(number: int, values: Sequence[Any], style: int = 0) -> str:
    return f'<row r="{number}">' + "".join(_cell(i, number, v, style) for i, v in enumerate(values)) + "</row>"


def _cell(column: int, row: int, value: Any, style: int) -> str:
    value = cell(value)
    at = f'r="{_letters(column)}{row}"' + (f' s="{style}"' if style else "")
    if value is None or value == "":
        return f"<c {at}/>"
    if isinstance(value, bool):
        return f'<c {at} t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float) and abs(value) < float("inf"):
        number = int(value) if isinstance(value, int) else float(value)
        return f"<c {at}><v>{number!r}</v></c>"
    return f'<c {at} t="inlineStr"><is><t xml:space="preserve">{escape(str(value))}</t></is></c>'


def _letters(column: int) -> str:
    """A, B, ..., Z, AA, ... of a column counted from zero."""
    text, left = "", column + 1
    while left:
        left, digit = divmod(left - 1, 26)
        text = chr(65 + digit) + text
    return text
