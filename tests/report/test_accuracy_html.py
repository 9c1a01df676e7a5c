"""The accuracy page: every kind drawn, the worst rows explained, hostile rows as text."""

import math
import re
from datetime import date
from html.parser import HTMLParser
from importlib.resources import files
from xml.etree import ElementTree

import pytest

from planner.profile.site import Site
from planner.report.accuracy_html import accuracy_html, family_of
from planner.report.svg import Spot, scatter, stacked_bars, ticks
from planner.validate.command import validate_kind
from planner.validate.explain import explain_worst, worst_answers
from planner.validate.runs import packaged_rows, validate_runs
from planner.validate.setup import number

ROWS = [r for r in packaged_rows() if r["source"] == "InternEvo train_performance"][:24]
ROWS += [r for r in packaged_rows() if r["source"] == "Megatron-LM SC21"][:16]
KERNELS = {"compute_matmul", "compute_attention", "compute_memory_bound"}
# Constants of one, so that no site is fitted to all packaged rows.
PLAIN = Site(
    name="plain",
    runs=1,
    compute_factor=1.0,
    compute_sigma=0.0,
    network_factor=1.0,
    network_sigma=0.0,
    host_factor=1.0,
    host_sigma=0.0,
    residual_sigma=0.0,
)


def page(document, worst):
    return accuracy_html(answer=document, worst=worst, today=date(2026, 12, 1))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    import csv

    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, fieldnames=list(ROWS[0]))
        out.writeheader()
        out.writerows(ROWS)
    document = validate_runs(rows=ROWS, site=PLAIN)
    return document, explain_worst(document=document, path=path)


def test_worst_rows_come_first_and_one_a_configuration(runs):
    document, worst = runs
    errors = [abs(w.answer["zero_shot"]["error_pct"]) for w in worst]
    assert errors == sorted(errors, reverse=True)
    assert len({w.answer["config"] for w in worst}) == len(worst) == 10
    everything = [abs(a["zero_shot"]["error_pct"]) for a in document["rows"] if a["zero_shot"]]
    assert errors[0] == max(everything)


def test_parts_are_those_of_the_forecast_step(runs):
    _, worst = runs
    timed = [w for w in worst if w.answer["metric"] == "tokens_per_s_per_gpu"]
    assert timed
    for w in timed:
        row = ROWS[w.answer["row"]]
        tokens_per_gpu = number(row, "gbs") * number(row, "seq") / number(row, "n_gpus")
        assert sum(v for _, v in w.parts_s) == pytest.approx(tokens_per_gpu / w.answer["zero_shot"]["predicted"])
        assert w.measured_step_s == pytest.approx(tokens_per_gpu / w.answer["measured"])
        assert ("model", ROWS[w.answer["row"]]["model"]) in w.settings
    memory = [w for w in worst if w.answer["metric"] == "memory_gb"]
    assert all(w.measured_step_s is None for w in memory)


def test_the_page_holds_scatter_groups_and_explanations(runs):
    document, worst = runs
    html = page(document, worst)
    for g in document["groups"]:
        assert g["group"] in html
    for w in worst:
        assert f"{w.answer['zero_shot']['error_pct']:+.1f} %" in html
    for picture in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(picture)
    points = sum(a["skipped"] is None and a["metric"] != "oom" for a in document["rows"])
    assert html.count(": measured ") == points
    assert "assumed: " in html
    assert "matmul" in html


def test_marks_follow_trust_else_a_part_of_the_group(runs):
    document, _ = runs
    by, families = family_of(answers=document["rows"], groups=document["groups"])
    assert by == "trust of the source"
    assert set(families) == {f"trust {r['trust']}" for r in ROWS}
    kernels = [{"group": f"G | {op} | bf16", "source": "s"} for op in ("gemm", "attention_fwd")]
    assert family_of(answers=kernels, groups=[])[1] == ["gemm", "attention_fwd"]
    alike = [{"group": "one", "source": "s"}] * 2
    assert family_of(answers=alike, groups=[])[0] == "all rows alike"


def test_hostile_rows_are_text(tmp_path):
    evil = "<script>alert(1)</script>"
    rows = [ROWS[0] | {"id": evil, "source": evil, "model": f"llama {evil}"}]
    document = validate_runs(rows=rows, site=PLAIN)
    path = tmp_path / "rows.csv"
    path.write_text(",".join(rows[0]) + "\n" + ",".join(f'"{v}"' for v in rows[0].values()) + "\n")
    html = page(document, explain_worst(document=document, path=path))
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 3

    class Nothing(HTMLParser):
        def handle_starttag(self, tag, attrs):
            assert tag != "script"

    Nothing().feed(html)


def test_steps_are_explained_from_the_profile(tmp_path):
    path = tmp_path / "steps.csv"
    text = files("planner.validate").joinpath("data/h200_steps.csv").read_text("utf-8")
    path.write_text("\n".join(text.splitlines()[:7]) + "\n")
    document = validate_kind(kind="steps", path=path, engine="fast", group=None)
    timed = [w for w in explain_worst(document=document, path=path) if w.answer["metric"] == "step_time_s"]
    assert timed
    for w in timed:
        assert {k for k, _ in w.parts_s} == {*KERNELS, "launch_gap"}
        assert sum(v for _, v in w.parts_s) == pytest.approx(w.answer["zero_shot"]["predicted"])


def test_a_kind_without_a_step_still_has_a_page(runs):
    document = runs[0] | {"kind": "collectives"}
    worst = explain_worst(document=document, path=None, count=3)
    assert [w.parts_s for w in worst] == [()] * 3
    assert "The 3 worst rows" in page(document, worst)


def test_nothing_forecast_is_a_page_too():
    document = validate_runs(rows=[ROWS[0] | {"layers": ""}], site=PLAIN)
    assert worst_answers(document["rows"]) == []
    assert "Rows not forecast" in page(document, [])


def test_a_point_on_the_line_of_equality_lies_on_the_diagonal():
    spots = [Spot(1.0, 1.0, "a", ""), Spot(100.0, 100.0, "a", ""), Spot(10.0, 20.0, "b", "")]
    drawn = scatter(spots=spots, families=["a", "b"], axes=("x", "y"), title="t")
    first, last = re.findall(r'<circle transform="translate\(([\d.]+) ([\d.]+)\)" r="4.0"', drawn)
    rise = (float(first[1]) - float(last[1])) / (float(last[0]) - float(first[0]))
    assert rise == pytest.approx(1 / 1.3, rel=1e-3)


@pytest.mark.parametrize("high", [1e-9, 0.003, 1.0, 7.0, 99.0, 3.2e8])
def test_ticks_reach_the_value_in_round_steps(high):
    found = ticks(high)
    assert found[0] == 0.0
    assert found[-1] >= high * (1 - 1e-9)
    assert 2 <= len(found) <= 7
    digit = found[1] / 10 ** math.floor(math.log10(found[1]) + 1e-9)
    assert any(digit == pytest.approx(d) for d in (1, 2, 2.5, 5, 10))


def test_bars_of_nothing_do_not_fail():
    from planner.report.svg import Part

    ElementTree.fromstring(stacked_bars(rows=[("a", [0.0])], parts=[Part("p", "#000000")], show=str, title="t"))
