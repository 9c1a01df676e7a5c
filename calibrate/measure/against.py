"""`calibrate step`: one real training step on this machine beside its forecast from a profile, part by part."""

import argparse
import json
from dataclasses import asdict
from typing import Any

import torch

from calibrate.measure.device import header
from calibrate.measure.sampling import Sample
from calibrate.measure.step import step_samples
from planner.cost.profiled import ProfiledCosts
from planner.profile.load import ProfileError, load_profile, shipped
from planner.profile.schema import Profile
from planner.profile.surfaces import SurfaceError
from planner.simulate.profiled_step import drained_s, profiled_step
from planner.workload.torch_memory import step_memory
from planner.workload.torch_step import StepShape

TINY = {"layers": 2, "hidden": 128, "heads": 4, "ffn": 512, "vocab": 1024, "micro_batch": 1, "sequence": 128}
USUAL = {"layers": 12, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 50304, "micro_batch": 8, "sequence": 1024}


def measured_parts(samples: list[Sample]) -> dict[str, float]:
    """Seconds of step, forward with backward, and update; compile seconds and peak bytes where there are any."""
    blocks = {s["op"].split("_")[1]: s for s in samples if s["kind"] == "block"}
    out = {
        "step_s": blocks["step"]["p50_s"],
        "step_p10_s": blocks["step"]["p10_s"],
        "step_p90_s": blocks["step"]["p90_s"],
        "forward_backward_s": blocks["forward"]["p50_s"] + blocks["backward"]["p50_s"],
        "update_s": blocks["update"]["p50_s"],
    }
    for s in samples:
        if s["kind"] == "compile":
            out["compile_s"] = s["p50_s"]
        if s["kind"] == "allocator":
            out["peak_bytes"] = float(s["shape"]["peak_bytes"])
    return out


def forecast_parts(*, profile: Profile, shape: StepShape) -> dict[str, float]:
    """The same figures by forecast, with what device and host need alone and the gap between launches.

    Raises:
        SurfaceError: the profile lacks what the step needs.
    """
    costs = ProfiledCosts(profile)
    step = profiled_step(costs=costs, shape=shape)
    before, update = drained_s(costs=costs, shape=shape, clock_mhz=step.clock_mhz)
    return {
        "step_s": step.step_s,
        "forward_backward_s": before,
        "update_s": update,
        "device_s": step.device_s,
        "host_s": step.host_s,
        "launch_gap_s": max(0.0, step.step_s - step.device_s),
        "clock_mhz": step.clock_mhz,
        "peak_bytes": step_memory(shape).peak_bytes,
    }


def profile_for(*, name: str | None, gpu: str) -> tuple[Profile | None, str]:
    """The profile to forecast from, or None and what to do.

    Raises:
        ProfileError: a named profile that cannot be read.
    """
    if name:
        profile = load_profile(name)
        if profile.device.gpu != gpu:
            return None, f"profile {name} is of {profile.device.gpu}, this machine is {gpu}"
        return profile, ""
    for known in shipped():
        profile = load_profile(known)
        if profile.device.gpu == gpu:
            return profile, ""
    return (
        None,
        f"no profile of {gpu} is shipped: measure one by `calibrate run --out mine.json`, then --profile mine.json",
    )


def step_document(*, shape: StepShape, profile_name: str | None, budget_s: float = 1.0) -> dict[str, Any]:
    """Measured and forecast step of a shape on this machine; `forecast` is null with `why_no_forecast` said."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    gpu = str(header()["device"]["gpu"])
    profile, why = profile_for(name=profile_name, gpu=gpu)
    forecast: dict[str, float] | None = None
    if profile is not None:
        try:
            forecast = forecast_parts(profile=profile, shape=shape)
        except SurfaceError as error:
            why = f"the profile lacks what this step needs: {error}"
    samples = step_samples(
        kind=shape.kind, layers=shape.layers, hidden=shape.hidden, heads=shape.heads, kv_heads=shape.kv_heads,
        ffn=shape.ffn, vocab=shape.vocab, mbs=shape.micro_batch, seq=shape.sequence, mode=shape.mode,
        precision=shape.precision, optimizer=shape.optimizer, recompute=shape.recompute, device=device,
        budget_s=budget_s,
    )  # fmt: skip
    measured = measured_parts(samples)
    errors = {k: 100.0 * (forecast[k] / measured[k] - 1) for k in measured if k in forecast} if forecast else {}
    return {
        "kind": "calibrate_step",
        "device": gpu,
        "shape": {k: v for k, v in asdict(shape).items() if not isinstance(v, frozenset)},
        "measured": measured,
        "forecast": forecast,
        "error_pct": errors,
        "why_no_forecast": why or None,
    }


def _shape(a: argparse.Namespace) -> StepShape:
    sizes = (USUAL if torch.cuda.is_available() else TINY) | {k: v for k, v in vars(a).items() if k in USUAL and v}
    heads = int(sizes["heads"])
    return StepShape(
        kind=a.kind, kv_heads=a.kv_heads or heads, mode=a.mode, precision=a.precision, optimizer=a.optimizer,
        recompute=a.recompute, accumulation=1, **sizes,
    )  # fmt: skip


def main() -> None:
    """Print one JSON document; exit 1 where the profile or the shape cannot be used."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--kind", choices=["gpt", "llama"], default="gpt")
    p.add_argument("--mode", choices=["eager", "compile", "regional"], default="eager")
    p.add_argument("--precision", choices=["amp", "bf16"], default="amp")
    p.add_argument("--optimizer", choices=["fused", "foreach", "loop"], default="fused")
    p.add_argument("--recompute", action="store_true")
    p.add_argument("--profile")
    p.add_argument("--kv-heads", type=int)
    p.add_argument("--seconds", type=float, default=1.0)
    for key in USUAL:
        p.add_argument(f"--{key.replace('_', '-')}", type=int)
    a = p.parse_args()
    shape = _shape(a)
    if shape.hidden % shape.heads or shape.heads % shape.kv_heads:
        p.error(
            f"hidden {shape.hidden} must be a multiple of heads {shape.heads}, and heads of kv-heads {shape.kv_heads}"
        )
    try:
        document = step_document(shape=shape, profile_name=a.profile, budget_s=a.seconds)
    except ProfileError as error:
        p.exit(1, f"error: {error}\n")
    print(json.dumps(document))


if __name__ == "__main__":
    main()
