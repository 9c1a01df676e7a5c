"""`planner import-run` at the command line, and on to `fit` and `validate`."""

import csv
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ("--model", "llama3-8b", "--node", "hgx-h100", "--nodes", "4")


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", *args], capture_output=True, text=True, cwd=ROOT, check=False
    )


def log_file(path, seconds):
    lines = [
        f" iteration {i}/ 100 | consumed samples: 128 | elapsed time per iteration (ms): {1e3 * seconds + i} | "
        "global batch size:   128 | lm loss: 7.1 |"
        for i in range(20)
    ]
    path.write_text("starting\n" + "\n".join(lines) + "\n")
    return str(path)


def test_two_logs_become_a_table_that_fit_and_validate_read(tmp_path):
    out, site = tmp_path / "runs.csv", str(tmp_path / "site.json")
    options = (*MODEL, "--out", str(out), "--sequence", "8192", "--source", "lab", "--year", "2025")
    for name, seconds, tp in (("a", 6.0, "1"), ("b", 5.8, "2"), ("b", 5.9, "2")):
        done = run(
            "import-run", log_file(tmp_path / f"{name}.log", seconds), *options, "--tp", tp, "--micro-batch", "1"
        )
        assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(out.open()))
    assert [(r["id"], r["tp"], r["gbs"], r["metric"]) for r in rows] == [
        ("a", "1", "128", "step_time_s"),
        ("b", "2", "128", "step_time_s"),
    ]
    assert 5.9 < float(rows[1]["measured"]) < 5.92
    assert run("fit", "--runs", str(out), "--out", site).returncode == 0
    document = json.loads(run("validate", "--runs", str(out), "--site", site, "--json").stdout)
    assert [a["skipped"] for a in document["rows"]] == [None, None]
    assert all(a["site"] and a["source"] == "lab" for a in document["rows"])


def test_errors_name_file_and_line_and_leave_the_table_alone(tmp_path):
    out, log = tmp_path / "runs.csv", tmp_path / "a.log"
    log.write_text("hello\n iteration 1/ 9 | elapsed time per iteration (ms): N/A |\n")
    done = run("import-run", str(log), *MODEL, "--out", str(out), "--sequence", "8192", "--json")
    assert done.returncode == 1
    (problem,) = json.loads(done.stdout)["errors"]
    assert (problem["file"], problem["line"]) == (str(log), 2)
    done = run("import-run", str(log), *MODEL, "--out", str(out), "--sequence", "8192")
    assert f"{log}:2:" in done.stderr
    good = log_file(tmp_path / "b.log", 6.0)
    for wrong in (
        ("--model", "lama3-8b"),
        ("--node", "nope"),
        ("--recompute", "some"),
        ("--gpus-per-node", "9"),
        ("--precision", "int3"),
    ):
        assert run("import-run", good, *MODEL, "--out", str(out), "--sequence", "8192", *wrong).returncode == 1
    assert run("import-run", good, *MODEL, "--out", str(out)).returncode == 1
    assert run("import-run", str(tmp_path / "none.log"), *MODEL, "--out", str(out)).returncode == 1
    assert not out.exists()
