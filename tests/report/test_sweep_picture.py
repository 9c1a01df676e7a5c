"""The picture of scaling curves: well-formed, one dot a point, safe with any name."""

import xml.etree.ElementTree as ET

import pytest

from planner.report.sweep_picture import page, svg, write_picture

POINT = {"step_s": 1.0, "used_gpus": 8, "mfu": 0.4, "tokens_per_s": 1.0, "days_ideal": 1.0}


def document(name="stack"):
    points = [
        POINT | {"gpus": 8 * 2**i, "scaling_efficiency": e, "cause": "bubble"} for i, e in enumerate((1, 0.9, 0.5))
    ]
    knee = {
        "gpus": 16,
        "cause": "bubble",
        "scaling_efficiency": 0.9,
        "reached": True,
        "threshold": 0.8,
        "bend_gpus": 16,
    }
    empty = {"strategy": name, "kind": "strong", "points": [], "knee": None, "infeasible": []}
    curve = {"strategy": name, "kind": "weak", "points": points, "knee": knee, "infeasible": []}
    return {"curves": [curve, empty], "warnings": ["a <note>"]}


def test_a_dot_for_every_point_and_a_ring_at_the_knee():
    root = ET.fromstring(svg(document=document("a & <b>"), title="<t> & u"))
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 3
    assert titles[0].startswith("a & <b>, 8 GPUs: 100.0 %")
    assert sum(t.text == "knee" for t in root.iter("{http://www.w3.org/2000/svg}text")) == 1


def test_the_page_holds_no_script_and_escapes_names():
    text = page(document=document("<script>"), title="t")
    assert "<script" not in text
    assert "a &lt;note&gt;" in text


def test_only_known_suffixes_are_written(tmp_path):
    write_picture(document=document(), title="t", path=tmp_path / "x.html")
    assert [p.name for p in tmp_path.iterdir()] == ["x.html"]
    with pytest.raises(ValueError, match=r"\.svg or \.html"):
        write_picture(document=document(), title="t", path=tmp_path / "x.png")
