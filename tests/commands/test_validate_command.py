"""`planner validate` at the command line: the page and the site."""

import csv
import json
import subprocess
import sys
from pathlib import Path

from planner.validate.runs import packaged_rows

ROOT = Path(__file__).resolve().parents[2]
ROWS = [r for r in packaged_rows() if r["source"] == "InternEvo train_performance"][:12]


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", *args], capture_output=True, text=True, cwd=ROOT, check=False
    )


def rows_file(path):
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, fieldnames=list(ROWS[0]))
        out.writeheader()
        out.writerows(ROWS)
    return str(path)


def test_fit_then_validate_with_the_site_and_a_page(tmp_path):
    rows, site, page = rows_file(tmp_path / "rows.csv"), str(tmp_path / "site.json"), tmp_path / "page.html"
    assert run("fit", "--runs", rows, "--out", site).returncode == 0
    done = run("validate", "--runs", rows, "--site", site, "--report", str(page), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    judged = [a for a in document["rows"] if a["metric"] == "tokens_per_s_per_gpu" and not a["skipped"]]
    assert judged
    assert all(a["site"] and "site_fitted_to_this_run" in a["flags"] for a in judged)
    assert "a fit, not a forecast" in page.read_text()


def test_wrong_site_or_page_is_one(tmp_path):
    rows = rows_file(tmp_path / "rows.csv")
    (tmp_path / "bad.json").write_text("{}")
    assert run("validate", "--runs", rows, "--site", str(tmp_path / "bad.json")).returncode == 1
    assert run("validate", "--kernels", "--site", str(tmp_path / "bad.json")).returncode == 1
    done = run("validate", "--runs", rows, "--report", str(tmp_path / "page.doc"), "--json")
    assert done.returncode == 1
    assert "errors" in json.loads(done.stdout)
