"""Allocator memory of the last rank of Megatron-Core runs, and their step time (contract 5, `megatron_golden.csv`).

Rows are Megatron-LM's own functional tests (public repository, recorded 2025-26): peak and steady bytes that PyTorch's
allocator handed out on the last rank, no caching, context or communicator buffers.
"""

import csv
import gzip
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from planner.catalog.types import MlaSpec, ModelSpec
from planner.workload.layout import Layout
from planner.workload.megatron_memory import LOGIT_BYTES, MegatronSetting, last_rank_memory

Row = Mapping[str, str]
Z80 = 1.2815515655446004
SIGMA = {"memory_gb": 0.025, "memory_steady_gb": 0.02, "step_time_s": 0.4}  # of the packaged rows, plain decoders
SIGMA_SPECIAL = 0.15  # fp8 copies, offload, several optimizers: what a plain model lacks
NOT_CONFIG = {"id", "source_detail", "metric", "measured", "unit", "notes"}


class MemoryRowError(ValueError):
    """A row that cannot be forecast, with the reason of contract 5."""


def notes_of(row: Row) -> dict[str, str]:
    """`key=value` remarks of a row."""
    parts = [p for p in (row.get("notes") or "").split("; ") if "=" in p]
    return {k.strip(): v.strip() for k, v in (p.split("=", 1) for p in parts)}


def _whole(row: Row, key: str, default: int) -> int:
    try:
        return int(float(row.get(key) or default))
    except ValueError:
        return default


def model_of_row(row: Row) -> ModelSpec:
    """The model of a row.

    Raises:
        MemoryRowError: a size is missing, or the model is not a stack of decoder layers.
    """
    notes = notes_of(row)
    if notes.get("arch") in {"encdec", "hybrid"}:
        raise MemoryRowError(f"not_a_decoder: {notes['arch']}")
    missing = [c for c in ("layers", "hidden", "heads", "vocab", "seq") if _whole(row, c, 0) <= 0]
    if missing:
        raise MemoryRowError(f"shape_missing: {', '.join(missing)}")
    heads, hidden = _whole(row, "heads", 1), _whole(row, "hidden", 1)
    mla = None
    if (row.get("mla") or "") == "yes":
        mla = _mla(notes.get("mla", ""))
    activation = row.get("activation") or "gelu"
    experts = _whole(row, "moe_experts", 0)
    total, every = _moe_layers(notes.get("moe_layers", ""), _whole(row, "layers", 1))
    return ModelSpec(
        name=row.get("model") or "megatron",
        layers=_whole(row, "layers", 1),
        hidden=hidden,
        heads=heads,
        kv_heads=_whole(row, "kv_heads", heads),
        head_dim=_whole(row, "head_dim", hidden // heads),
        ffn=_whole(row, "ffn", 4 * hidden),
        vocab=_whole(row, "vocab", 1),
        max_sequence=int(notes.get("max_pos") or _whole(row, "seq", 1)),
        activation="swiglu" if activation == "swiglu" else "gelu",
        norm=row.get("norm") or "layernorm",
        position="learned" if (row.get("position") or "") == "learned" else "rotary",
        tied_embeddings=(row.get("tied_embeddings") or "yes") == "yes",
        bias=notes.get("bias", "yes") == "yes",
        causal=notes.get("arch") != "encoder",
        mla=mla,
        source=row.get("source") or "",
        qk_norm=notes.get("qk_norm") == "yes",
        moe_experts=experts,
        moe_topk=_whole(row, "moe_topk", 1),
        moe_ffn=_whole(row, "moe_ffn", 0),
        moe_shared_ffn=_whole(row, "moe_shared", 0),
        moe_dense_layers=total if experts else 0,
        moe_every=every,
    )


def _mla(text: str) -> MlaSpec:
    """Latent attention of `q1536/kv512/nope128/rope64/v128`; DeepSeek-V3's where nothing is said."""
    found = {k: int(v) for k, v in re.findall(r"(q|kv|nope|rope|v)(\d+)", text)}
    default = {"q": 1536, "kv": 512, "nope": 128, "rope": 64, "v": 128}
    size = default | found
    return MlaSpec(size["q"], size["kv"], size["nope"], size["rope"], size["v"])


def _logit_bytes(notes: Mapping[str, str]) -> float:
    """Megatron's own fused cross-entropy, and a deferred weight gradient of the head, hold one more fp32 copy."""
    return LOGIT_BYTES + (4.0 if notes.get("ce_fusion") == "native" or "deferred_output_wgrad" in notes else 0.0)


def _moe_layers(text: str, layers: int) -> tuple[int, int]:
    """(leading dense layers, 1) of `15/16`."""
    if "/" not in text:
        return 0, 1
    experts, total = (int(x) for x in text.split("/", 1))
    return max(0, min(total, layers) - experts), 1


def setting_of_row(row: Row) -> tuple[ModelSpec, Layout, MegatronSetting]:
    """Model, layout and software of a row.

    Raises:
        MemoryRowError: as `model_of_row`.
    """
    notes, model = notes_of(row), model_of_row(row)
    layout = Layout(
        tp=_whole(row, "tp", 1),
        pp=_whole(row, "pp", 1),
        vpp=_whole(row, "vpp", 1),
        dp=_whole(row, "dp", 1),
        cp=_whole(row, "cp", 1),
        ep=_whole(row, "ep", 1),
        etp=_whole(row, "etp", 1),
        sequence_parallel=(row.get("sp") or "") == "yes",
        zero_stage=_whole(row, "zero_stage", 0),
        micro_batch=_whole(row, "mbs", 1),
        global_batch=_whole(row, "gbs", 1),
        sequence=_whole(row, "seq", 1),
        schedule="interleaved" if _whole(row, "vpp", 1) > 1 else "1f1b",
    )
    half = (row.get("grad_dtype") or "") == "fp16"
    fused = notes.get("wgrad_fusion") != "no"
    setting = MegatronSetting(
        vpp_group=int(notes.get("vpp_microbatch_group") or 0),
        flash=(row.get("attention") or "flash") in {"flash", "fused"},
        dropout=not notes.get("dropout", "0/0").startswith("0/"),
        transformer_engine=(row.get("transformer_impl") or "te") == "te",
        weight_grad_fusion=fused,
        stands_in=fused and _whole(row, "year", 2025) >= 2026 and (row.get("transformer_impl") or "te") == "te",
        gradient_bytes=2.0 if half else 4.0,
        optimizer_bytes=16.0 if half else 12.0,
        logit_bytes=_logit_bytes(notes),
        optimizer_instances=int(notes.get("optimizer_instances") or 1),
        ampere=(row.get("gpu") or "").startswith("A100"),
        grouped=notes.get("grouped_gemm") == "yes",
    )
    return model, layout, setting


def packaged_rows() -> list[dict[str, str]]:
    """The public rows that travel with the package."""
    raw = files("planner.validate").joinpath("data/megatron_golden.csv.gz").read_bytes()
    return list(csv.DictReader(gzip.decompress(raw).decode("utf-8").splitlines()))


def _measured(row: Row) -> float | None:
    try:
        value = float(row.get("measured") or "")
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) else None


