"""A real Dask cluster of this machine that loses a worker; the Ray back end by a stand-in."""

import os
import signal
import socket
import sys
from types import ModuleType
from typing import Any

import pytest

from planner.decide import cluster
from planner.decide.run import simulate_chunks
from planner.decide.spread import Job, SpreadError, Where, spread
from planner.simulate.run.plan import RunPlan

PLAN = RunPlan(work_s=40 * 86400, nodes=512, node_failures_per_s=1e-7, interval_s=600, restart_s=900)


@pytest.fixture(scope="module")
def dask_cluster():
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("joblib")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options, silence_logs="CRITICAL") as running:
        yield running


def pids(running: Any) -> set[int]:
    from distributed import Client

    with Client(running.scheduler_address, set_as_default=False) as client:
        return set(client.run(os.getpid).values())


def test_a_worker_killed_in_the_middle_loses_nothing(dask_cluster, tmp_path):
    pytest.importorskip("pyarrow")
    before = pids(dask_cluster)
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        if text.endswith(" tasks") and len([t for t in told if t.endswith(" tasks")]) == 1:
            os.kill(min(before), signal.SIGKILL)

    where = Where(backend="dask", address=dask_cluster.scheduler_address, out=tmp_path / "runs.parquet", say=say)
    found = simulate_chunks(plan=PLAN, replications=4800, seed=4, where=where)
    plain = simulate_chunks(plan=PLAN, replications=4800, seed=4)
    assert len(found) == 8
    assert [c.elapsed_s.tolist() for c in found] == [c.elapsed_s.tolist() for c in plain]
    assert [c.losses_s.tolist() for c in found] == [c.losses_s.tolist() for c in plain]
    assert min(before) not in pids(dask_cluster)


def given_up(x: int, path: str) -> dict[str, list[int]]:
    """Kills its worker the first time."""
    if x == 1 and not os.path.exists(path):
        with open(path, "w", encoding="utf-8"):
            os.kill(os.getpid(), signal.SIGKILL)
    return {"x": [x]}


def test_a_task_that_dask_gives_up_is_done_again(dask_cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE_S", 3.0)
    scheduler = dask_cluster.scheduler
    monkeypatch.setattr(scheduler, "allowed_failures", 0)
    tasks = {str(x): (x, str(tmp_path / "died")) for x in range(3)}
    told: list[str] = []
    where = Where(backend="dask", address=dask_cluster.scheduler_address, say=told.append)
    found = spread(job=Job(given_up, tasks, {"x": "int"}, {}), where=where)
    assert [t["x"] for t in found.values()] == [[0], [1], [2]]
    assert any("a worker was lost" in t for t in told)


def test_workers_of_another_version_are_named(dask_cluster, monkeypatch):
    monkeypatch.setattr(cluster, "__version__", "9.9.9")
    where = Where(backend="dask", address=dask_cluster.scheduler_address)
    with pytest.raises(SpreadError, match=r"runs planner .* install planner 9\.9\.9 on every worker"):
        simulate_chunks(plan=PLAN, replications=10, seed=1, where=where)


@pytest.mark.parametrize(("backend", "text"), [("dask", "no Dask scheduler"), ("ray", "no Ray cluster")])
def test_an_address_where_nobody_is(backend, text, monkeypatch):
    pytest.importorskip("joblib")
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "CONNECT_S", 0.5)
    stand_in(monkeypatch)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}" if backend == "dask" else f"127.0.0.1:{port}"
    with pytest.raises(SpreadError, match=text):
        simulate_chunks(plan=PLAN, replications=10, seed=1, where=Where(backend=backend, address=address))


def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A module `ray` whose back end for joblib is one of threads; returns what was asked of it."""
    pytest.importorskip("joblib")
    from joblib import register_parallel_backend
    from joblib._parallel_backends import ThreadingBackend

    asked: list[Any] = []
    ray, util, inside = ModuleType("ray"), ModuleType("ray.util"), ModuleType("ray.util.joblib")
    ray.init = lambda **options: asked.append(options["address"])  # type: ignore[attr-defined]
    ray.shutdown = lambda: asked.append("shutdown")  # type: ignore[attr-defined]

    def register_ray() -> None:
        asked.append("registered")
        register_parallel_backend("ray", ThreadingBackend)

    inside.register_ray = register_ray  # type: ignore[attr-defined]
    for module in (ray, util, inside):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return asked


def test_ray_is_asked_through_joblib(monkeypatch):
    asked = stand_in(monkeypatch)
    found = simulate_chunks(plan=PLAN, replications=1500, seed=4, where=Where(backend="ray", address="auto"))
    assert asked == ["auto", "registered", "shutdown"]
    assert [c.elapsed_s.tolist() for c in found] == [
        c.elapsed_s.tolist() for c in simulate_chunks(plan=PLAN, replications=1500, seed=4)
    ]


@pytest.mark.parametrize(("backend", "missing"), [("dask", "joblib"), ("dask", "distributed"), ("ray", "ray")])
def test_a_missing_extra_is_named(backend, missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SpreadError, match=rf"pip install 'cluster-planner\[{backend}\]'"):
        simulate_chunks(plan=PLAN, replications=10, seed=1, where=Where(backend=backend, address="auto"))
