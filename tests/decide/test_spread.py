"""Tasks on cores and results in files: nothing done twice, nothing lost, the same answer."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.decide.run import simulate_chunks
from planner.decide.search import search_machine, sweep_plans
from planner.decide.sensitivity import sensitivity
from planner.decide.spread import ONE_CORE, Job, SpreadError, Stopped, Where, call, fingerprint, spread
from planner.decide.store import Store
from planner.decide.sweep import sweep_document
from planner.scenario import load_scenario, parse_scenario
from planner.simulate.run.plan import RunPlan

KINDS = {"x": "int", "root": "float", "name": "str", "odd": "bool", "series": "floats"}
DEMO = Path(__file__).parents[2] / "scenarios" / "llama3-70b-256xh100.yaml"
TWO = Where(cores=2)
PARQUET = importlib.util.find_spec("pyarrow") is not None
ENDINGS = ["jsonl", pytest.param("parquet", marks=pytest.mark.skipif(not PARQUET, reason="needs pyarrow"))]


def rows(x: int) -> dict[str, list[Any]]:
    return {
        "x": [x, x + 1],
        "root": [x**0.5, 0.1],
        "name": [f"n{x}", None],
        "odd": [x % 2 == 1, None],
        "series": [[x / 3, 2.0], None],
    }


def logged(x: int, log: str) -> dict[str, list[Any]]:
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{x}\n")
    return rows(x)


def job(*, log: Path | None = None, count: int = 6, function: Any = None, **identity: Any) -> Job:
    tasks = {f"k{x}": (x,) if log is None else (x, str(log)) for x in range(count)}
    return Job(function=function or (rows if log is None else logged), tasks=tasks, kinds=KINDS, identity=identity)


def test_one_core_and_two_give_the_same_in_the_order_of_the_tasks():
    one, two = spread(job=job()), spread(job=job(), where=TWO)
    assert list(one) == list(two) == [f"k{x}" for x in range(6)]
    assert one == two


def where_am_i(x: int) -> dict[str, list[int]]:
    return {"x": [os.getpid()]}


@pytest.mark.parametrize(("expected_s", "others"), [(0.5, False), (5.0, True), (None, True)])
def test_work_under_a_second_stays_in_this_process(expected_s, others):
    tasks = {str(i): (i,) for i in range(4)}
    found = spread(job=Job(where_am_i, tasks, {"x": "int"}, {}, expected_s), where=TWO)
    assert any(t["x"][0] != os.getpid() for t in found.values()) is others


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_second_call_computes_nothing_and_a_larger_one_what_is_missing(tmp_path, ending):
    log, where = tmp_path / "log", Where(cores=1, out=tmp_path / f"out.{ending}")
    first = spread(job=job(log=log, count=3), where=where)
    assert spread(job=job(log=log, count=3), where=where) == first == spread(job=job(count=3))
    assert log.read_text().split() == ["0", "1", "2"]
    assert spread(job=job(log=log, count=5), where=where) == spread(job=job(count=5))
    assert log.read_text().split() == ["0", "1", "2", "3", "4"]
    assert not (tmp_path / f"out.{ending}.parts").exists()


def stops(x: int, log: str) -> dict[str, list[Any]]:
    if x == 3 and not Path(log).with_name("again").exists():
        raise KeyboardInterrupt
    return logged(x, log)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_interruption_keeps_what_is_done_and_the_next_call_does_the_rest(tmp_path, ending):
    log, where = tmp_path / "log", Where(cores=1, out=tmp_path / f"out.{ending}")
    with pytest.raises(Stopped, match="3 of 6 tasks are kept") as stop:
        spread(job=job(log=log, function=stops), where=where)
    assert list(stop.value.done) == ["k0", "k1", "k2"]
    if ending == "parquet":
        from pyarrow import parquet

        assert parquet.read_table(f"{where.out}.parts")["x"].to_pylist() == [0, 1, 1, 2, 2, 3]
    (tmp_path / "again").touch()
    resumed = spread(job=job(log=log, function=stops), where=where)
    assert log.read_text().split() == ["0", "1", "2", "3", "4", "5"]
    assert resumed == spread(job=job())
    whole = Where(cores=1, out=tmp_path / f"whole.{ending}")
    spread(job=job(), where=whole)
    assert where.out is not None
    assert whole.out is not None
    assert where.out.read_bytes() == whole.out.read_bytes()


def dies_once(x: int, log: str) -> dict[str, list[Any]]:
    if x == 2 and not Path(log).with_name("died").exists():
        Path(log).with_name("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return rows(x)


def test_a_killed_process_loses_nothing(tmp_path):
    assert spread(job=job(log=tmp_path / "log", function=dies_once), where=TWO) == spread(job=job())
    assert (tmp_path / "died").exists()


def dies(x: int, log: str) -> dict[str, list[Any]]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_workers_that_always_die_end_the_job(tmp_path):
    with pytest.raises(SpreadError, match="3 times"):
        spread(job=job(log=tmp_path / "log", function=dies), where=TWO)


def fails(x: int) -> dict[str, list[Any]]:
    raise ArithmeticError("of its own")


@pytest.mark.parametrize("where", [ONE_CORE, TWO])
def test_an_error_of_a_task_is_raised_as_it_is(where):
    with pytest.raises(ArithmeticError, match="of its own"):
        spread(job=job(function=fails), where=where)


def test_another_job_and_another_ending_are_refused(tmp_path):
    where = Where(cores=1, out=tmp_path / "out.jsonl")
    spread(job=job(seed=1), where=where)
    with pytest.raises(SpreadError, match=r"another job \(seed 1 and not 2"):
        spread(job=job(seed=2), where=where)
    (tmp_path / "notes.jsonl").write_text("a shopping list\n")
    with pytest.raises(SpreadError, match="of an unknown kind"):
        spread(job=job(), where=Where(out=tmp_path / "notes.jsonl"))
    with pytest.raises(SpreadError, match=r"\.parquet or \.jsonl"):
        spread(job=job(), where=Where(out=tmp_path / "out.csv"))


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SpreadError, match=r"cluster-planner\[parquet\].*\.jsonl"):
        spread(job=job(), where=Where(out=tmp_path / "out.parquet"))
    assert spread(job=job(), where=Where(out=tmp_path / "out.jsonl"))


def test_a_worker_of_another_version_is_refused():
    _, outcome = call("0.0.0", rows, "k", (1,))
    assert isinstance(outcome, SpreadError)


numbers = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), numbers, st.text(max_size=5)), min_size=1, max_size=5))
@pytest.mark.parametrize("ending", ENDINGS)
def test_files_give_back_every_bit(tmp_path_factory, ending, values):
    path = tmp_path_factory.mktemp("bits") / f"out.{ending}"
    table = {"a": [v[0] for v in values], "b": [v[1] for v in values], "c": [v[2] for v in values]}
    kinds = {"a": "int", "b": "float", "c": "str"}
    store = Store(path=path, kinds=kinds, identity={})
    store.put("one", table)
    assert json.dumps(store.done(["one"])["one"]) == json.dumps(table)
    store.finish(["one"])
    assert json.dumps(Store(path=path, kinds=kinds, identity={}).done(["one"])["one"]) == json.dumps(table)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_fingerprint_is_the_same_in_every_process(hash_seed):
    code = (
        "from pathlib import Path; from planner.decide.search import search_machine; "
        "from planner.decide.spread import fingerprint; from planner.scenario import load_scenario; "
        f"print(fingerprint(search_machine(load_scenario(Path({str(DEMO)!r}))), {{'b', 'a', 'c'}}))"
    )
    env = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    here = fingerprint(search_machine(load_scenario(DEMO)), {"a", "b", "c"})
    assert done.stdout.strip() == here != fingerprint(search_machine(load_scenario(DEMO)), {"a", "b"})


HARSH = RunPlan(work_s=20 * 86400, nodes=512, node_failures_per_s=1e-7, interval_s=600, restart_s=900)
SMALL = """
name: small
model: gpt2-124m
cluster: {node: hgx-h100, nodes: 1}
training: {tokens: 1e9, sequence_length: 1024, global_batch_sequences: 64}
strategies: {stack: {preset: stack}, written: {tp: 2, pp: 2, micro_batch_sequences: 1}}
"""


def replications(where: Where) -> Any:
    return [c.elapsed_s.tolist() for c in simulate_chunks(plan=HARSH, replications=1200, seed=4, where=where)]


def sweep_answer(where: Where) -> Any:
    return sweep_document(scenario=load_scenario(DEMO), name="engineered", gpus=[32, 64, 128, 256], where=where)


def search_answer(where: Where) -> Any:
    found = sweep_plans(scenario=parse_scenario(SMALL), precision="bf16", where=where)
    return [(c.step_s, c.memory_bytes, c.layout) for c in (*found.best, *found.front)], found.plans_scored


def sensitivity_answer(where: Where) -> Any:
    return sensitivity(scenario=load_scenario(DEMO), strategy="engineered", samples=64, where=where)


@pytest.mark.parametrize("answer", [replications, sweep_answer, search_answer, sensitivity_answer])
def test_every_command_answers_the_same_on_cores_and_from_a_file(tmp_path, answer, monkeypatch):
    monkeypatch.setattr("planner.decide.spread.WORTH_S", 0.0)
    plain = answer(ONE_CORE)
    assert answer(TWO) == plain
    for ending in ("jsonl", "parquet") if PARQUET else ("jsonl",):
        out = Where(cores=2, out=tmp_path / f"out.{ending}")
        assert answer(out) == plain
        with monkeypatch.context() as patch:
            patch.setattr("planner.decide.spread._outcomes", None)  # nothing is left to compute
            assert answer(out) == plain
