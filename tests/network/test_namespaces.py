"""Gloo's all-reduce between network namespaces: forecast from the rate and latency of the links, then measured."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cost.collective import collective_s
from planner.cost.types import Fabric, Group, Network

HERE = Path(__file__).parent
NODES, BITS_PER_S, LATENCY_S = 4, 200e6, 2e-3
SIZES = (4_096, 65_536, 1_048_576, 4_194_304)
# tc counts a frame with its header, 14 bytes, and not what else the wire carries: 1448 of 1514 bytes are payload.
SHAPED_FRAMING = 1448 / 1514


def _isolated(*words):
    """A command in a network namespace of its own; root needs no user namespace for it."""
    return ("unshare", "-n" if os.geteuid() == 0 else "-rn", *words)


def _why_not():
    missing = [tool for tool in ("unshare", "nsenter", "setpriv", "ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    words = "ip link add va type veth peer name vb && tc qdisc add dev va root tbf rate 1mbit burst 9000 limit 90000"
    tried = subprocess.run(_isolated("sh", "-c", words), capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"network namespaces are not permitted: {tried.stderr.strip().splitlines()[-1:] or tried.returncode}"
    return None


def network():
    fabric = Fabric(SHAPED_FRAMING, LATENCY_S, 0.0, "assumed", 0.15, "as shaped")
    return Network(
        scaleup="pcie",
        scaleup_bytes_per_s=0.0,
        scaleup_domain_gpus=1,
        gpus_per_node=1,
        scaleout="ethernet",
        node_bytes_per_s=BITS_PER_S / 8,
        nic_count=1,
        library="gloo",
        fabric=fabric,
    )


def _run():
    """Seconds of every repeat by ranks and bytes."""
    worker = (sys.executable, str(HERE / "gloo_node.py"), "{rank}", str(NODES), json.dumps(SIZES), "[2, 4]")
    links = (sys.executable, str(HERE / "links.py"), str(NODES), str(BITS_PER_S), str(LATENCY_S))
    done = subprocess.run(
        _isolated(*links, *worker, "{interface}"), capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])["answer"]


@pytest.fixture(scope="module")
def measured():
    """Best of the repeats; measured again, twice at most, while a busy machine leaves some of them slow."""
    why = _why_not()
    if why:
        pytest.skip(why)
    best = {}
    for _ in range(3):
        answer = _run()
        for ranks in (2, 4):
            for nbytes in SIZES:
                found = min(answer[str(ranks)][str(nbytes)])
                best[ranks, nbytes] = min(found, best.get((ranks, nbytes), found))
        if all(seconds <= 1.15 * _forecast_s(ranks=r, nbytes=b) for (r, b), seconds in best.items()):
            break
    return best


def _forecast_s(*, ranks, nbytes):
    group = Group(size=ranks, per_domain=1)
    return collective_s(op="all_reduce", payload_bytes=nbytes, group=group, network=network()).seconds


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("nbytes", SIZES)
def test_all_reduce_is_met_within_fifteen_percent(measured, ranks, nbytes):
    # Other work on the machine only ever adds time: the best of the repeats is the link.
    assert _forecast_s(ranks=ranks, nbytes=nbytes) == pytest.approx(measured[ranks, nbytes], rel=0.15)
