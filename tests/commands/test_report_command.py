"""`planner report` at the command line."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = "scenarios/gpt2-124m-8xh100.yaml"


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", "report", *args], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_page_and_answers_are_written(tmp_path):
    out, folder = tmp_path / "plan.html", tmp_path / "json"
    done = run(SCENARIO, "--out", str(out), "--json-dir", str(folder), "--replications", "20")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert out.read_text().startswith("<!DOCTYPE html>")
    answer = json.loads((folder / "compare.json").read_text())
    assert answer["verdict"]["choice"] in answer["strategies"]
    assert {p.name for p in folder.iterdir()} == {
        "compare.json",
        "sweep.json",
        "run-1.json",
        "run-2.json",
        "run-3.json",
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["json", "plan.html"]


def test_bad_input_is_one(tmp_path):
    assert run(SCENARIO, "--out", str(tmp_path / "a.txt")).returncode == 1
    assert run(SCENARIO, "--out", str(tmp_path / "none" / "a.html"), "--replications", "20").returncode == 1
    assert run(str(tmp_path / "none.yaml"), "--out", str(tmp_path / "a.html")).returncode == 1
