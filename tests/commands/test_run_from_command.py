"""`planner run --from` at the command line: template, exit codes, every mistake in one document."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAN = "scenarios/llama3-70b-256xh100.yaml"


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", "run", *args], capture_output=True, text=True, cwd=ROOT, check=False
    )


@pytest.fixture
def log(tmp_path):
    printed = run("--from-template")
    assert printed.returncode == 0
    file = tmp_path / "log.csv"
    file.write_text(printed.stdout)
    return file


def test_the_template_is_an_answer_away(log):
    done = run(PLAN, "--from", str(log), "--replications", "80", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["log"]["periods"] == 2
    text = run(PLAN, "--from", str(log), "--replications", "80")
    for words in ("Plan against actual", "What the log taught", "finish date now", "what the log cannot tell"):
        assert words in text.stdout


def test_a_missed_goal_is_exit_3(log, tmp_path):
    plan = (ROOT / PLAN).read_text()
    for goal, code in (("deadline_days: 60", 3), ("deadline_days: 200", 0), ("budget_usd: 1e5", 3)):
        file = tmp_path / "plan.yaml"
        file.write_text(plan.replace("goals: {", f"goals: {{{goal}, "))
        assert run(str(file), "--from", str(log), "--replications", "80").returncode == code, goal


def test_mistakes_come_at_once_with_line_field_and_choice(log):
    log.write_text(log.read_text().replace("2026-03-01,", "1/3/2026,").replace("1.8e10", "lots"))
    done = run(PLAN, "--from", str(log), "--json")
    assert done.returncode == 1
    errors = json.loads(done.stdout)["errors"]
    assert [(e["line"], e["path"]) for e in errors] == [(2, "start"), (3, "tokens")]
    assert errors[0]["nearest"] == ["2026-03-01", "2026-01-03"]
    assert all(e["file"] == str(log) and e["message"] for e in errors)


def test_files_that_are_not_there(log):
    assert run(PLAN, "--from", "nowhere.csv").returncode == 1
    assert run("--from", str(log)).returncode == 1
