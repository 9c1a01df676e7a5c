"""Reported figures that no machine of that kind can have reached, with the likely reason.

Every test compares a row with the data sheet or with itself; a forecast is only used to name the reason.
"""

import re
from collections.abc import Mapping

from planner.cost.rates import hot_rate
from planner.simulate.assemble import StepAnswer
from planner.validate.setup import Setup
from planner.workload.params import total_params

Row = Mapping[str, str]

SIZE_MARGIN = 0.15  # names round: "GPT-3 175B" has 174.6, "LLaMA 7B" 6.7
SPARSE = 2.0  # NVIDIA's 2:4 sparse peak over the dense one
RECOMPUTED = 4.0 / 3.0  # hardware over model FLOPs when every layer runs forward twice


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").strip())
    except ValueError:
        return None


def implied_mfu(*, row: Row, answer: StepAnswer, measured: float, predicted: float) -> float:
    """Model FLOPs over the dense peak that the measured value implies, whatever its unit.

    The forecast knows the model FLOPs of a step; measured and forecast differ by the ratio of their speeds.
    """
    ours = answer.model_flops_per_s_per_gpu / answer.peak_flops
    speed = predicted / measured if row.get("metric") == "step_time_s" else measured / predicted
    return ours * speed


def impossible_flags(
    *, row: Row, setup: Setup, answer: StepAnswer, measured: float, predicted: float
) -> tuple[str, ...]:
    """Flags of one row: `above_peak`, `above_attainable`, `sparse_peak`, `hfu_as_mfu`, `model_size`, each with why."""
    flags = [*_against_hardware(row=row, setup=setup, answer=answer, measured=measured, predicted=predicted)]
    peak = _number(row.get("mfu_peak_tflops"))
    if peak and 0.9 * SPARSE < peak * 1e12 / answer.peak_flops < 1.1 * SPARSE:
        flags.append(f"sparse_peak: {peak:.0f} TFLOP/s is twice the dense peak; the real MFU is twice the printed one")
    stated = _number(row.get("params_b"))
    ours = total_params(setup.model) / 1e9
    if stated and abs(stated / ours - 1.0) > SIZE_MARGIN:
        flags.append(f"model_size: the shape gives {ours:.3g} B parameters, the row says {stated:.3g} B")
    return tuple(flags)


def _against_hardware(
    *, row: Row, setup: Setup, answer: StepAnswer, measured: float, predicted: float
) -> tuple[str, ...]:
    mfu = implied_mfu(row=row, answer=answer, measured=measured, predicted=predicted)
    if setup.layout.lora_rank:
        mfu *= 2.0 / 3.0  # frozen weights have no gradient product
    if mfu > 1.0:
        reason = "sparse peak taken for dense, tokens counted twice, or another model"
        return (f"above_peak: {mfu:.2f} of the dense peak in model FLOPs; {reason}",)
    if setup.layout.precision in {"bf16", "fp16"}:
        limit = hot_rate(gpu=setup.machine.gpu, dtype="bf16").plateau_flops / answer.peak_flops
        if mfu > limit:
            reason = "padding removed but counted, hardware FLOPs called model FLOPs, or another model"
            return (f"above_attainable: {mfu:.2f} of peak where hot matrix products alone reach {limit:.2f}; {reason}",)
    fast = predicted / measured if row.get("metric") == "step_time_s" else measured / predicted
    counted = row.get("metric") in {"mfu_pct", "tflops_per_gpu"} and row.get("flops_def") in {
        "full",
        "causal",
        "unknown",
    }
    full = re.match("full", row.get("recompute") or "")
    if counted and full and 0.9 * RECOMPUTED < fast < 1.15 * RECOMPUTED:
        return (f"hfu_as_mfu: {fast:.2f} times the forecast under full recompute; recomputed FLOPs may be counted",)
    return ()
