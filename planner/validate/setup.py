"""A row of published runs becomes a model, a layout and a machine; every default taken is named."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from planner import catalog
from planner.catalog.software import software
from planner.catalog.types import MlaSpec, ModelSpec
from planner.cost.types import Network
from planner.simulate.durations import Machine
from planner.validate.completions import memory_layout_of_row
from planner.validate.mapping import fastest, fitting, interleaves, most_chunks, recomputed, spread
from planner.validate.recipes import recipe_features, recomputed_modules
from planner.workload.layout import Layout
from planner.workload.params import total_params

GATED = (
    "llama",
    "qwen",
    "mistral",
    "mixtral",
    "deepseek",
    "internlm",
    "nanotron",
    "yi-",
    "glm",
    "gpt-oss",
    "grok",
    "kimi",
    "baichuan",
    "internal-352b",
    "tinyllama",
    "ds-1t",
)
ENCODERS = ("bert", "t5", "resnet", "vgg", "vit", "cnn", "inception", "gnmt")
TIED = ("gpt", "mpt", "megatron", "bigscience", "bloom", "bert", "nanotron-1.34b", "nanotron-3.57b", "mt-nlg")
LEARNED = ("gpt", "megatron", "mpt", "bigscience", "mt-nlg", "mcore", "ds-1t", "bert")
MLA = {
    "deepseek-v3": MlaSpec(1536, 512, 128, 64, 128),
    "deepseek-v2": MlaSpec(1536, 512, 128, 64, 128),
    "kimi-k2": MlaSpec(1536, 512, 128, 64, 128),
}
# MaxText ships `remat_policy: full`, Paxml's fp8 recipes SAVE_NOTHING; the other stacks keep activations unless told.
DEFAULT_RECOMPUTE = {"jax": "full"}
REMAT = {"save_dot_with_context_except_mlp": ("mlp",)}  # MaxText policies that `selective` does not say
# NVIDIA's containers are named by year and month: `release 25.11`, `v25.05.05`, `at 24.07`.
VERSIONED, RELEASE = {"nemo"}, re.compile(r"(?:release |v|at )(\d\d)\.(\d\d)\b")
LARGE_PARAMS = 20e9  # runs of larger models print micro-batch 1
TUNED = {"megatron", "nemo", "megascale"}  # stacks whose rows without a mapping report the best that was found
GATHERING = {"fsdp", "torchtitan", "deepspeed"}  # stacks that shard weights over all ranks by default
# Papers print the year of publication; the software is older where a deadline or a named container says so.
MEASURED_IN = {
    ("MegaScale NSDI24", 2024): (2023, 9),  # submitted by September 2023
    ("NeMo long-sequence", 2024): (2024, 3),  # container NeMo 24.03.01
}
FRAMEWORKS = (  # text in the row, framework of the software table; first match wins
    ("zero-3 offload", "deepspeed"),
    ("deepspeed zero-3", "deepspeed"),
    ("zero-100b", "deepspeed"),
    ("pytorch deepspeed", "fsdp"),
    ("megatron-deepspeed", "megatron-deepspeed"),
    ("megascale", "megascale"),
    ("nemo", "nemo"),
    ("megatron-bridge", "nemo"),
    ("maxtext", "jax"),
    ("paxml", "jax"),
    ("jax", "jax"),
    ("llm-foundry", "fsdp"),
    ("fms-fsdp", "torchtitan"),
    ("lit-gpt", "fsdp"),
    ("metaseq", "fsdp"),
    ("torchtitan", "torchtitan"),
    ("nanotron", "nanotron"),
    ("internevo", "internevo"),
    ("colossalai", "colossalai"),
    ("easycontext", "deepspeed"),
    ("meta internal", "nemo"),
    ("megatron", "megatron"),
    ("neox", "megatron-deepspeed"),
    ("fsdp", "fsdp"),
    ("deepspeed", "deepspeed"),
    ("pytorch", "pytorch"),
    ("llm.c", "torchtitan"),
    ("nanogpt", "torchtitan"),
    ("flash-attention", "fsdp"),
)
PRECISIONS = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
    "tf32": "tf32",
    "fp8": "fp8",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
    "fp8-rowwise": "fp8_rowwise",
    "fp8 or nvfp4 (not resolved)": "fp8",
    "fp8-blockwise": "fp8_block",
}


class SkipRowError(Exception):
    """A row that the contract allows to skip: reason and text."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Setup:
    """What a row describes, ready to forecast."""

    model: ModelSpec
    layout: Layout
    machine: Machine
    capacity_bytes: float
    assumed: tuple[str, ...]
    memory_layout: Layout


def number(row: Mapping[str, str], key: str) -> float | None:
    """The cell as a number; blank or text gives None."""
    text = (row.get(key) or "").strip()
    try:
        return float(text)
    except ValueError:
        return None


