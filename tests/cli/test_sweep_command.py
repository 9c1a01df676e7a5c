"""`planner sweep` as people and scripts call it."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO = "scenarios/gpt2-124m-8xh100.yaml"


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", "sweep", *args], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_json_and_picture(tmp_path):
    picture = tmp_path / "curve.svg"
    done = run(DEMO, "--gpus", "8..1024", "--strong", "--json", "--picture", str(picture))
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert {c["kind"] for c in document["curves"]} == {"strong"}
    assert document["knee"]["gpus"] < document["points"][-1]["gpus"]
    assert picture.read_text().startswith("<svg")


def test_exit_codes(tmp_path):
    assert run(DEMO, "--gpus", "many").returncode == 1
    assert run(DEMO, "--gpus", "64..8").returncode == 1
    assert run(DEMO, "--picture", str(tmp_path / "x.png"), "--gpus", "8").returncode == 1
    assert run("scenarios/llama31-405b-16384xh100.yaml", "--gpus", "8..16").returncode == 2