def _step_s(row: Row, model: ModelSpec, layout: Layout) -> float:
    from planner.simulate.assemble import forecast_step
    from planner.validate.setup import SkipRowError, machine_of_row

    named = dict(row) | {"framework": "Megatron-LM"}
    try:
        machine, capacity = machine_of_row(named, [])
        return forecast_step(model=model, layout=layout, machine=machine, engine="fast", capacity_bytes=capacity).step_s
    except SkipRowError as error:
        raise MemoryRowError(str(error)) from error
    except ValueError as error:
        raise MemoryRowError(f"setting_missing: {error}") from error


def _blank(*, index: int, row: Row) -> dict[str, Any]:
    settings = "\x1f".join(f"{c}={row.get(c) or ''}" for c in sorted(c for c in row if c and c not in NOT_CONFIG))
    per_node, gpus = _whole(row, "gpus_per_node", 8), _whole(row, "n_gpus", 1)
    return {
        "row": index,
        "id": row.get("id") or None,
        "source": row.get("source") or "",
        "config": hashlib.sha256(settings.encode()).hexdigest()[:12],
        "group": f"{row.get('source')} | {row.get('gpu')} | {'1-node' if gpus <= per_node else 'multi-node'}",
        "metric": row.get("metric") or "",
        "unit": row.get("unit") or "",
        "measured": _measured(row),
        "skipped": None,
        "zero_shot": None,
        "site": None,
        "baseline": None,
        "fits": None,
        "memory_over_gb": None,
        "assumed": [],
        "flags": [],
    }


def validate_row(*, index: int, row: Row) -> dict[str, Any]:
    """One answer row: bytes or seconds of the last rank, or the reason it is skipped."""
    out = _blank(index=index, row=row)
    metric = out["metric"]
    if metric not in SIGMA or not out["measured"]:
        return out | {"skipped": f"setting_missing: metric {metric!r} or measured value not usable"}
    try:
        model, layout, setting = setting_of_row(row)
        memory = last_rank_memory(model=model, layout=layout, setting=setting)
        seconds = _step_s(row, model, layout) if metric == "step_time_s" else 0.0
    except MemoryRowError as error:
        return out | {"skipped": str(error)}
    bytes_of = {"memory_gb": memory.peak_bytes, "memory_steady_gb": memory.steady_bytes}
    value = seconds if metric == "step_time_s" else bytes_of[metric] / 1e9
    special = "special" in notes_of(row) or (row.get("offload") or "none") != "none"
    sigma = math.hypot(SIGMA[metric], SIGMA_SPECIAL if special else 0.0)
    out["zero_shot"] = {
        "predicted": value,
        "p10": value * math.exp(-Z80 * sigma),
        "p90": value * math.exp(Z80 * sigma),
        "error_pct": 100.0 * (value - out["measured"]) / out["measured"],
    }
    capacity = _capacity_bytes(row)
    out["fits"] = None if capacity is None else memory.peak_bytes <= capacity
    out["memory_over_gb"] = None if capacity is None else max(0.0, memory.peak_bytes - capacity) / 1e9
    out["flags"] = ["special"] if special else []
    return out


def _capacity_bytes(row: Row) -> float | None:
    from planner import catalog

    try:
        return catalog.gpu(row.get("gpu") or "").mem_bytes
    except (KeyError, ValueError):
        return None


def validate_memory(rows: Sequence[Row] | None = None, profile: str | None = None) -> list[dict[str, Any]]:
    """One answer row for each measured figure, in file order."""
    del profile  # bytes do not depend on a GPU's measured speed
    return [validate_row(index=i, row=r) for i, r in enumerate(rows if rows is not None else packaged_rows())]
