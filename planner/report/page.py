"""A self-contained HTML document: no script, no fetch, everything from outside escaped; written whole or not at all."""

from collections.abc import Sequence
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

STYLE = """
:root{color-scheme:light}
body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:820px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;line-height:1.25}h2{font-size:1.2rem;margin-top:2.2rem;border-bottom:1px solid #d9d9d9}
h3{font-size:1rem;margin-bottom:.3rem}
table{border-collapse:collapse;width:100%;font-size:.86rem;margin:.6rem 0}
th,td{text-align:left;padding:.25rem .5rem;border-bottom:1px solid #e4e4e4;vertical-align:top;overflow-wrap:anywhere}
td:first-child{min-width:11em;overflow-wrap:break-word}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;overflow-wrap:normal}
caption{text-align:left;font-weight:bold;padding:.2rem 0}
.wide{overflow-x:auto}
.answer{border-left:5px solid #0072B2;padding:.4rem 1rem;background:#f2f6fa}.answer strong{font-size:1.25rem}
.small{font-size:.82rem;color:#555}
svg{width:100%;height:auto;margin:.5rem 0}
summary{cursor:pointer;font-weight:bold}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem}
table.lines{table-layout:fixed;font-size:.74rem}
table.lines td,table.lines th{min-width:0;overflow-wrap:anywhere}
table.lines th:nth-child(1){width:23%}table.lines th:nth-child(2){width:14%}table.lines th:nth-child(3){width:36%}
@page{margin:15mm 14mm;@bottom-right{content:counter(page) " / " counter(pages);font:8pt sans-serif;color:#555}}
@media print{body{max-width:none;margin:0;padding:0;font-size:10pt}table{font-size:8.5pt}th,td{padding:.15rem .4rem}
h2{break-after:avoid;margin-top:1.2rem}
svg,tr{break-inside:avoid}svg{max-height:75mm}table.lines{font-size:6.5pt}pre{font-size:6.5pt;columns:2}}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class ReportError(ValueError):
    """A report that cannot be written, and why."""


def paragraph(text: str, *, small: bool = False) -> str:
    """A paragraph of plain text."""
    style = ' class="small"' if small else ""
    return f"<p{style}>{escape(text)}</p>"


def bullets(items: Sequence[str]) -> str:
    """A list of plain texts, nothing for no items."""
    return "<ul>" + "".join(f"<li>{escape(i)}</li>" for i in items) + "</ul>" if items else ""


def table(
    *, head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", left: Sequence[int] = (0,), kind: str = ""
) -> str:
    """A table of plain texts; columns outside `left` are aligned right as figures. `kind` names its style."""

    def cells(tag: str, row: Sequence[str]) -> str:
        out = []
        scope = ' scope="col"' if tag == "th" else ""
        for i, text in enumerate(row):
            style = "" if i in left else ' class="n"'
            out.append(f"<{tag}{scope}{style}>{escape(text)}</{tag}>")
        return "<tr>" + "".join(out) + "</tr>"

    top = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "".join(cells("td", r) for r in rows)
    named = f' class="{kind}"' if kind else ""
    return f'<div class="wide"><table{named}>{top}<thead>{cells("th", head)}</thead><tbody>{body}</tbody></table></div>'


def section(title: str, *parts: str) -> str:
    """A heading and what stands below it (markup); nothing where nothing stands below."""
    body = "".join(parts)
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def folded(title: str, *parts: str) -> str:
    """Markup behind a line that opens it; a printer shows it open."""
    return f"<details><summary>{escape(title)}</summary>{''.join(parts)}</details>"


def document(*, title: str, parts: Sequence[str]) -> str:
    """The whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def write_page(*, path: Path, html: str) -> None:
    """Write the page as HTML, or as PDF by the name's ending; under a temporary name first.

    Raises:
        ReportError: another ending, or PDF without the package that makes it.
        OSError: the folder cannot be written.
    """
    check_page(path)
    data = _pdf(html) if path.suffix.lower() == ".pdf" else html.encode("utf-8")
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_page(path: Path) -> None:
    """Refuse a name that `write_page` could not write, before any work is done.

    Raises:
        ReportError: as `write_page`.
    """
    if path.suffix.lower() not in {".html", ".htm", ".pdf"}:
        raise ReportError(f"{path.name}: a report ends in .html or .pdf")
    if path.suffix.lower() == ".pdf" and find_spec("weasyprint") is None:
        raise ReportError("PDF needs WeasyPrint: pip install 'cluster-planner[report]'; or write .html and print it")


class _Refusal:
    """A fetcher for WeasyPrint that fetches nothing and keeps what was asked for."""

    _fail_on_errors = False  # newer versions ask; so all of them go on, and what was asked for is refused below

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, url: str, *_: Any, **__: Any) -> dict[str, Any]:
        self.asked.append(url)
        raise ReportError("a report fetches nothing")


def _pdf(html: str) -> bytes:
    printer: Any = import_module("weasyprint")
    refusal = _Refusal()
    opened = html.replace("<details>", "<details open>")
    data = bytes(printer.HTML(string=opened, url_fetcher=refusal).write_pdf())
    if refusal.asked:
        raise ReportError(f"a report fetches nothing, yet it names {refusal.asked[0][:80]}")
    return data
