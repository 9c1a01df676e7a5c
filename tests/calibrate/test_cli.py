"""The calibrate command on profiles and on nccl-tests output; no GPU and no torch needed."""

import json

import pytest
from typer.testing import CliRunner

from calibrate.cli import main
from planner.profile.load import load_profile
from planner.profile.nccl import NcclError, parse_nccl

TEXT = """# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 step: 2(factor)
# Collective test starting: all_reduce_perf
# Using devices
#  Rank  0 Group  0 Pid   4097 on      node1 device  0 [0000:1b:00] NVIDIA H200
#  Rank  1 Group  0 Pid   4098 on      node2 device  0 [0000:1b:00] NVIDIA H200
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    11.50    0.09    0.09      0    11.25    0.09    0.09      0
     1048576        262144     float     sum      -1    40.00   26.21   26.21    N/A    39.50   26.55   26.55    N/A
# Out of bounds values : 0 OK
"""


def profile_file(folder, name="p.json", scale=1.0):
    data = load_profile("h200-sxm").model_dump(mode="json")
    for s in data["samples"]:
        for q in ("p10_s", "p50_s", "p90_s"):
            s[q] *= scale
    path = folder / name
    path.write_text(json.dumps(data))
    return path


def test_text_of_nccl_tests_becomes_samples():
    samples = parse_nccl(TEXT, session=3)
    assert len(samples) == 4
    first = samples[0]
    assert (first["op"], first["shape"]) == ("all_reduce", {"bytes": 1024, "ranks": 2, "nodes": 2})
    assert first["p50_s"] == pytest.approx(11.5e-6)
    assert [s["layout"] for s in samples[:2]] == ["out_of_place", "in_place"]


def test_json_of_nccl_tests_becomes_samples():
    row = {"size": 1024, "type": "float", "out_of_place": {"time": 11.5}, "in_place": {"time": 11.25}}
    samples = parse_nccl(json.dumps({"results": [row]}), op="all_gather", ranks=8)
    assert [s["shape"]["ranks"] for s in samples] == [8, 8]
    assert samples[1]["p50_s"] == pytest.approx(11.25e-6)


@pytest.mark.parametrize(("text", "why"), [
    ("nothing here", "ranks"), ('{"results": []}', "ranks"), ("{", "JSON"),
    (TEXT.replace("all_reduce_perf", ""), "--op"),
])  # fmt: skip
def test_useless_output_is_refused_with_a_reason(text, why):
    with pytest.raises(NcclError, match=why):
        parse_nccl(text)


def test_import_adds_a_session_and_the_profile_still_loads(tmp_path):
    path, source = profile_file(tmp_path), tmp_path / "nccl.txt"
    source.write_text(TEXT)
    before = load_profile(str(path))
    result = CliRunner().invoke(main, ["import", "nccl-tests", str(source), "--into", str(path)])
    assert result.exit_code == 0, result.output
    after = load_profile(str(path))
    assert len(after.samples) == len(before.samples) + 4
    assert after.samples[-1].session == max(s.session for s in before.samples) + 1


def test_show_lists_kinds_and_samples():
    assert "matmul" in CliRunner().invoke(main, ["show", "h200-sxm"]).output
    assert (
        "TFLOP/s" in CliRunner().invoke(main, ["show", "h200-sxm", "--kind", "matmul"], env={"COLUMNS": "200"}).output
    )
    assert CliRunner().invoke(main, ["show", "no-such"]).exit_code == 2


def test_diff_counts_what_repeats(tmp_path):
    same, slow = profile_file(tmp_path), profile_file(tmp_path, "slow.json", scale=2.0)
    assert "(100%)" in CliRunner().invoke(main, ["diff", "h200-sxm", str(same)]).output
    assert "(0%)" in CliRunner().invoke(main, ["diff", "h200-sxm", str(slow)]).output


@pytest.mark.parametrize("words", [["show", "no-such"], ["--no-such-flag"], ["import", "nccl-tests", "no-such.log"]])
def test_wrong_usage_ends_with_one(monkeypatch, words):
    import sys

    from calibrate.cli import entry

    monkeypatch.setattr(sys, "argv", ["calibrate", *words])
    with pytest.raises(SystemExit) as stop:
        entry()
    assert stop.value.code == 1
