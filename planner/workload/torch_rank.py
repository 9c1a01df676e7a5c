"""A rank that runs PyTorch's own step: its shape, and its memory counted tensor by tensor where nothing is sharded."""

from planner.catalog.software import Software
from planner.catalog.types import ModelSpec
from planner.workload.exchange import PLAIN
from planner.workload.layout import Layout
from planner.workload.memory import RankMemory, worst_rank
from planner.workload.memory_stack import CONTEXT_BYTES, RESERVE_FRAC
from planner.workload.torch_memory import StepMemory, step_memory
from planner.workload.torch_step import StepShape

TORCH = frozenset({"pytorch", "fsdp", "torchtitan"})
PRECISIONS = {"bf16": "", "fp8": "tensorwise", "fp8_rowwise": "rowwise"}
VARIANTS = {"adamw": "fused", "adamw_fused": "fused", "adamw_foreach": "foreach", "adamw_loop": "loop"}
MODES = {"": "eager", "whole": "compile", "regional": "regional"}
POINTWISE = frozenset({"norm", "activation", "residual", "rope"})
FIRST_MICRO_BATCHES = 3  # the host's run-ahead is the same from then on


def _kind(model: ModelSpec) -> str | None:
    plain = not (model.moe_experts or model.mla or model.qk_norm or model.sliding_window) and model.causal
    if not plain or model.heads * model.head_dim != model.hidden:
        return None
    parts = (model.norm, model.activation, model.position)
    if parts == ("layernorm", "gelu", "learned") and model.bias and model.tied_embeddings:
        return "gpt"
    biased = model.bias if model.qkv_bias is None else model.qkv_bias
    return "llama" if parts == ("rmsnorm", "swiglu", "rotary") and not (model.bias or biased) else None


def shape_of(
    *, model: ModelSpec, layout: Layout, software: Software, compiled: str = "", cuda_graph: bool = False
) -> StepShape | None:
    """The step of one rank as PyTorch runs it; None where this stack is not described by its kernels."""
    kind = _kind(model)
    if kind is None or software.framework not in TORCH or layout.precision not in PRECISIONS:
        return None
    if layout.cp > 1 or model.heads % layout.tp or layout.recompute_modules or layout.recompute_method:
        return None
    if layout.optimizer not in VARIANTS or layout.lora_rank or layout.offload_modules or layout.sequence % layout.tp:
        return None
    if software.framework == "torchtitan" and not compiled and software.fusions >= POINTWISE:
        compiled = "regional"  # its recipe compiles every block
    fused = {"pointwise"} if not compiled and software.fusions >= POINTWISE else set()
    fused |= {"loss"} if "cross_entropy" in software.fusions and compiled != "whole" else set()
    return StepShape(
        kind=kind,  # type: ignore[arg-type]
        layers=max(1, model.layers // layout.pp),
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads,
        ffn=model.ffn,
        vocab=model.vocab,
        micro_batch=layout.micro_batch,
        sequence=layout.sequence,
        accumulation=min(layout.micro_batches, FIRST_MICRO_BATCHES),
        mode=MODES[compiled],  # type: ignore[arg-type]
        precision="amp" if layout.autocast else "bf16",
        optimizer=VARIANTS[layout.optimizer],  # type: ignore[arg-type]
        recompute=layout.recompute == "full",
        core_recompute=layout.recompute == "selective",
        attention="math_causal" if software.attention == "unfused" else "default_causal",
        low_precision=PRECISIONS[layout.precision],
        fused=frozenset(fused),
        graph=cuda_graph,
        tp=layout.tp,
        sequence_parallel=layout.sequence_parallel,
        tied=model.tied_embeddings,
    )


def fullest_rank(
    *, model: ModelSpec, layout: Layout, software: Software, compiled: str = "", cuda_graph: bool = False
) -> RankMemory:
    """The fullest rank of a plan: by PyTorch's own tensors where it runs the whole step unsharded, else by the layout.

    The former errs 0.4 % on 70 measured H200 steps (`tests/forecast/test_torch_memory.py`), the latter 12 %.
    """
    shape = shape_of(model=model, layout=layout, software=software, compiled=compiled, cuda_graph=cuda_graph)
    # `adamw` keeps fp32 masters beside 16-bit weights, which is another optimizer than torch's.
    own = layout.autocast or layout.optimizer.startswith("adamw_")
    whole = layout.tp * layout.pp * layout.cp == 1 and layout.zero_stage == 0 and layout.exchange == PLAIN
    if shape is None or not own or not whole or shape.attention != "default_causal":
        return worst_rank(model=model, layout=layout, fusions=software.fusions)
    return _rank(shape=shape, found=step_memory(shape), replicas=layout.dp)


def _rank(*, shape: StepShape, found: StepMemory, replicas: int) -> RankMemory:
    # DistributedDataParallel copies gradients into buckets of its own unless gradient_as_bucket_view is set.
    width = 4.0 if shape.precision == "amp" else 2.0
    weights = width * shape.params
    buckets = weights if replicas > 1 else 0.0
    late = found.peak_bytes in {found.at_end_bytes, found.at_update_bytes}
    gradients = weights if late or shape.accumulation > 1 else 0.0
    moments = 2.0 * weights
    activations = 0.0 if late else found.activations_bytes
    peak = found.peak_bytes + buckets
    buffers = peak - weights - gradients - moments - activations
    return RankMemory(
        stage=0,
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=moments,
        activations_bytes=activations,
        buffers_bytes=buffers,
        peak_load_bytes=weights + buckets,
        peak_first_step_bytes=max(peak - moments, found.states_bytes + buckets),
        reserved_bytes=CONTEXT_BYTES + RESERVE_FRAC * (activations + buffers),
        steady_bytes=found.states_bytes + buckets,
    )
