"""Measured speed-ups of single optimisations: both sides forecast from the row's setting, never from its result.

A row's model, part, cluster and batch come from its columns, the stack before the change from its baseline text; the
change itself is `workload.transforms.apply`. Predicted and measured are speed-ups (time before over time after).
"""

import csv
import gzip
import hashlib
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from planner import catalog
from planner.catalog.optimisations import optimisation
from planner.catalog.software import software
from planner.catalog.types import ModelSpec
from planner.cost.types import Network
from planner.decide.roadmap_step import stack_step
from planner.validate.setup import SkipRowError, model_of_row, number
from planner.workload.layout import Layout
from planner.workload.memory import worst_rank
from planner.workload.transforms import Stack, apply, without

Row = Mapping[str, str]
Z80 = 1.2815515655446004
NOT_CONFIG = {"id", "baseline_value", "after_value", "speedup", "verified", "notes"}
# Spread of log(forecast / measured speed-up) about the share of the step that changes: half of the log gain, at least 3 %.
SIGMA_FLOOR, SIGMA_OF_GAIN = 0.03, 0.5
SIGN_DEAD_ZONE = 0.02
DEFAULT_NIC_BYTES_PER_S = {"Volta": 3.1e9, "Ampere": 25e9, "Hopper": 50e9, "Blackwell": 50e9}
FRAMEWORK_WORDS = (  # text in source or baseline, framework, year; the first that matches
    ("torchtitan", "torchtitan", 2024),
    ("pytorch/ao", "torchtitan", 2024),
    ("fsdp2", "torchtitan", 2024),
    ("llm-foundry", "fsdp", 2024),
    ("megatron-bridge", "nemo", 2024),
    ("nemo", "nemo", 2024),
    ("zero-bubble", "megatron", 2023),
    ("megatron", "megatron", 0),
    ("deepspeed", "deepspeed", 2021),
    ("lightseq", "pytorch", 2019),
    ("jax", "jax", 0),
    ("maxtext", "jax", 0),
)


def packaged_rows() -> list[dict[str, str]]:
    """The public rows that travel with the package."""
    raw = files("planner.validate").joinpath("data/optimisation_gains.csv.gz").read_bytes()
    return list(csv.DictReader(gzip.decompress(raw).decode("utf-8").splitlines()))


def _text(row: Row) -> str:
    return " ".join((row.get(k) or "") for k in ("source", "baseline")).lower()


def _model(row: Row) -> ModelSpec:
    name = (row.get("model") or "").strip()
    for spelled in (name, name.split(" (")[0], name.replace("Llama-2 ", "llama2-"), name.split(" ")[0]):
        try:
            return catalog.model(spelled)
        except catalog.CatalogError:
            continue
    shape = dict(row) | {"seq": row.get("seq_num") or ""}
    return model_of_row(shape, [])


def _degree(text: str, name: str) -> int:
    found = re.search(rf"\b{name}[ =]?(\d+)", text)
    return int(found.group(1)) if found else 1


def _framework(row: Row) -> tuple[str, int, str]:
    text, year = _text(row), int(number(row, "year") or 2024)
    for word, name, fixed in FRAMEWORK_WORDS:
        if word in text:
            return name, fixed or year, text
    return "pytorch", year, text


def _network(row: Row, *, gpu: str, gpus: int) -> Network:
    spec = catalog.gpu(gpu)
    per_node = min(8, gpus)
    consumer = spec.scaleup_link == "pcie"
    nic = next((v for k, v in DEFAULT_NIC_BYTES_PER_S.items() if spec.arch.startswith(k)), 12.5e9)
    stated = re.search(rf"{spec.name.split('-')[0]} ([\d.]+) ([GT])b/s", row.get("notes") or "")
    if stated:
        nic = float(stated.group(1)) * (1e9 if stated.group(2) == "G" else 1e12) / 8 / 8
    return Network(
        scaleup=spec.scaleup_link,
        scaleup_bytes_per_s=spec.scaleup_bytes_per_s,
        scaleup_domain_gpus=72 if spec.name.startswith(("GB200", "GB300")) else 8,
        gpus_per_node=per_node,
        scaleout="none" if gpus <= per_node else "ib",
        node_bytes_per_s=0.0 if gpus <= per_node else nic * 8,
        nic_count=1 if consumer else 8,
        gpu=spec.name,
    )


def _part(row: Row) -> str:
    raw = row.get("gpu") or ""
    if "500W" in raw or "HBM2e" in raw:
        return "H100-SXM-96-500W"
    name = row.get("gpu_norm") or ""
    if not name:
        raise SkipRowError("gpu", f"{raw or 'no part'} is not in the catalogue")
    return catalog.gpu(name).name


