"""The report: whole, escaped, self-contained, honest about what does not fit."""

import json
import re
from datetime import date
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from planner.decide.dossier import dossier, sizes_around
from planner.report.html import report_html
from planner.report.page import ReportError, check_page, write_page
from planner.scenario import parse_scenario

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "<script>alert(1)</script>"
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Balance(HTMLParser):
    """Every opened tag is closed in order; collects tags, texts and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(html):
    parser = Balance()
    parser.feed(html)
    assert parser.open == []
    return parser


def text(*, name="Small", nodes=1, strategies="  stack: {preset: stack}\n  other: {preset: stack, recompute: full}\n"):
    return (
        f"name: {json.dumps(name)}\nmodel: llama2-7b\ncluster: {{node: hgx-h100, nodes: {nodes}}}\n"
        "training: {tokens: 1.0e10, sequence_length: 4096, global_batch_sequences: 128}\n"
        f"strategies:\n{strategies}"
        "goals: {deadline_days: 4, budget_usd: 20000}\n"
    )


@lru_cache(maxsize=8)
def made(source):
    scenario = parse_scenario(source)
    found = dossier(scenario=scenario, engine="fast", replications=20)
    html = report_html(
        scenario=scenario.model_dump(mode="json"), gpus=scenario.gpus, dossier=found, today=date(2026, 12, 1)
    )
    return found, html


def test_the_answer_stands_before_everything_else_and_every_section_is_there():
    found, html = made(text())
    choice = found.comparison["verdict"]["choice"]
    heads = re.findall(r"<h2>(.*?)</h2>", html)
    assert heads[0] == "Question and answer"
    assert {"Forecast", "Scaling", "Cost by bucket", "Rent or buy", "Assumptions and sources"} <= set(heads)
    assert f"<strong>{choice}: " in html.split("<h2>")[1]
    for reason in found.comparison["verdict"]["reasons"]:
        assert reason.split(":")[0] in html
    assert "2026-12-01" in html
    assert found.comparison["scenario_hash"] in html
    assert "chance to miss the goal of 4 days" in html


def test_every_provenance_line_and_warning_is_printed():
    found, html = made(text())
    for d in found.comparison["strategies"].values():
        assert html.count(f"<td>{d['provenance'][0]['id']}</td>") == len(found.comparison["strategies"])
        assert all(f"<td>{x['id']}</td>" in html for x in d["provenance"])
        assert all(f"<td>{x['label']}" in html for x in d["provenance"])


def test_nothing_is_fetched_and_nothing_runs():
    _, html = made(text())
    page = read(html)
    assert "script" not in page.tags
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert not [a for a, _ in page.attributes if a.startswith("on") or a in {"src", "href", "xlink:href"}]
    assert "default-src 'none'" in html


def test_hostile_names_are_text():
    evil = f'"{HOSTILE}"'
    source = text(name=HOSTILE, strategies=f"  '{evil}': {{preset: stack}}\n  \"a&b'c\": {{preset: stack, tp: 2}}\n")
    _, html = made(source)
    page = read(html)
    assert "script" not in page.tags
    assert HOSTILE not in html
    assert "&lt;script&gt;" in html


def test_pictures_are_well_formed_and_name_themselves():
    _, html = made(text())
    pictures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(pictures) == 7
    for p in pictures:
        tree = ElementTree.fromstring(p)
        assert tree.find("{http://www.w3.org/2000/svg}title").text


def test_a_plan_that_does_not_fit_says_so_and_has_no_fan():
    source = text(strategies="  tight: {preset: stack, zero_stage: 0, recompute: none, micro_batch_sequences: 16}\n")
    found, html = made(source)
    assert found.runs == {}
    assert "No strategy fits this cluster." in html
    assert "tight does not fit" in html
    read(html)


def test_pictures_cut_bars_to_scale():
    _, html = made(text())
    step = next(p for p in re.findall(r"<svg.*?</svg>", html, re.DOTALL) if "Where the step goes" in p)
    found, _ = made(text())
    docs = found.comparison["strategies"]
    bars = re.findall(r'<rect [^>]*width="([\d.]+)" height="26"[^>]*><title>(\w+): ', step)
    widths = {n: sum(float(w) for w, name in bars if name == n) for n in docs}
    ratio = docs["other"]["step_s"]["p50"] / docs["stack"]["step_s"]["p50"]
    assert widths["other"] / widths["stack"] == pytest.approx(ratio, rel=0.01)


def test_pdf_without_its_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("planner.report.page.find_spec", lambda name: None)
    with pytest.raises(ReportError, match=r"cluster-planner\[report\]"):
        write_page(path=tmp_path / "a.pdf", html="<p>")
    with pytest.raises(ReportError, match="ends in"):
        check_page(tmp_path / "a.docx")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch):
    page = tmp_path / "a.html"
    write_page(path=page, html="old")

    def fail(self, target):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_page(path=page, html="new")
    assert page.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


@pytest.mark.parametrize(("nodes", "first"), [(1, 1), (2, 1), (32, 8), (3, 24)])
def test_the_curve_runs_through_the_clusters_own_size(nodes, first):
    scenario = parse_scenario(text(nodes=nodes).replace("sequences: 128", "sequences: 768"))
    found = sizes_around(scenario)
    assert scenario.gpus in found
    assert found[-1] == 32 * scenario.gpus
    assert found[0] <= max(first, scenario.gpus // 32)


def test_what_does_not_fit_says_what_to_relax():
    given = parse_scenario(text(strategies="  stack: {preset: stack}\n  over: {zero_stage: 0, recompute: none}\n"))
    found = dossier(scenario=given, replications=40)
    html = report_html(scenario=given.model_dump(mode="json"), gpus=given.gpus, dossier=found, today=date(2026, 7, 1))
    change = found.comparison["strategies"]["over"]["relax"][0]
    assert change["fits"]
    assert f"over: {change['constraint']} to {change['by']}: fits" in html
    assert "over on the fullest GPU" in html


def test_a_printed_report_has_at_most_eight_pages_before_its_appendix(tmp_path):
    weasyprint = pytest.importorskip("weasyprint", reason="PDF needs the extra `report`")
    _, html = made(text())
    write_page(path=tmp_path / "a.pdf", html=html)
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    without = re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL)
    assert 4 <= len(weasyprint.HTML(string=without).render().pages) <= 8
    whole = weasyprint.HTML(string=html.replace("<details>", "<details open>")).render().pages
    assert len(whole) <= 20


def test_a_printed_report_fetches_nothing(tmp_path):
    pytest.importorskip("weasyprint", reason="PDF needs the extra `report`")
    page = tmp_path / "a.pdf"
    with pytest.raises(ReportError, match="fetches nothing"):
        write_page(path=page, html='<img src="file:///etc/hostname"><p>x</p>')
    assert not page.exists()
