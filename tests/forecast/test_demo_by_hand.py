"""The demo's figures against a calculation written out here, from the model's shape and the printed step alone."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.decide.compare import compare
from planner.forecast import forecast_strategy
from planner.scenario import Overlap, load_scenario

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "scenarios" / "llama3-70b-256xh100.yaml"


@pytest.fixture(scope="module")
def documents():
    return compare(scenario=load_scenario(DEMO), engine="events").document["strategies"]


@pytest.mark.parametrize("name", ["stack", "engineered"])
def test_every_printed_figure(documents, name):
    d = documents[name]
    gpus, tokens, batch, seq = 256, 2.0e12, 1024, 8192
    step = d["step_s"]["p50"]
    # parts of the step add up
    assert sum(d["breakdown_s"].values()) == pytest.approx(step, rel=1e-9)
    # throughput
    assert d["tokens_per_s_per_gpu"] == pytest.approx(batch * seq / step / gpus)
    # MFU: 6 x (parameters without the input embedding) + causal attention 6 L h s, over 989 TFLOP/s dense
    hidden, layers, kv, ffn, vocab = 8192, 80, 8 * 128, 28672, 128256
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * ffn + 2 * hidden
    active = layers * layer + vocab * hidden
    flops_per_token = 6 * active + 6 * layers * hidden * seq
    assert d["mfu"] == pytest.approx(flops_per_token * d["tokens_per_s_per_gpu"] / 989e12, rel=1e-4)
    assert d["hfu"] >= d["mfu"] * 0.98
    # days: steps x step, then the goodput
    steps = -(-tokens // (batch * seq))
    assert d["days_ideal"] == pytest.approx(steps * step / 86400)
    assert d["days"]["p50"] == pytest.approx(d["days_ideal"] / d["goodput"])
    assert d["gpu_hours"] == pytest.approx(d["days"]["p50"] * 24 * gpus)
    # the bill: GPU-hours x price, storage of three checkpoints (14 bytes a parameter) and 4 bytes a token at 0.145 USD
    # a GB-month, six weeks of labour for the engineered one; the rent includes the rest
    compute = d["gpu_hours"] * d["price"]["usd_per_gpu_hour"]
    storage = (3 * 14 * 70.55 + 4 * 2000) * 0.145 * d["days"]["p50"] / (365 / 12)
    people = 6 * 5000 if name == "engineered" else 0
    assert d["cost_usd"]["compute"] == pytest.approx(compute)
    assert d["cost_usd"]["storage"] == pytest.approx(storage, rel=1e-3)
    assert d["cost_usd"]["people"] == people
    assert d["cost_usd_total"]["p50"] == pytest.approx(compute + storage + people, rel=1e-4)
    assert d["cost_usd_per_useful_gpu_hour"] == pytest.approx(
        (compute + storage) / (d["gpu_hours"] * d["goodput"]), rel=1e-4
    )
    assert d["cost_usd_per_million_tokens"] == pytest.approx((compute + storage + people) / 2e6, rel=1e-4)
    # a year's programme adds a fifth of the engineering as upkeep
    assert d["programme_usd"] == pytest.approx(compute + storage + 1.2 * people, rel=1e-4)
    # energy: GPU at its measured draw by part of the step while it works, a quarter of 700 W while it waits; the rest
    # of the 10.2 kW node at (8.4 - 5.6) / (10.2 - 5.6); 12 switches of 750 W, 512 links of 2 x 9 W; storage 5 % more
    shares = {"compute_matmul": 0.963, "compute_attention": 0.924, "compute_memory_bound": 0.711, "optimizer": 0.579}
    busy = sum(v * shares.get(k, 0.25) for k, v in d["breakdown_s"].items()) / step
    works = d["goodput"] + d["losses_frac"].get("lost_work", 0.0)
    gpu_w = 700 * (busy * works + 0.25 * (1 - works))
    host_w = (10_200 / 8 - 700) * 2.8 / 4.6
    other_w = (12 * 750 + 512 * 2 * 9) / 256 + 0.05 * 10_200 / 8
    energy = d["gpu_hours"] * (gpu_w + host_w + other_w) / 1e3 * 1.25
    assert d["energy_kwh"] == pytest.approx(energy, rel=1e-6)
    assert d["carbon_t"] == pytest.approx(energy * 369.473 / 1e6, rel=1e-6)
    # goodput and losses add up to one
    assert d["goodput"] + sum(d["losses_frac"].values()) == pytest.approx(1.0, abs=0.02)
    # efficiency, bands, memory
    assert 0.3 < d["scaling_efficiency"]["value"] <= 1.1
    assert d["step_s"]["p10"] < step < d["step_s"]["p90"]
    m = d["memory_gb"]
    parts = sum(m[k] for k in ("weights", "gradients", "optimizer", "activations", "buffers"))
    assert m["peak"] == pytest.approx(parts)
    assert d["fits"]
    assert m["peak"] + m["reserved"] <= m["capacity"]


def test_weights_of_a_rank(documents):
    # FSDP over 256 ranks: 70.55e9 parameters x 2 bytes / 256
    assert documents["stack"]["memory_gb"]["weights"] == pytest.approx(70.55e9 * 2 / 256 / 1e9, rel=0.01)
    # TP 8, PP 4: 20 layers / 8 and one embedding or head / 8, in 16 bits
    layer = 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672
    rank = (20 * layer + 128256 * 8192) / 8
    assert documents["engineered"]["memory_gb"]["weights"] == pytest.approx(rank * 2 / 1e9, rel=0.01)


def test_bubble_of_interleaving(documents):
    """(p - 1) / (m v) of the compute of a uniform pipeline; stages differ a little by embedding and head."""
    d = documents["engineered"]
    busy = d["step_s"]["p50"] - d["breakdown_s"]["bubble"] - d["breakdown_s"]["optimizer"]
    assert d["breakdown_s"]["bubble"] / busy == pytest.approx(3 / (128 * 5), abs=0.05)


def test_every_line_has_a_label_and_a_formula(documents):
    for d in documents.values():
        assert d["provenance"]
        for line in d["provenance"]:
            assert line["label"] in {
                "measured",
                "interpolated",
                "published",
                "fitted",
                "transferred",
                "datasheet",
                "assumed",
            }
            assert line["formula"]


def test_forecast_of_the_demo_is_fast():
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "planner.cli", "compare", str(DEMO), "--json"], check=True, capture_output=True, cwd=ROOT
    )
    assert time.perf_counter() - start < 4.0  # the bar is 2 s on an idle machine


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_scenario_runs_and_one_strategy_fits(path):
    comparison = compare(scenario=load_scenario(path), engine="fast")
    assert comparison.feasible
    text = json.dumps(comparison.document, allow_nan=False)
    assert json.loads(text)["verdict"]["choice"]


def test_two_micro_batches_in_flight_hide_the_exchange_of_experts():
    scenario = load_scenario(ROOT / "scenarios" / "deepseek-v3-671b-2048xh800.yaml")
    engineered = scenario.strategies["engineered"]
    exposed = {}
    for asked in (True, False):
        strategy = engineered.model_copy(update={"overlap": Overlap(ep=asked)})
        one = scenario.model_copy(update={"strategies": {"one": strategy}})
        document = forecast_strategy(scenario=one, name="one", engine="fast").document
        exposed[asked] = document["breakdown_s"]["exposed_ep"]
        assert not any("overlap" in w for w in document["warnings"])
    assert exposed[True] < 0.5 * exposed[False]
