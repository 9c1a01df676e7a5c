"""`--backend`, `--cores` and `--out` from the command line, and Ctrl-C."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = "scenarios/llama3-70b-256xh100.yaml"
COMMAND = [sys.executable, "-m", "planner.cli"]


def planner(*args):
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, cwd=ROOT, check=False)


HARSH = """
name: a cluster that fails every few minutes
model: llama3-8b
cluster: {node: hgx-h100, nodes: 32}
training: {tokens: 1.0e10, sequence_length: 8192, global_batch_sequences: 512}
strategies: {written: {tp: 2, micro_batch_sequences: 1, zero_stage: 1}}
run: {failures_per_1000_node_days: 2500, rate_sigma: 0.8}
"""


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path):
    scenario, out = tmp_path / "harsh.yaml", tmp_path / "runs.jsonl"
    scenario.write_text(HARSH)
    command = [*COMMAND, "run", str(scenario), "--replications", "8000", "--json"]
    process = subprocess.Popen(
        [*command, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    parts = Path(f"{out}.parts")
    deadline = time.monotonic() + 60
    while not list(parts.glob("*.jsonl")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "the same command goes on from there" in told
    kept = {p.name: p.stat().st_mtime_ns for p in parts.glob("*.jsonl")}
    assert 1 <= len(kept) < 8
    resumed = planner(*command[3:], "--out", str(out))
    assert f"holds {len(kept)} of 8 tasks" in resumed.stderr
    assert resumed.stdout == planner(*command[3:], "--cores", "1").stdout
    assert not parts.exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--backend", "slurm"], "unknown --backend"),
        (["--backend", "dask"], "needs the --address"),
        (["--address", "tcp://here:1"], "--address is of a cluster"),
        (["--backend", "ray", "--address", "auto", "--cores", "2"], "--cores is of this machine"),
        (["--out", "runs.csv"], ".parquet or .jsonl"),
    ],
)
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_usage_errors_come_before_any_work(command, options, text):
    done = planner(command, DEMO, *options, "--json")
    assert done.returncode == 1
    assert text in json.loads(done.stdout)["errors"][0]["message"]


def test_nothing_of_a_cluster_is_imported_without_being_asked_for():
    code = (
        "import sys; import planner.cli; from planner.decide import run, search, sweep, sensitivity; "
        "print([m for m in ('joblib', 'distributed', 'dask', 'ray', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_search_keeps_its_plans_in_a_file(tmp_path):
    out = tmp_path / "plans.jsonl"
    scenario = tmp_path / "small.yaml"
    scenario.write_text(HARSH.replace("nodes: 32", "nodes: 1"))
    one = planner("search", str(scenario), "--precision", "bf16", "--json", "--out", str(out))
    two = planner("search", str(scenario), "--precision", "bf16", "--json", "--out", str(out))
    assert "holds" in two.stderr
    first, second = json.loads(one.stdout), json.loads(two.stdout)
    assert first | {"seconds": 0} == second | {"seconds": 0}
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[0]["job"] == "search"
    assert min(r["step_s"] for r in rows[1:] if r["step_s"]) == pytest.approx(first["best"][0]["closed_form_step_s"])
