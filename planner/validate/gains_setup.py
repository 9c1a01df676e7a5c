"""A measured gain's row becomes the stack before the change: part, model, cluster and batch, and what its text says."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner import catalog
from planner.catalog.software import software
from planner.catalog.types import ModelSpec
from planner.cost.types import Network
from planner.simulate.stack_step import fits
from planner.validate.setup import SkipRowError, model_of_row, number
from planner.workload.layout import Layout
from planner.workload.transforms import Stack, apply, without

Row = Mapping[str, str]
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
    for key in keys_of(row):
        stack = without(key=key, stack=stack)
    if "tf32" in baseline:
        stack = stack.with_layout(precision="tf32")
    stack = _fitted(stack=_with_words(stack=stack, baseline=baseline), baseline=baseline)
    if "zero-bubble" in text:
        # Authors' script (sail-sg/zero-bubble-pipeline-parallelism, examples/pretrain_zero_bubble.sh): SentencePiece
        # vocabulary, untied output, transfers not overlapped, one layer a chunk when interleaved.
        stack = replace(stack, model=replace(model, vocab=32000, tied_embeddings=False), p2p_overlap=False)
    return stack, _network(row, gpu=gpu, gpus=gpus)


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
                if fits(trial):
                    return trial
    if lay.recompute == "none" and not re.search(r"\bno (ac|activation|recompute|checkpointing)", baseline):
        for share in (0.0, 0.5, 1.0):
            trial = stack if not share else replace(stack.with_layout(recompute="full"), recompute_layers_frac=share)
            if fits(trial) and share != 0.5:
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


def ladder(row: Row, before: Sequence[Row]) -> tuple[Stack, Network]:
    """A rung of a ladder: plain fp32 eager code with unfused attention, then every earlier rung of the source."""
    stack, network = stack_of_row(row)
    fusions = (stack.software.fusions - {"flash"}) - {"softmax"}
    stack = replace(stack.with_software(attention="unfused", fusions=fusions).with_layout(precision="fp32"))
    for rung in before:
        for key in keys_of(rung):
            stack = apply(key=key, stack=stack, variant=rung.get("optimisation") or "", force=True)
    return replace(stack, applied=()), network


def keys_of(row: Row) -> tuple[str, ...]:
    """Optimisations changed at once."""
    return tuple(k for k in (row.get("key") or "").split("+") if k)
