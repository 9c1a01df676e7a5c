"""A simulated step and a resolved strategy as lines and blocks of the forecast document (contract 3)."""

from dataclasses import asdict
from typing import Any

from planner.catalog.line import Line
from planner.simulate.assemble import StepAnswer
from planner.workload.exchange import PLAIN
from planner.workload.layout import Layout
from planner.workload.resolve import Resolved


def worst_label(answer: StepAnswer) -> str:
    """The worst label among kernels that make at least 2 % of the step."""
    order = ("measured", "interpolated", "published", "fitted", "transferred", "datasheet", "assumed")
    seen = [label for label, share in answer.label_share if share >= 0.02]
    return max(seen, key=order.index) if seen else "assumed"


def step_lines(*, answer: StepAnswer, resolved: Resolved, profile: str | None = None) -> list[Line]:
    """Breakdown, step, rate and memory of a step as lines."""
    label = worst_label(answer)
    kernels = f"kernels of profile {profile}" if profile else "kernel"
    source = f"{kernels} and collective tables; {answer.engine} engine; software {resolved.software.framework}"
    out = [
        Line(
            f"breakdown_s.{k}",
            v,
            "s",
            "sum over operators of a step, mean over GPUs",
            ("workload", "cost"),
            label,
            source,
        )
        for k, v in answer.breakdown_s
    ]
    out.append(
        Line(
            "step_s.p50",
            answer.step_s,
            "s",
            "sum of breakdown_s",
            tuple(f"breakdown_s.{k}" for k, _ in answer.breakdown_s),
            label,
            source,
        )
    )
    lay = resolved.layout
    out.append(
        Line(
            "tokens_per_s_per_gpu",
            answer.tokens_per_s / lay.gpus,
            "token/s",
            "global_batch x sequence / step / GPUs",
            ("step_s.p50", f"global_batch={lay.global_batch}", f"sequence={lay.sequence}", f"gpus={lay.gpus}"),
            label,
            source,
        )
    )
    out.append(
        Line(
            "mfu",
            answer.model_flops_per_s_per_gpu / answer.peak_flops,
            "1",
            "(6 N_active without input embedding + causal-halved attention) x tokens/s/GPU / dense peak",
            ("tokens_per_s_per_gpu", f"peak_flops={answer.peak_flops:.4g}"),
            label,
            "arXiv 2204.02311 appendix B",
        )
    )
    m = answer.memory
    for key, value in (
        ("weights", m.weights_bytes),
        ("gradients", m.gradients_bytes),
        ("optimizer", m.optimizer_bytes),
        ("activations", m.activations_bytes),
        ("buffers", m.buffers_bytes),
        ("reserved", m.reserved_bytes),
    ):
        out.append(
            Line(
                f"memory_gb.{key}",
                value / 1e9,
                "GB",
                "bytes on the fullest rank",
                ("layout", "model"),
                "assumed" if key == "reserved" else "published",
                "arXiv 2205.05198, 1910.02054",
            )
        )
    return out


def memory_document(answer: StepAnswer) -> dict[str, float]:
    """The memory block of contract 3."""
    m = answer.memory
    gb = 1e9
    return {
        "weights": m.weights_bytes / gb,
        "gradients": m.gradients_bytes / gb,
        "optimizer": m.optimizer_bytes / gb,
        "activations": m.activations_bytes / gb,
        "buffers": m.buffers_bytes / gb,
        "reserved": m.reserved_bytes / gb,
        "peak_load": m.peak_load_bytes / gb,
        "peak_first_step": m.peak_first_step_bytes / gb,
        "peak": m.peak_bytes / gb,
        "capacity": answer.capacity_bytes / gb,
        "worst_rank": m.stage,
    }


def strategy_document(resolved: Resolved, *, applied: tuple[str, ...] = ()) -> dict[str, Any]:
    """The resolved strategy in the scenario's own keys."""
    lay: Layout = resolved.layout
    return {
        "tp": lay.tp,
        "pp": lay.pp,
        "vpp": lay.vpp,
        "dp": lay.dp,
        "cp": lay.cp,
        "ep": lay.ep,
        "etp": lay.etp,
        "sequence_parallel": lay.sequence_parallel,
        "zero_stage": lay.zero_stage,
        "micro_batch_sequences": lay.micro_batch,
        "micro_batches": lay.micro_batches,
        "schedule": lay.schedule,
        "recompute": lay.recompute,
        "recompute_modules": list(lay.recompute_modules),
        "recompute_layers": lay.recompute_layers or None,
        "precision": lay.precision,
        "optimizer": lay.optimizer,
        "gradient_compression": lay.exchange.kind if lay.exchange == PLAIN else asdict(lay.exchange),
        "overlap": {"dp": resolved.software.dp_overlap, "tp": resolved.software.tp_overlap_frac},
        "framework": {"name": resolved.software.framework, "release": resolved.software.from_year},
        "optimisations": list(applied),
        "chosen": dict(resolved.choices),
    }