def _whole(row: Mapping[str, str], key: str, default: int, assumed: list[str]) -> int:
    value = number(row, key)
    if value is None:
        assumed.append(key)
        return default
    return max(1, round(value))


def model_of_row(row: Mapping[str, str], assumed: list[str]) -> ModelSpec:
    """The model of a row from its shape columns; the family (gating, tying, norm) from its name.

    Raises:
        SkipRowError: an encoder or vision model, or layer shapes missing.
    """
    name = (row.get("model") or "").lower()
    if any(word in name for word in ENCODERS if word != "bert") or not name:
        raise SkipRowError("not_a_decoder", name or "no model name")
    layers, hidden = number(row, "layers"), number(row, "hidden")
    if layers is None or hidden is None:
        raise SkipRowError("shape_missing", f"{name}: layers or hidden blank")
    h = int(hidden)
    heads = _whole(row, "heads", max(1, h // 128), assumed)
    kv = _whole(row, "kv_heads", heads, assumed)
    gated = name.startswith(GATED) or any(g in name for g in ("llama", "qwen", "mixtral", "deepseek"))
    experts = int(number(row, "moe_experts") or 0)
    ffn = _whole(row, "ffn", 4 * h if not gated else round(8 * h / 3 / 256) * 256, assumed)
    head_dim = int(number(row, "head_dim") or h // heads)
    mla = next((spec for key, spec in MLA.items() if name.startswith(key)), None)
    sequence = int(number(row, "seq") or 2048)
    rms = gated or "nemotron" in name
    spec = ModelSpec(
        name=name,
        layers=int(layers),
        hidden=h,
        heads=heads,
        kv_heads=kv,
        head_dim=head_dim,
        ffn=ffn,
        vocab=_whole(row, "vocab", 51200, assumed),
        max_sequence=sequence,
        activation="swiglu" if gated else "gelu",
        norm="rmsnorm" if rms else "layernorm",
        position="learned" if name.startswith(LEARNED) else "rotary",
        tied_embeddings=name.startswith(TIED),
        bias=not gated and "nemotron" not in name,
        causal="bert" not in name,
        mla=mla,
        source=row.get("source", ""),
    )
    if not experts:
        return spec
    dense_layers = int(number(row, "moe_dense_layers") or 0)
    every = 2 if "maverick" in name else 1
    return replace(
        spec,
        moe_experts=experts,
        moe_topk=int(number(row, "moe_topk") or 1),
        moe_ffn=ffn,
        moe_shared_ffn=int(number(row, "moe_ffn_shared") or 0),
        moe_dense_layers=dense_layers if every == 1 else 0,
        moe_every=every,
        ffn=int(number(row, "moe_ffn_dense") or ffn),
    )


def _framework(row: Mapping[str, str], assumed: list[str]) -> str:
    text = (row.get("framework") or "").lower()
    if (row.get("source") or "").startswith("SimuMax"):
        return "simumax"
    for key, value in FRAMEWORKS:
        if key in text:
            return value
    assumed.append("framework")
    return "megatron"


def _release(*, row: Mapping[str, str], framework: str) -> tuple[int, int]:
    """Year and month of the software behind a row."""
    if framework == "megatron-deepspeed":
        return 2021, 12
    if framework in VERSIONED and (version := RELEASE.search(row.get("source_detail") or "")):
        return 2000 + int(version[1]), int(version[2])
    year = int(number(row, "year") or 2024)
    return MEASURED_IN.get((row.get("source") or "", year), (year, 12))


def machine_of_row(row: Mapping[str, str], assumed: list[str]) -> tuple[Machine, float]:
    """Network, part and software of a row, with the board's memory.

    Raises:
        SkipRowError: a part that the catalogue does not know.
    """
    try:
        gpu = catalog.gpu(row.get("gpu") or "")
    except (KeyError, ValueError) as error:
        raise SkipRowError("gpu", str(error)) from error
    if gpu.name.lower().startswith(("tpu", "trainium")):
        raise SkipRowError("gpu", f"{gpu.name} is not modelled")
    if gpu.name == "H100-SXM" and (number(row, "gpu_power_w") or 700) <= 500:
        gpu = catalog.gpu("H100-SXM-96-500W")
    per_node = _whole(row, "gpus_per_node", 8, assumed)
    gpus = int(number(row, "n_gpus") or per_node)
    scaleout = (row.get("scaleout") or "").strip()
    gbps = number(row, "scaleout_gbps_per_node")
    if not scaleout and gpus > per_node:
        scaleout = "ib"
        assumed.append("scaleout")
    if gbps is None and gpus > per_node:
        gbps = 200.0 * per_node
        assumed.append("scaleout_gbps_per_node")
    network = Network(
        scaleup=(row.get("scaleup") or gpu.scaleup_link).replace("none", "pcie"),
        scaleup_bytes_per_s=gpu.scaleup_bytes_per_s,
        scaleup_domain_gpus=int(number(row, "scaleup_domain_gpus") or per_node),
        gpus_per_node=per_node,
        scaleout=scaleout or "none",
        node_bytes_per_s=(gbps or 0.0) / 8 * 1e9,
        nic_count=per_node if (gbps or 0) >= 100 * per_node else max(1, round((gbps or 100) / 100)),
        gpu=gpu.name,
    )
    name = _framework(row, assumed)
    year, month = _release(row=row, framework=name)
    soft = software(framework=name, year=year, month=month)
    soft = replace(soft, fusions=soft.fusions | recipe_features(row=row, framework=name, year=year, month=month))
    flash = (row.get("flash") or "").strip()
    fusions = soft.fusions
    if flash == "no":
        fusions = (fusions - {"flash"}) | {"softmax"}
        soft = replace(soft, attention="unfused", fusions=fusions)
    elif flash == "yes" and "flash" not in fusions:
        soft = replace(soft, attention="flash2", fusions=fusions | {"flash"})
    if "token-drop" in (row.get("notes") or ""):
        # Capacity-padded experts go by plain all-to-all.
        soft = replace(soft, fusions=soft.fusions - {"ep_dedup", "ep_overlap"})
    if any(name in (row.get("framework") or "").lower() for name in ("llm.c", "lit-gpt")):
        # The fused loss writes its gradient over 16-bit logits, and the fused MLP computes its activation again.
        soft = replace(soft, fusions=soft.fusions | {"loss_in_place", "activation_recomputed"})
    if soft.framework == "torchtitan" and "compile" in (row.get("notes") or ""):
        soft = replace(soft, fusions=soft.fusions | {"loss_compiled"})
    capacity = number(row, "gpu_mem_gb")
    return Machine(gpu=gpu.name, network=network, software=soft), (capacity * 1e9 if capacity else gpu.mem_bytes)


def _expert_tp(*, row: Mapping[str, str], tp: int, dp: int, ep: int, assumed: list[str]) -> int:
    """Tensor parallelism inside an expert: as the notes say, else 1 where experts are folded over tp or tp is 1.

    Rows that name Megatron-Core's unfolded mapping, or FSDP with tensor parallelism, split experts like the rest.
    """
    if ep == 1 and tp == 1:
        return 1
    notes = row.get("notes") or ""
    stated = re.search(r"(?:expert-TP|etp)\s*=?\s*(\d+)", notes, re.IGNORECASE)
    if stated:
        return int(stated.group(1))
    if tp > 1:
        assumed.append("etp")
    unfolded = re.search(r"strategy (FSDP|FSDP\+EP|TP\+EP\+DP|MCore)\b", notes)
    return tp if unfolded and ep <= dp else 1


def layout_of_row(
    row: Mapping[str, str], model: ModelSpec, machine: Machine, capacity_bytes: float, assumed: list[str]
) -> Layout:
    """The parallel layout of a row; blanks take the documented default and are named in `assumed`.

    Defaults: degrees 1, or with fewer sequences than GPUs tensor and then context parallelism over the rest; the
    fastest mapping that fits where a Megatron-like stack prints neither tensor nor pipeline degree;
    micro-batch 1 under a pipeline, or for models above 20 billion parameters on stacks that do not gather weights for
    every micro-batch, else the largest halving of the local batch that fits; ZeRO-3 for FSDP-like stacks, else ZeRO-1;
    the stack's default recompute, more where memory rules that out by far; interleaving where the stack does so.
    """
    gpus = int(number(row, "n_gpus") or 0)
    if not gpus:
        raise SkipRowError("setting_missing", "n_gpus blank")
    gbs = number(row, "gbs")
    if gbs is None:
        raise SkipRowError("setting_missing", "gbs blank")
    stated = [number(row, k) for k in ("tp", "pp", "cp")]
    tp, pp, cp = (_whole(row, k, 1, assumed) for k in ("tp", "pp", "cp"))
    if not any(stated) and gpus > gbs:
        tp, cp = spread(ranks=math.ceil(gpus / gbs), per_node=machine.network.gpus_per_node, kv_heads=model.kv_heads)
    elif stated[0] is None and stated[1] is None and gpus > gbs * cp:
        # Context parallelism is ruled out or fixed: the rest is split over tensor, then over stages.
        per_node = machine.network.gpus_per_node
        tp, pp = spread(ranks=math.ceil(gpus / (gbs * cp)), per_node=per_node, kv_heads=model.kv_heads)
    dp = _whole(row, "dp", max(1, gpus // (tp * pp * cp)), assumed)
    experts = int(number(row, "ep") or 1)
    if tp == 1 and experts > 1 and pp * cp * dp * experts == gpus:
        # The printed degrees leave out attention that is sequence-parallel over the expert group (MegaScale-MoE).
        cp *= experts
    if tp * pp * cp * dp != gpus:
        dp = max(1, gpus // (tp * pp * cp))
    vpp = int(number(row, "vpp") or 0)
    if not vpp:
        vpp = 1
        if pp > 1:
            assumed.append("vpp")
            if interleaves(machine.software):
                vpp = most_chunks(layers=model.layers, pp=pp)
    ep = _whole(row, "ep", 1, assumed) if model.moe_experts else 1
    if gbs < dp:
        # As printed, some ranks would hold no sequence.
        gbs = float(dp)
        assumed.append("gbs")
    local = gbs / dp
    mbs = number(row, "mbs")
    blank_mbs = mbs is None
    if mbs is None:
        gathers = machine.software.framework in GATHERING
        mbs = 1.0 if pp > 1 or (total_params(model) > LARGE_PARAMS and not gathers) else local
        assumed.append("mbs")
    if pp > 1 and machine.software.framework == "torchtitan":
        # These tables print the local batch in this column; the pipeline's micro-batch is not printed.
        mbs = 1.0
        assumed.append("mbs")
    zero = number(row, "zero_stage")
    if zero is None:
        zero = 3.0 if machine.software.framework in GATHERING else 1.0
        assumed.append("zero_stage")
    recompute = (row.get("recompute") or "").strip()
    named = [m for policy, m in REMAT.items() if policy in (row.get("notes") or "")]
    modules: tuple[str, ...] = named[0] if named else ()
    if not recompute:
        modules = recomputed_modules(machine.software.fusions)
        recompute = "selective" if modules else DEFAULT_RECOMPUTE.get(machine.software.framework, "none")
        assumed.append("recompute")
    sp = (row.get("sp") or "").strip()
    if not sp and tp > 1:
        assumed.append("sp")
    precision = PRECISIONS.get((row.get("precision") or "bf16").strip(), "bf16")
    lora = 16 if re.search("lora", row.get("model") or "", re.IGNORECASE) else 0
    layout = Layout(
        tp=tp,
        pp=pp,
        vpp=vpp,
        dp=dp,
        cp=cp,
        ep=ep,
        etp=_expert_tp(row=row, tp=tp, dp=dp * cp, ep=ep, assumed=assumed),
        sequence_parallel=(sp == "yes") if sp else tp > 1 and machine.software.from_year >= 2022,
        zero_stage=int(zero),
        micro_batch=max(1, min(int(mbs), int(local) or 1)),
        global_batch=max(1, int(gbs)),
        sequence=int(number(row, "seq") or 2048),
        schedule="interleaved" if vpp > 1 else "1f1b",
        recompute=recompute if recompute in {"none", "selective", "full"} else "none",
        recompute_modules=modules if recompute == "selective" else (),
        precision=precision,
        gradient_bytes=machine.software.gradient_bytes,
        lora_rank=lora,
    )
    if not any(stated[:2]) and machine.software.framework in TUNED:
        return fastest(
            layout=layout, model=model, machine=machine, capacity_bytes=capacity_bytes, with_cp=stated[2] is None
        )
    return fitting(layout=layout, model=model, machine=machine, capacity_bytes=capacity_bytes) if blank_mbs else layout


def _padded(*, model: ModelSpec, framework: str, tp: int) -> ModelSpec:
    """Megatron-like stacks pad the vocabulary to 128 x tp; NVIDIA's BERT recipe pads to 8."""
    step = 8 if "bert" in model.name else 0
    if framework in {"megatron", "megatron-deepspeed", "nemo", "megascale", "deepspeed"}:
        step = 128 * tp
    return replace(model, vocab=-(-model.vocab // step) * step) if step else model


def setup_of_row(row: Mapping[str, str]) -> Setup:
    """Everything needed to forecast a row.

    Raises:
        SkipRowError: for one of the reasons the contract allows.
    """
    return _setup(tuple((k, v) for k, v in row.items() if isinstance(k, str) and isinstance(v, str)))


@lru_cache(maxsize=8192)
def _setup(cells: tuple[tuple[str, str], ...]) -> Setup:
    row, assumed = dict(cells), list[str]()
    model = model_of_row(row, assumed)
    machine, capacity = machine_of_row(row, assumed)
    model = _padded(model=model, framework=machine.software.framework, tp=int(number(row, "tp") or 1))
    layout = layout_of_row(row, model, machine, capacity, assumed)
    if "recompute" in assumed:
        layout = recomputed(layout=layout, model=model, machine=machine, capacity_bytes=capacity)
    memory_layout = memory_layout_of_row(
        row=row, model=model, layout=layout, machine=machine, capacity_bytes=capacity, assumed=tuple(assumed)
    )
    return Setup(model, layout, machine, capacity, tuple(dict.fromkeys(assumed)), memory_layout)