def _layout(row: Row, *, model: ModelSpec, gpus: int, framework: str, baseline: str) -> Layout:
    tp, pp, ep = (_degree(baseline, k) for k in ("tp", "pp", "ep"))
    cp = _degree(baseline, "cp")
    dp = max(1, gpus // (tp * pp * cp))
    mbs = int(number(row, "mbs") or 1)
    counted = re.search(r"(\d+) micro-?batches", row.get("batch") or "")
    local = re.search(r"(\d+) local", row.get("batch") or "")
    batch = number(row, "batch_num")
    if counted:
        micro = int(counted.group(1))
    elif local:
        micro = max(1, int(local.group(1)) // mbs)
    elif batch and batch >= dp * mbs:
        micro = max(1, round(batch / (dp * mbs)))
    else:
        micro = 4 * pp if pp > 1 else 1
    sharded = "fsdp" in baseline or "zero-3" in baseline or framework in {"torchtitan", "fsdp", "deepspeed"}
    sequence = number(row, "seq_num") or number(row, "seq")
    if not sequence:
        raise SkipRowError("setting_missing", "sequence length blank")
    return Layout(
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=ep if model.moe_experts else 1,
        sequence_parallel=tp > 1 and "no sequence" not in baseline and "without sp" not in baseline,
        zero_stage=3 if sharded and pp == 1 and dp > 1 else (1 if dp > 1 and pp * tp > 1 else 0),
        micro_batch=mbs,
        global_batch=dp * mbs * micro,
        sequence=int(sequence),
        recompute=_recompute(baseline),
        gradient_bytes=2 if sharded else 4,
    )


def _recompute(baseline: str) -> str:
    if re.search(r"\bno (ac|activation|recompute|checkpointing)", baseline):
        return "none"
    if re.search(r"full (ac|recompute|activation)|full recomputation", baseline):
        return "full"
    return "selective" if re.search(r"selective|recompute core", baseline) else "none"


def stack_of_row(row: Row) -> tuple[Stack, Network]:
    """The stack before the change, as the row's baseline describes it.

    Raises:
        SkipRowError: a setting that is missing or not modelled.
    """
    gpu = _part(row)
    model = _model(row)
    gpus = int(number(row, "n_gpus_num") or number(row, "n_gpus") or 0)
    if not gpus:
        raise SkipRowError("setting_missing", "number of GPUs")
    name, year, text = _framework(row)
    baseline = (row.get("baseline") or "").lower()
    soft = software(framework=name, year=year)
    if name == "torchtitan":
        # The table's row is the compiled recipe; the plain one differs by what the compiler does.
        soft = replace(soft, fusions=soft.fusions - {"activation", "residual", "rope"}, host_scale=1.0)
    if model.norm == "rmsnorm" and name in {"pytorch", "torchtitan", "fsdp"} and year < 2026:
        # RMSNorm was a composition of pointwise operators until PyTorch 2.9.
        soft = replace(soft, fusions=soft.fusions - {"norm"})
    if name == "fsdp" and "flash" in baseline and "flash" not in soft.fusions:
        soft = replace(soft, fusions=soft.fusions | {"flash"})
    layout = _layout(row, model=model, gpus=gpus, framework=name, baseline=baseline)
    stack = Stack(model=model, layout=layout, software=soft, gpu=gpu, nodes=max(1, gpus // 8))
    if re.search(r"fp32|no amp", baseline):
        stack = stack.with_layout(precision="fp32")
    for key in _keys(row):
        stack = without(key=key, stack=stack)
    stack = _fitted(stack=_with_words(stack=stack, baseline=baseline), baseline=baseline)
    if "zero-bubble" in text:
        # Authors' script (sail-sg/zero-bubble-pipeline-parallelism, examples/pretrain_zero_bubble.sh): SentencePiece
        # vocabulary, untied output, transfers not overlapped, one layer a chunk when interleaved.
        stack = replace(stack, model=replace(model, vocab=32000, tied_embeddings=False), p2p_overlap=False)
    return stack, _network(row, gpu=gpu, gpus=gpus)


def _fits(stack: Stack) -> bool:
    rank = worst_rank(model=stack.model, layout=stack.layout, fusions=stack.software.fusions)
    return rank.peak_bytes + rank.reserved_bytes <= catalog.gpu(stack.gpu).mem_bytes


def _fitted(*, stack: Stack, baseline: str) -> Stack:
    """Degrees and recompute that a row leaves open: the least that fits, as for any strategy."""
    lay = stack.layout
    hybrid = stack.software.framework in {"megatron", "nemo", "megascale", "megatron-deepspeed"}
    if hybrid and not re.search(r"\b[tp]p[ =]?\d", baseline):
        gpus, batch = lay.gpus, lay.global_batch
        for tp in (1, 2, 4, 8):
            for pp in (1,) if tp < 8 else [p for p in range(1, gpus // 8 + 1) if stack.model.layers % p == 0]:
                if gpus % (tp * pp) or stack.model.heads % tp:
                    continue
                dp = gpus // (tp * pp)
                micro = max(1, batch // (dp * lay.micro_batch), 4 * pp if pp > 1 else 1)
                trial = stack.with_layout(
                    tp=tp,
                    pp=pp,
                    dp=dp,
                    global_batch=dp * lay.micro_batch * micro,
                    sequence_parallel=lay.sequence_parallel and tp > 1,
                    zero_stage=1 if dp > 1 else 0,
                )
                if _fits(trial):
                    return trial
    if lay.recompute == "none" and not re.search(r"\bno (ac|activation|recompute|checkpointing)", baseline):
        for share in (0.0, 0.5, 1.0):
            trial = stack if not share else replace(stack.with_layout(recompute="full"), recompute_layers_frac=share)
            if _fits(trial) and share != 0.5:
                return trial
    return stack


def _with_words(*, stack: Stack, baseline: str) -> Stack:
    """What the baseline already has: compiler, low precision, overlap of tensor-parallel exchange, graphs."""
    if re.search(r"compile", baseline) and not re.search(r"no compile|without compile|uncompiled", baseline):
        stack = apply(key="torch_compile", stack=stack, force=True)
    if re.search(r"float8|fp8", baseline):
        key = "fp8_rowwise" if "rowwise" in baseline else "fp8_tensorwise"
        stack = apply(key=key, stack=stack, force=True)
    if "async tp" in baseline:
        stack = apply(key="async_tp", stack=stack, force=True)
    if re.search(r"cuda graph", baseline) and "no cuda graph" not in baseline:
        stack = replace(stack, cuda_graph=True)
    return replace(stack, applied=())


def _ladder(row: Row, before: Sequence[Row]) -> tuple[Stack, Network]:
    """A rung of a ladder: plain fp32 eager code with unfused attention, then every earlier rung of the source."""
    stack, network = stack_of_row(row)
    fusions = (stack.software.fusions - {"flash"}) - {"softmax"}
    stack = replace(stack.with_software(attention="unfused", fusions=fusions).with_layout(precision="fp32"))
    for rung in before:
        for key in _keys(rung):
            stack = apply(key=key, stack=stack, variant=rung.get("optimisation") or "", force=True)
    return replace(stack, applied=()), network


def _keys(row: Row) -> tuple[str, ...]:
    return tuple(k for k in (row.get("key") or "").split("+") if k)


def _skip(row: Row) -> str | None:
    """Why a row cannot be forecast, None where it can."""
    scope = (row.get("scope") or "").strip()
    if scope in {"vision", "speech", "encoder", "other", "kernel"}:
        return f"not_a_decoder: {scope}"
    keys = _keys(row)
    if not keys:
        return "setting_missing: no optimisation of the catalogue fits"
    try:
        entries = [optimisation(k) for k in keys]
    except catalog.CatalogError as error:
        return f"setting_missing: {error}"
    if (row.get("in_scope") or "").strip() == "no":
        if any(e.modelled_by == "pilot" for e in entries):
            return "convergence: steps to the same quality change"
        return "setting_missing: both sides cannot be simulated from the row"
    return None


def predict(row: Row, earlier: Sequence[Row] = ()) -> float:
    """Speed-up that a row's change should bring.

    Args:
        row: one row of the gains table.
        earlier: rows of the same source before it (rungs of a ladder build on each other).

    Raises:
        SkipRowError: a setting that is missing or not modelled.
    """
    rung = "previous rung" in (row.get("baseline") or "")
    before, network = _ladder(row, earlier) if rung else stack_of_row(row)
    after = before
    try:
        for key in _keys(row):
            after = apply(key=key, stack=after, variant=row.get("optimisation") or "", force=True)
        if "allows larger batch" in (row.get("notes") or ""):
            raise SkipRowError("setting_missing", "batch differs between both sides")
        old, new = (stack_step(stack=s, network=network) for s in (before, after))
    except ValueError as error:
        raise SkipRowError("setting_missing", str(error)) from error
    # Goodput is not part of a step: what acts on it alone gets the catalogue's usual factor.
    run = math.prod(e.factor_typical for e in map(optimisation, _keys(row)) if e.modelled_by == "run")
    return old.effective_s / new.effective_s / run


def config_hash(row: Row) -> str:
    """Hash of all settings of a row."""
    text = "\x1f".join(f"{k}={row.get(k) or ''}" for k in sorted(k for k in row if k and k not in NOT_CONFIG))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@lru_cache(maxsize=1)
def _class_medians() -> dict[str, dict[str, float]]:
    """Median measured speed-up by class and source of the packaged in-scope rows."""
    seen: dict[str, dict[str, list[float]]] = {}
    for row in packaged_rows():
        value = number(row, "speedup")
        if row.get("in_scope") == "yes" and value:
            seen.setdefault(row["class"], {}).setdefault(row["source"], []).append(value)
    return {c: {s: statistics.median(v) for s, v in by.items()} for c, by in seen.items()}


def _baseline(row: Row) -> float | None:
    """The usual speed-up of the class over other sources: what a person without a model would say."""
    others = [v for s, v in _class_medians().get(row.get("class") or "", {}).items() if s != row.get("source")]
    return statistics.median(others) if others else None


def _answer(*, index: int, row: Row, earlier: Sequence[Row]) -> dict[str, Any]:
    measured = number(row, "speedup")
    out: dict[str, Any] = {
        "row": index,
        "id": row.get("id") or None,
        "source": row.get("source") or "",
        "config": config_hash(row),
        "group": row.get("class") or "",
        "metric": "speedup",
        "unit": "1",
        "measured": measured,
        "skipped": _skip(row),
        "zero_shot": None,
        "site": None,
        "baseline": None,
        "fits": None,
        "memory_over_gb": None,
        "assumed": [],
        "flags": [],
    }
    if out["skipped"] is None and not measured:
        out["skipped"] = "setting_missing: no measured speed-up"
    if out["skipped"] is not None or measured is None:
        return out
    try:
        value = predict(row, earlier)
    except SkipRowError as error:
        return out | {"skipped": str(error)}
    sigma = max(SIGMA_FLOOR, SIGMA_OF_GAIN * abs(math.log(value)))
    out["zero_shot"] = {
        "predicted": value,
        "p10": value * math.exp(-Z80 * sigma),
        "p90": value * math.exp(Z80 * sigma),
        "error_pct": 100 * (value - measured) / measured,
    }
    usual = _baseline(row)
    if usual is not None:
        out["baseline"] = {"predicted": usual, "error_pct": 100 * (usual - measured) / measured}
    return out


def validate_gains(rows: Sequence[Row] | None = None, profile: str | None = None) -> list[dict[str, Any]]:
    """One answer row for each measured gain, in file order."""
    del profile  # both sides use the catalogue's rates; a profile would change them alike
    data = list(rows) if rows is not None else packaged_rows()
    out = []
    for index, row in enumerate(data):
        earlier = [
            r
            for r in data[:index]
            if r.get("source") == row.get("source")
            and r.get("gpu") == row.get("gpu")
            and "previous rung" in (r.get("baseline") or "")
        ]
        out.append(_answer(index=index, row=row, earlier=earlier))
    return out


def gain_scores(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rank correlation, median error in points, signs and losses, over all rows and by class."""
    from scipy.stats import spearmanr

    used = [a for a in answers if a["zero_shot"]]

    def score(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        pairs = [(float(a["measured"]), float(a["zero_shot"]["predicted"])) for a in rows]
        clear = [(m, p) for m, p in pairs if abs(m - 1) > SIGN_DEAD_ZONE]
        lost = [(m, p) for m, p in clear if m < 1]
        rho = float(spearmanr(*zip(*pairs, strict=True)).statistic) if len(pairs) > 2 else math.nan
        return {
            "n": len(pairs),
            "sources": len({a["source"] for a in rows}),
            "spearman": None if math.isnan(rho) else rho,
            "median_error_points": statistics.median(100 * abs(p - m) for m, p in pairs) if pairs else None,
            "sign_right_frac": sum((m > 1) == (p > 1) for m, p in clear) / len(clear) if clear else None,
            "losses": len(lost),
            "losses_found": sum(p < 1 for _, p in lost),
        }

    classes = sorted({a["group"] for a in used})
    return score(used) | {"by_class": {c: score([a for a in used if a["group"] == c]) for c in classes}}
