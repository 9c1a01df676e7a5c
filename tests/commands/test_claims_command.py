"""`planner claims` at the command line."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", "claims", *args], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_answers_follow_the_contract():
    done = run("--only", "tenth-second", "--json")
    assert done.returncode == 0
    (answer,) = json.loads(done.stdout)
    assert set(answer) >= {"id", "sentence", "origin", "verdict", "conditions", "numbers"}


def test_no_claims_is_an_input_error(tmp_path):
    assert run(str(tmp_path)).returncode == 1
    (tmp_path / "bad.yaml").write_text("id: [")
    assert run(str(tmp_path), "--json").returncode == 1
