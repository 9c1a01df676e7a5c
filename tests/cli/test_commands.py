"""Exit codes, pure JSON and errors that name file, line, field and nearest choice."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = "scenarios/llama3-70b-256xh100.yaml"


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", *args], capture_output=True, text=True, cwd=ROOT, check=False
    )


FIVE = """name: five errors
model: llama3-70b
cluster: {node: hgx-h1000, nodes: 4}
training:
  tokens: 400 parsecs
  sequence_length: 8192
  global_batch_sequences: -64
strategies:
  a:
    tp: 7
    tensor_parallel: 3
"""


def test_five_errors_are_named_with_their_lines(tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(FIVE)
    done = run("compare", str(bad), "--json")
    assert done.returncode == 1
    errors = json.loads(done.stdout)["errors"]
    assert {e["line"] for e in errors} >= {3, 5, 7, 10, 11}
    by_line = {e["line"]: e for e in errors}
    assert "hgx-h100" in by_line[3]["nearest"]
    assert "parsecs" in by_line[5]["message"]
    assert "64 attention heads" in by_line[10]["message"]
    assert by_line[11]["code"] == "unknown_key"
    assert all(e["file"] == str(bad) for e in errors)


def test_json_is_one_pure_document():
    done = run("compare", DEMO, "--json", "--engine", "fast")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert set(document["strategies"]) == {"stack", "engineered"}


def test_usage_error_is_one():
    assert run("compare", DEMO, "--engine", "psychic").returncode == 1
    done = run("compare", "--no-such-flag", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["errors"]
    assert run("compare", "no-such-file.yaml").returncode == 1
    assert run("forecast", DEMO, "--strategy", "nope").returncode == 1


def _scenario(tmp_path, text):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return str(path)


BASE = """model: {model}
cluster: {{node: hgx-h100, nodes: 1}}
training: {{tokens: 1e12, sequence_length: 4096, global_batch_sequences: 64}}
"""


def test_infeasible_is_two(tmp_path):
    done = run("compare", _scenario(tmp_path, BASE.format(model="gpt3-175b")), "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["verdict"]["choice"] is None


def test_missed_goal_is_three(tmp_path):
    text = BASE.format(model="llama3-8b") + "goals: {deadline_days: 1, budget_usd: 100}\n"
    done = run("compare", _scenario(tmp_path, text), "--json")
    assert done.returncode == 3
    assert "deadline" in done.stderr


def test_auto_is_searched_for(tmp_path):
    text = BASE.format(model="llama3-8b") + "strategies: {best: auto}\n"
    done = run("forecast", _scenario(tmp_path, text), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["fits"]


def test_search_counts_every_plan_and_says_why(tmp_path):
    done = run("search", _scenario(tmp_path, BASE.format(model="llama3-8b")), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    seen = answer["plans_scored"] + answer["plans_out_of_memory"]
    assert answer["plans_total"] == answer["plans_invalid"] + seen
    steps = [row["step_s"] for row in answer["best"]]
    assert steps == sorted(steps)
    assert all(row["why"] and row["limited_by"] for row in answer["best"])
    front = answer["pareto"]
    assert [p["step_s"] for p in front] == sorted(p["step_s"] for p in front)
    assert [p["memory_peak_gb"] for p in front] == sorted((p["memory_peak_gb"] for p in front), reverse=True)


def test_crash_is_seventy(monkeypatch, capsys):
    from planner import cli

    def boom(**_):
        raise RuntimeError("boom")

    monkeypatch.setattr("planner.decide.compare.compare", boom)
    monkeypatch.setattr(sys, "argv", ["planner", "compare", str(ROOT / DEMO), "--json"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 70
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == "crash"


def test_interrupt_is_130(monkeypatch):
    from planner import cli

    def stop_now(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.decide.compare.compare", stop_now)
    monkeypatch.setattr(sys, "argv", ["planner", "compare", str(ROOT / DEMO)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 130


def test_help_is_quick_and_light():
    start = time.perf_counter()
    done = run("--help")
    assert done.returncode == 0
    assert time.perf_counter() - start < 1.5  # the bar is 0.5 s on an idle machine
    code = "import planner.cli, sys; print([m for m in ('torch', 'streamlit', 'scipy', 'simpy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert out.stdout.strip() == "[]"


def test_trace_is_written(tmp_path):
    import gzip

    out = tmp_path / "t.json.gz"
    done = run("forecast", DEMO, "--strategy", "engineered", "--trace", str(out), "--json")
    assert done.returncode == 0
    data = json.loads(gzip.decompress(out.read_bytes()))
    assert len(data["traceEvents"] if isinstance(data, dict) else data) > 1000


def test_schema_is_printed():
    assert "properties" in json.loads(run("schema").stdout)


def test_sweep_over_micro_batches_is_one_document_and_draws(tmp_path):
    picture = tmp_path / "crossover.svg"
    scenario = "scenarios/gpt2-124m-crossover-h200.yaml"
    done = run("sweep", scenario, "--micro-batch", "1..8", "--picture", str(picture), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [p["micro_batch_sequences"] for p in document["points"]] == [1, 2, 4, 8]
    assert document["versions"]["profile"] == "h200-sxm"
    assert picture.read_text("utf-8").startswith("<svg")
    assert run("sweep", scenario, "--micro-batch", "8..1").returncode == 1


def test_a_profile_of_another_gpu_is_an_input_error(tmp_path):
    bad = tmp_path / "bad.yaml"
    text = (ROOT / "scenarios/gpt2-124m-crossover-h200.yaml").read_text("utf-8")
    bad.write_text(text.replace("single-h200", "hgx-h100"))
    for command in ("forecast", "compare", "sweep"):
        done = run(command, str(bad), "--json")
        assert done.returncode == 1
        message = json.loads(done.stdout)["errors"][0]["message"]
        assert "H200-SXM" in message
        assert "H100-SXM" in message
