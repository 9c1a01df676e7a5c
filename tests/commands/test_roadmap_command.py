"""`planner roadmap` at the command line."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO = "scenarios/llama3-70b-256xh100.yaml"
KEYS = {"key", "class", "side", "gain_frac", "gain_alone_frac", "effort_weeks", "maintenance_weeks_per_year"}
KEYS |= {"payback_date", "p_success", "risk", "lock_in", "checks"}
TOP = {"schema_version", "scenario_hash", "versions", "seed", "bottleneck", "ceilings", "steps", "waterfall", "cutoff"}
TOP |= {"switch_when", "target"}


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", "roadmap", *args], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_document_follows_the_contract():
    done = run(DEMO, "--json", "--start", "2026-12-01")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert set(document) >= TOP
    assert set(document["ceilings"]) >= {"glue", "operator", "parallel"}
    assert set(document["cutoff"]) >= {"stop", "next_gain_usd", "next_cost_usd"}
    assert set(document["target"]) >= {"speedup", "p_incremental", "structural_needed"}
    assert all(set(s) >= KEYS for s in document["steps"])


def test_missed_target_is_three_and_bad_input_one(tmp_path):
    text = (ROOT / DEMO).read_text().replace("probability: 0.8", "probability: 0.8, target_speedup: 10")
    path = tmp_path / "ten.yaml"
    path.write_text(text)
    assert run(str(path)).returncode == 3
    assert run(DEMO, "--strategy", "nope").returncode == 1
    assert run(DEMO, "--start", "soon").returncode == 1
    assert run(DEMO, "--history", str(tmp_path / "none.csv")).returncode == 1
