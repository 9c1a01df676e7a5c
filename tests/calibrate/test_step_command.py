"""`calibrate step` on a machine without a GPU: measured parts are real, and a missing forecast says why."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="calibrate needs torch")

from calibrate.measure import against
from planner.profile.load import load_profile
from planner.workload.torch_step import StepShape

SMALL = StepShape(
    kind="gpt", layers=12, hidden=768, heads=12, kv_heads=12, ffn=3072, vocab=50304, micro_batch=8, sequence=1024,
    accumulation=1, mode="eager", precision="amp", optimizer="fused", recompute=False,
)  # fmt: skip


def test_measured_parts_add_up_on_this_machine() -> None:
    command = [sys.executable, "-m", "calibrate.cli", "step", "--seconds", "0.2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    measured = document["measured"]
    assert measured["step_p10_s"] <= measured["step_s"] <= measured["step_p90_s"]
    assert measured["forward_backward_s"] + measured["update_s"] == pytest.approx(measured["step_s"], rel=1.0)
    if document["device"] == "cpu":
        assert document["forecast"] is None
        assert "calibrate run" in document["why_no_forecast"]


def test_sizes_that_do_not_divide_are_refused() -> None:
    command = [sys.executable, "-m", "calibrate.cli", "step", "--hidden", "100", "--heads", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "multiple of heads" in done.stderr


def test_forecast_of_a_profiled_gpu_is_that_of_validate_steps() -> None:
    from planner.cost.profiled import ProfiledCosts
    from planner.simulate.profiled_step import profiled_step

    profile = load_profile("h200-sxm")
    parts = against.forecast_parts(profile=profile, shape=SMALL)
    step = profiled_step(costs=ProfiledCosts(profile), shape=SMALL)
    assert parts["step_s"] == step.step_s
    assert parts["forward_backward_s"] + parts["update_s"] == pytest.approx(step.step_s, rel=0.1)


def test_a_profile_of_another_gpu_is_not_used() -> None:
    found, why = against.profile_for(name="h200-sxm", gpu="A100-80-SXM")
    assert found is None
    assert "H200-SXM" in why
    assert "A100-80-SXM" in why
    found, why = against.profile_for(name=None, gpu="H200-SXM")
    assert found is not None
    assert not why
