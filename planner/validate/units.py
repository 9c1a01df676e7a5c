"""A forecast in the unit and counting rule of the row that it is compared with."""

from collections.abc import Mapping

from planner.simulate.assemble import StepAnswer
from planner.workload.layout import Layout


def predicted_value(*, row: Mapping[str, str], answer: StepAnswer, layout: Layout, peak_default: float) -> float | None:
    """The forecast in the row's metric and unit; None for a metric that needs other runs (time to train, scaling).

    MFU and TFLOP/s follow `flops_def`, or where it is unknown the stack's own log: causal-halved, full attention,
    hardware (a full recompute counts four forward passes, Narayanan et al. 2021) or LoRA (two thirds).
    """
    metric = row.get("metric")
    if metric == "step_time_s":
        return answer.step_s
    if metric == "tokens_per_s_per_gpu":
        return answer.tokens_per_s / layout.gpus
    if metric == "memory_gb":
        peak = answer.memory.peak_bytes + _beside_allocator(row=row, answer=answer)
        return peak / (2**30 if row.get("unit") == "GiB" else 1e9)
    if metric in {"mfu_pct", "tflops_per_gpu"}:
        flops = flops_by_definition(row=row, answer=answer, layout=layout)
        if metric == "tflops_per_gpu":
            return flops / 1e12
        try:
            peak = float(row.get("mfu_peak_tflops") or "") * 1e12
        except ValueError:
            peak = peak_default
        return 100.0 * flops / peak
    return None


def _beside_allocator(*, row: Mapping[str, str], answer: StepAnswer) -> float:
    """Bytes that the row's instrument reads on top of what the allocator hands out: nvidia-smi everything."""
    smi = "nvidia-smi" in (row.get("notes") or "") or (row.get("source") or "").startswith("BigScience")
    return answer.memory.reserved_bytes if smi else 0.0


def _logs_halved_attention(row: Mapping[str, str]) -> bool:
    """Megatron-Core's own throughput log halves a causal attention from its releases of 2025 (`training.py`, FLOPs)."""
    year = (row.get("year") or "").strip()
    return "megatron-core" in (row.get("framework") or "").lower() and year.isdigit() and int(year) >= 2025


def flops_by_definition(*, row: Mapping[str, str], answer: StepAnswer, layout: Layout) -> float:
    """FLOP/s per GPU as the row's author counts them."""
    definition = row.get("flops_def") or "unknown"
    if definition == "causal" or (definition == "unknown" and _logs_halved_attention(row)):
        return answer.model_flops_per_s_per_gpu
    if definition == "hardware":
        factor = 4 / 3 if layout.recompute == "full" else 1.0
        return answer.full_attention_flops_per_s_per_gpu * factor
    if definition == "lora":
        return answer.model_flops_per_s_per_gpu * 2 / 3
    return answer.full_attention_flops_per_s_per_gpu
