"""`planner size` and `planner sensitivity` at the command line: one document, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHICH = "scenarios/llama3-8b-which-cluster.yaml"
SIZE = {"feasible", "recommended", "p_deadline", "p_budget", "relax", "knee", "required", "acceptance"}
HEAD = {"schema_version", "scenario_hash", "versions", "seed"}


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", *args], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_size_document_and_text():
    done = run("size", WHICH, "--gpu", "H100", "--json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) >= SIZE | HEAD
    text = run("size", WHICH, "--gpu", "H100").stdout
    assert "cheapest:" in text
    assert "measure before paying" in text


def test_size_exit_codes(tmp_path):
    poor = tmp_path / "poor.yaml"
    poor.write_text((ROOT / WHICH).read_text().replace("budget_usd: 4.5e5", "budget_usd: 5e4"))
    done = run("size", str(poor), "--gpu", "H100")
    assert done.returncode == 3
    assert "relax" in done.stdout
    assert run("size", "scenarios/llama31-405b-16384xh100.yaml", "--gpu", "single-h200").returncode == 2
    assert run("size", WHICH, "--gpu", "h9000").returncode == 1
    assert run("size", WHICH, "--strategy", "nope").returncode == 1


def test_sensitivity_document_and_text():
    done = run("sensitivity", "scenarios/llama3-70b-256xh100.yaml", "--metric", "cost", "--json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) >= {"tornado", "sobol", "measure_next"} | HEAD
    assert "measure next" in run("sensitivity", WHICH).stdout
    assert run("sensitivity", WHICH, "--metric", "fun").returncode == 1
    assert run("sensitivity", WHICH, "--strategy", "nope").returncode == 1
