"""Allocator peaks and step times of Megatron-LM's functional tests, forecast for the last rank (contract 5)."""

import csv
import gzip
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from planner import catalog
from planner.catalog.types import MlaSpec, ModelSpec
from planner.simulate.durations import Machine
from planner.validate.memory_time import EAGER_HOST_SCALE, fit_host_scale, fold_of, step_s
from planner.validate.runs import config_hash
from planner.validate.setup import SkipRowError, machine_of_row, number
from planner.workload.layout import Layout
from planner.workload.memory import RankMemory, rank_memory
from planner.workload.memory_stack import MemoryStack, workspace_bytes
from planner.workload.recompute import FREED

Row = Mapping[str, str]
Z80 = 1.2815515655446004
# One standard deviation of log(predicted / measured): plain decoders, and models or software with something special.
SIGMA = {"memory_gb": (0.010, 0.07), "memory_steady_gb": (0.008, 0.09), "step_time_s": (1.0, 1.3), "site": (0.25, 0.9)}
NOT_DECODERS = {"encdec": "encoder-decoder", "hybrid": "state-space layers"}
FP8_WORDS = {
    "tensorwise": "fp8",
    "rowwise": "fp8_rowwise",
    "blockwise": "fp8_block",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
}
# Wgrad fusion began to keep its dummy 16-bit gradients during 2026 (golden rows of one configuration before and after).
CACHED_WGRAD_FROM_YEAR = 2026
# Inferred from rows: routing weights are applied inside gated experts, so their outputs need not be kept.
PROBS_IN_EXPERTS_FROM = "2025-05"
# Recipes that defer the head's weight gradient cap how many wait; the cap is not in the rows, two fits every GPU count.
DEFERRED_WGRADS = 2


def packaged_rows() -> tuple[dict[str, str], ...]:
    """The public rows that travel with the package."""
    return _load()


@lru_cache(maxsize=1)
def _load() -> tuple[dict[str, str], ...]:
    raw = files("planner.validate").joinpath("data/megatron_golden.csv.gz").read_bytes()
    return tuple(csv.DictReader(gzip.decompress(raw).decode("utf-8").splitlines()))


def notes_of(row: Row) -> dict[str, str]:
    """`key=value` remarks of a row."""
    pairs = (part.split("=", 1) for part in (row.get("notes") or "").split("; ") if "=" in part)
    return {k.strip(): v.strip() for k, v in pairs}


def _int(row: Row, key: str, default: int) -> int:
    value = number(row, key)
    return default if value is None else int(value)


def _needed(row: Row, key: str) -> int:
    value = number(row, key)
    if value is None:
        raise SkipRowError("shape_missing", f"{key} blank")
    return int(value)


