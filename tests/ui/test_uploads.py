"""What people send: read as content, capped, and never a path; their own model, fabric and site act on the plan."""

import gzip
import json
import zlib

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("altair")

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.forecast import forecast_strategy
from planner.scenario import Scenario, load_scenario
from planner.ui import uploads, work


def bomb(size):
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([packer.compress(b"a" * 1_000_000) for _ in range(size // 1_000_000)]) + packer.flush()


def test_gzip_is_opened_up_to_the_cap_only():
    assert uploads.unpacked(gzip.compress(b"x" * 100), most=100) == b"x" * 100
    packed = bomb(200_000_000)
    assert len(packed) < 300_000
    for most in (10, 2_000_000):
        with pytest.raises(ValueError, match="larger"):
            uploads.unpacked(packed, most=most)
    with pytest.raises(ValueError, match="cut off"):
        uploads.unpacked(gzip.compress(b"x" * 10_000)[:-20], most=20_000)
    with pytest.raises(ValueError, match="gzip"):
        uploads.unpacked(b"\x1f\x8b" + b"\x00" * 50, most=1000)


@given(st.text(max_size=80))
@settings(max_examples=60, deadline=None)
def test_names_become_harmless(text):
    name = uploads.safe_name(text, otherwise="own")
    assert 1 <= len(name) <= 40
    assert not name.startswith((".", "-"))
    assert "/" not in name
    assert "\\" not in name


def test_a_config_becomes_the_model_and_its_path_stays_inside(config):
    kept, spec = uploads.model_of(json.dumps(config).encode(), file_name="config.json")
    assert kept.name == "My-Model-1B/config.json"
    assert spec.layers == 16
    scenario = uploads.with_files(work.load_preset("llama3-70b-256xh100"), {"model": kept})
    assert scenario.model_spec.name == "My-Model-1B"
    assert scenario.model_spec.hidden == 2048
    assert "My-Model-1B" in work.one_line(scenario)
    assert str(uploads.folder()) not in work.one_line(scenario)
    assert uploads.without_paths(f"cannot read {scenario.model}") == "cannot read My-Model-1B/config.json"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not a config"),
        (b"[1]", "no object"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "nested"),
        (b"[" * 100_000, "not a config"),
    ],
)
def test_what_is_no_config_is_refused(raw, words):
    with pytest.raises(ValueError, match=words):
        uploads.model_of(raw, file_name="../../config.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "../../etc"}, "not known"),
        ({"hidden_size": 10**30}, "whole number"),
        ({"pad": "x" * 300_000}, "larger"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_hostile_configs_are_refused(config, change, words, pack):
    with pytest.raises(ValueError, match=words):
        uploads.model_of(pack(json.dumps(config | change).encode()), file_name="../../config.json")


def test_a_log_becomes_the_fabric_and_slows_the_plan(log):
    kept, samples, notes = uploads.fabric_of(log.encode(), file_name="../<b>slow</b>.txt")
    assert kept.name == "b-slow-b.fabric.json" or kept.name.endswith(".fabric.json")
    assert "/" not in kept.name
    assert len(samples) == 6
    assert not notes
    scenario = work.load_preset("llama2-7b-lab-4x8xa100-ethernet")
    name = next(iter(scenario.strategies))
    measured = uploads.with_files(scenario, {"fabric": kept})
    plain, slow = (forecast_strategy(scenario=s, name=name, engine="fast") for s in (scenario, measured))
    assert slow.value("step_s.p50") > plain.value("step_s.p50")
    document = work.comparison(measured.model_dump_json())
    assert str(uploads.folder()) not in json.dumps(document)


@pytest.mark.parametrize("raw", [b"", b"{}", b"{" * 5000, b"\xff" * 1000, b"1 " * 500_000, b"# Rank 0\n" * 1000])
def test_logs_without_a_measurement_are_refused(raw):
    with pytest.raises(ValueError, match=r"."):
        uploads.fabric_of(raw, file_name="x")


def test_runs_are_checked_before_anything_runs():
    data, count = uploads.runs_of(gzip.compress(work.runs_template()))
    assert count == 2
    assert data.startswith(b"id,")
    for raw, words in (
        (b"a,b\n1,2\n", "lacks"),
        (b"", "rows"),
        (b"metric,measured,gpu\n" + b"x,1,y\n" * 2000, "rows"),
        (bomb(10_000_000), "larger"),
        (b'metric,measured,gpu\n"' + b"x" * 200_000, "CSV"),
    ):
        with pytest.raises(ValueError, match=words):
            uploads.runs_of(raw)


def test_a_bundle_reads_back_in_another_folder(tmp_path, config, log):
    model = uploads.model_of(json.dumps(config).encode(), file_name="config.json")[0]
    fabric = uploads.fabric_of(log.encode(), file_name="lab.txt")[0]
    files = {"model": model, "fabric": fabric}
    base = work.load_preset("llama2-7b-lab-4x8xa100-ethernet")
    scenario = uploads.with_files(base, files)
    local, used = uploads.bundle(scenario, files)
    text = work.to_yaml(local)
    assert str(uploads.folder()) not in text
    for name, data in used.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "scenario.yaml").write_text(text)
    again = load_scenario(tmp_path / "scenario.yaml")
    assert again.model_spec == scenario.model_spec
    assert again.hash() == scenario.hash()


def test_no_file_no_change():
    scenario = work.load_preset("gpt2-124m-8xh100")
    assert uploads.with_files(scenario, {}) is scenario
    local, used = uploads.bundle(scenario, {})
    assert isinstance(local, Scenario)
    assert not used
