"""Collectives measured with two gloo ranks, and alone; needs torch."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from planner.profile.load import load_profile

pytest.importorskip("torch", reason="torch is not installed")
ROOT = Path(__file__).resolve().parents[2]
OPS = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"}


def measure(*, out, ranks, port=0):
    words = [sys.executable, "-m", "calibrate.measure.collectives", "--out", str(out), "--largest-bytes", "1050000"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    if ranks == 1:
        workers = [subprocess.Popen(words, env=env, cwd=ROOT)]
    else:
        env |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GROUP_RANK": "0"}
        workers = [subprocess.Popen(words, env=env | {"RANK": str(r)}, cwd=ROOT) for r in range(ranks)]
    assert [w.wait(timeout=120) for w in workers] == [0] * ranks
    return load_profile(str(out))


def test_two_ranks_fill_a_profile_with_collectives_and_overlap(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    profile = measure(out=tmp_path / "two.json", ranks=2, port=port)
    wire = [s for s in profile.samples if s.kind == "collective"]
    assert {s.op for s in wire} == OPS
    assert {s.shape["bytes"] for s in wire} >= {1024, 2**20}
    assert all((s.shape["ranks"], s.shape["nodes"]) == (2, 1) and s.p50_s > 0 for s in wire)
    beside = [s for s in profile.samples if s.kind == "overlap"]
    assert {s.op for s in beside} >= {"collective_beside_matmul", "matmul_beside_all_reduce"}
    assert all(s.shape["alone_s"] > 0 for s in beside)
    assert any("one node" in w for w in profile.run.warnings)


def test_one_process_measures_the_rest_and_adds_sessions(tmp_path):
    out = tmp_path / "one.json"
    measure(out=out, ranks=1)
    profile = measure(out=out, ranks=1)
    assert {s.op for s in profile.samples} == {"reduce_kernel", "copy_kernel"}
    assert {s.session for s in profile.samples} == {1, 2}
    assert [w for w in profile.run.warnings if "cannot be measured" in w or "can be measured here" in w]