def model_of_row(row: Row) -> ModelSpec:
    """The model of a row, all from its columns.

    Raises:
        SkipRowError: an encoder-decoder or state-space model, or a missing shape.
    """
    notes = notes_of(row)
    name = row.get("model") or ""
    arch = notes.get("arch") or next((a for a in ("t5", "mamba", "bert") if a in name), "decoder")
    arch = {"t5": "encdec", "mamba": "hybrid", "bert": "encoder"}.get(arch, arch)
    if arch in NOT_DECODERS:
        raise SkipRowError("not_a_decoder", f"{name}: {NOT_DECODERS[arch]}")
    layers, hidden, heads = (_needed(row, k) for k in ("layers", "hidden", "heads"))
    mla = None
    found = re.match(r"q(\d+)/kv(\d+)/nope(\d+)/rope(\d+)/v(\d+)", notes.get("mla", ""))
    if row.get("mla") == "yes":
        mla = MlaSpec(*(int(g) for g in found.groups())) if found else MlaSpec(1536, 512, 128, 64, 128)
    spec = ModelSpec(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_int(row, "kv_heads", heads),
        head_dim=_int(row, "head_dim", hidden // heads),
        ffn=_int(row, "ffn", 4 * hidden),
        vocab=_needed(row, "vocab"),
        max_sequence=int(notes.get("max_pos") or _needed(row, "seq")),
        activation=row.get("activation") or "gelu",
        norm=row.get("norm") or "layernorm",
        position="learned" if row.get("position") == "learned" else "rotary",
        tied_embeddings=row.get("tied_embeddings") == "yes",
        bias=notes.get("bias", "yes") == "yes",
        qk_norm=notes.get("qk_norm") == "yes" and mla is None,
        causal=arch != "encoder",
        mla=mla,
        source=row.get("source") or "",
    )
    experts = _int(row, "moe_experts", 0)
    if not experts:
        return spec
    moe, _, total = notes.get("moe_layers", f"{layers}/{layers}").partition("/")
    return replace(
        spec,
        moe_experts=experts,
        moe_topk=_int(row, "moe_topk", 1),
        moe_ffn=_int(row, "moe_ffn", spec.ffn),
        moe_shared_ffn=_int(row, "moe_shared", 0),
        moe_dense_layers=max(0, int(total or layers) - int(moe)),
    )


def _precision(row: Row) -> tuple[str, bool]:
    text = row.get("precision") or "bf16"
    for word, name in FP8_WORDS.items():
        if word in text:
            return name, text.startswith("fp32+")
    return (text if text in {"fp16", "bf16", "fp32"} else "bf16"), False


def cell_layers(text: str) -> tuple[int, ...]:
    """Decoder layers of each chunk in Megatron's layout notation: `Et*3|(tt|)*6L` gives (3, 2, 2, 2, 2, 2, 2, 0)."""
    text = re.sub(r"\(([^()]*)\)\*(\d+)", lambda m: m.group(1) * int(m.group(2)), text)
    text = re.sub(r"(\w)\*(\d+)", lambda m: m.group(1) * int(m.group(2)), text)
    return tuple(cell.count("t") for cell in text.split("|"))


def _modules(text: str | None) -> tuple[str, ...]:
    found = re.search(r"\(([^)]*)\)", text or "")
    return tuple(found.group(1).split("+")) if found else ()


OFFLOADED = {
    "expert_fc1": ("dispatch",),
    "moe_act": ("moe_fc1", "moe_act"),
    "attn_norm": ("input",),
    "mlp_norm": ("residual",),
    "qkv_linear": ("mla",),
    "core_attn": ("qkv", "core_attn"),
    "attn_proj": ("attn_out",),
}


def layout_of_row(row: Row) -> Layout:
    """The parallel layout of a row.

    Raises:
        SkipRowError: GPU count or batch blank.
    """
    notes = notes_of(row)
    gpus, gbs = number(row, "n_gpus"), number(row, "gbs")
    if not gpus or not gbs:
        raise SkipRowError("setting_missing", "n_gpus or gbs blank")
    tp, pp, cp, vpp = (_int(row, k, 1) for k in ("tp", "pp", "cp", "vpp"))
    dp = _int(row, "dp", max(1, int(gpus) // (tp * pp * cp)))
    precision, wide = _precision(row)
    instances = int(notes.get("optimizer_instances", "1"))
    recompute = (row.get("recompute") or "none").partition("(")[0]
    again = tuple(name for name in _modules(row.get("recompute")) if name in FREED)
    offload = tuple(m for name in _modules(row.get("offload")) for m in OFFLOADED.get(name, ()))
    return Layout(
        tp=tp,
        pp=pp,
        vpp=vpp,
        dp=dp,
        cp=cp,
        ep=_int(row, "ep", 1),
        etp=_int(row, "etp", 1),
        sequence_parallel=row.get("sp") == "yes",
        zero_stage=_int(row, "zero_stage", 0),
        micro_batch=_int(row, "mbs", 1),
        global_batch=int(gbs),
        sequence=_needed(row, "seq"),
        schedule="interleaved" if vpp > 1 else "1f1b",
        recompute=recompute,
        recompute_modules=again,
        offload_modules=offload,
        precision=precision,
        autocast=wide,
        optimizer="muon" if notes.get("optimizer", "").startswith("muon") else "adamw",
        gradient_bytes=2 if row.get("grad_dtype") in {"fp16", "bf16"} else 4,
        shard_ranks=dp * cp // instances if instances > 1 else 0,
        microbatch_group=int(notes.get("vpp_microbatch_group", "0")),
        cell_layers=cell_layers(notes["stage_layout"]) if "stage_layout" in notes else (),
        mtp_layers=int(notes.get("mtp", "0")),
    )


def stack_of_row(row: Row) -> MemoryStack:
    """What the recorded software kept: attention kernel, loss, dispatcher, workspaces."""
    notes = notes_of(row)
    arch = catalog.gpu(row.get("gpu") or "").arch.lower()
    deterministic = row.get("deterministic") == "yes"
    engine = row.get("transformer_impl") != "local"
    grouped = notes.get("grouped_gemm") == "yes"
    kind = {"local": "buffered", "unfused": "unfused"}.get(row.get("attention") or "", "fused")
    if kind == "fused" and _flash2(arch=arch, deterministic=deterministic):
        kind = "copied"
    loss = {"native": "compiled", "te": "kernel"}.get(notes.get("ce_fusion", ""), "fused")
    fused_wgrad = notes.get("wgrad_fusion", "yes") != "no"
    return MemoryStack(
        attention=kind,
        dropout=not notes.get("dropout", "0/0").startswith("0/"),
        loss=loss,
        mask=notes.get("attn_mask_tensor", "yes") != "no",
        workspace_bytes=workspace_bytes(
            arch=arch,
            transformer_engine=engine,
            deterministic=deterministic,
            grouped=grouped,
            overlap=notes.get("tp_comm_overlap") == "yes",
        ),
        cached_wgrad=fused_wgrad and _int(row, "year", 2024) >= CACHED_WGRAD_FROM_YEAR,
        dispatcher="allgather" if notes.get("dispatcher") == "allgather" else "alltoall",
        combine_saved=row.get("activation") != "swiglu" or notes.get("date", "2024") < PROBS_IN_EXPERTS_FROM,
        deferred_wgrad=DEFERRED_WGRADS if notes.get("deferred_output_wgrad") == "yes" else 0,
        softmax_bytes=4.0 if notes.get("masked_softmax_fusion") == "no" and notes.get("attn_softmax_fp32") else 0.0,
    )


def _flash2(*, arch: str, deterministic: bool) -> bool:
    """Whether Transformer Engine picks FlashAttention-2, which keeps its output in two layouts.

    cuDNN attention is preferred from Hopper on; on Blackwell it has no deterministic backward pass.
    """
    return arch in {"ampere", "ada"} or (deterministic and arch.startswith("blackwell"))


def last_rank(row: Row) -> RankMemory:
    """Memory of the rank that wrote the log: the last pipeline stage.

    Raises:
        SkipRowError: for one of the reasons that the contract allows.
    """
    layout = layout_of_row(row)
    return rank_memory(
        model=model_of_row(row), layout=layout, stage=layout.pp - 1, fusions=frozenset(), stack=stack_of_row(row)
    )


def _machine(row: Row) -> tuple[Machine, float]:
    assumed: list[str] = []
    flash = "no" if row.get("attention") in {"local", "unfused"} else "yes"
    machine, capacity = machine_of_row({**row, "framework": "Megatron-LM", "flash": flash}, assumed)
    return replace(machine, software=replace(machine.software, gradient_bytes=4)), capacity


def step_time_s(row: Row, host_scale: float) -> float:
    """Forecast step time of a row on a host of that speed.

    Raises:
        SkipRowError: for one of the reasons that the contract allows.
    """
    machine, capacity = _machine(row)
    return step_s(
        model=model_of_row(row),
        layout=layout_of_row(row),
        machine=machine,
        capacity_bytes=capacity,
        host_scale=host_scale,
    )


def _seconds_or_none(row: Row, host_scale: float) -> float | None:
    try:
        return step_time_s(row, host_scale)
    except SkipRowError:
        return None


def shape_of(row: Row) -> str:
    """Shape and parallel layout: rows that share it are close relatives and stay in one half."""
    keys = ("model", "layers", "tp", "pp", "vpp", "cp", "ep", "etp", "zero_stage")
    return notes_of(row).get("group") or "/".join(row.get(k) or "" for k in keys)


@lru_cache(maxsize=2)
def site_host_scale(fold: int) -> float | None:
    """Host speed fitted on the packaged rows of the other half."""
    rows = [
        r
        for r in packaged_rows()
        if r["metric"] == "step_time_s" and notes_of(r).get("trust") != "C" and fold_of(shape_of(r)) != fold
    ]
    return fit_host_scale(rows=rows, seconds=_seconds_or_none)


def is_plain(row: Row) -> bool:
    """Dense decoder without a special feature: what memory models are usually judged on."""
    return not _int(row, "moe_experts", 0) and "special" not in notes_of(row)


def _memory_value(row: Row) -> float:
    rank = last_rank(row)
    nbytes = rank.peak_bytes if row.get("metric") == "memory_gb" else rank.steady_bytes
    return nbytes / (2**30 if row.get("unit") == "GiB" else 1e9)


def _forecasts(row: Row) -> dict[str, dict[str, float]]:
    """Zero-shot forecast of a row and, for step times, the one with the site's host speed."""
    metric, spread = row.get("metric") or "", 0 if is_plain(row) else 1
    if metric in {"memory_gb", "memory_steady_gb"}:
        return {"zero_shot": _band(row=row, value=_memory_value(row), sigma=SIGMA[metric][spread])}
    if metric != "step_time_s":
        raise SkipRowError("setting_missing", f"metric {metric!r} is not a memory metric")
    out = {"zero_shot": _band(row=row, value=step_time_s(row, EAGER_HOST_SCALE), sigma=SIGMA[metric][spread])}
    scale = site_host_scale(fold_of(shape_of(row)))
    if scale is not None:
        out["site"] = _band(row=row, value=step_time_s(row, scale), sigma=SIGMA["site"][spread])
    return out


def _band(*, row: Row, value: float, sigma: float) -> dict[str, float]:
    measured = number(row, "measured")
    return {
        "predicted": value,
        "p10": value * math.exp(-Z80 * sigma),
        "p90": value * math.exp(Z80 * sigma),
        "error_pct": 100.0 * (value / measured - 1) if measured else math.nan,
    }


def group_of(row: Row) -> str:
    """Source | gpu | 1-node or multi-node."""
    gpus, per_node = number(row, "n_gpus") or 0, number(row, "gpus_per_node") or 8
    return f"{row.get('source')} | {row.get('gpu')} | {'1-node' if gpus <= per_node else 'multi-node'}"


def _answer(index: int, row: Row) -> dict[str, Any]:
    out: dict[str, Any] = {
        "row": index,
        "id": row.get("id") or None,
        "source": row.get("source") or "",
        "config": config_hash(row),
        "group": group_of(row),
        "metric": row.get("metric") or "",
        "unit": row.get("unit") or "",
        "measured": number(row, "measured"),
        "skipped": None,
        "zero_shot": None,
        "site": None,
        "baseline": None,
        "fits": None,
        "memory_over_gb": None,
        "assumed": [],
        "flags": [],
    }
    try:
        catalog.gpu(row.get("gpu") or "")
    except (KeyError, ValueError) as error:
        return out | {"skipped": f"gpu: {error}"}
    if not out["measured"]:
        return out | {"skipped": "setting_missing: no measured value"}
    try:
        out |= _forecasts(row)
        rank = last_rank(row)
    except SkipRowError as error:
        return out | {"skipped": str(error)}
    over = rank.peak_bytes + rank.reserved_bytes - catalog.gpu(row["gpu"]).mem_bytes
    return out | {"fits": over <= 0, "memory_over_gb": max(0.0, over) / 1e9}


def validate_memory(rows: Sequence[Row] | None = None, profile: str | None = None) -> list[dict[str, Any]]:
    """One answer row for each measured figure, in file order."""
    del profile  # memory follows from shapes; step times from the packaged tables
    return [_answer(i, r) for i, r in enumerate(rows if rows is not None else packaged_rows())]
