"""Optimisation keys as changes of a training stack: operators, launches, bytes, streams, schedule. No seconds.

A `Stack` is everything that decides the operator list and the order of work. `apply` returns the stack after one
optimisation of the catalogue; what no operator list can show (host stalls, wire bytes of a compressor, a data set) is
a factor on a share of the step (`scales`), on the tokens processed or on the steps to target.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from planner import catalog
from planner.catalog.optimisations import optimisation
from planner.catalog.software import Software, age, software
from planner.catalog.types import ModelSpec
from planner.workload.layout import Layout
from planner.workload.operators import Operator, layer_operators
from planner.workload.torch_rank import POINTWISE

ARCHITECTURES = ("Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")
# Host work per operator that a compiled graph keeps (the same figure as `framework.mode: compile`).
COMPILED_HOST_SCALE = 0.6
# One kernel over all tensors against one pass per operation, 1e9 fp32 parameters on H200: 8.0 against 21.8 ms.
FUSED_OPTIMIZER_FACTOR = 8.0 / 21.8
# A third of an idle share is what host-side clean-up has brought in published cases.
HOST_SYNC_REALISED_FRAC = 1 / 3
# Share of a tensor-parallel collective that chunking hides (the figure behind `overlap.tp`).
TP_OVERLAP_FRAC = 0.5
# A captured step copies its inputs into static buffers: a GPU-bound fine-tuning run lost 1.5 % (gain row OG096).
GRAPH_COPY_FACTOR = 1.015
MAX_CHUNKS = 6
COMPOSED_NORM = (36 / 24 - 1, 82 / 40 - 1)  # uncounted share of traffic, forward and backward
# Chunked products lose 2 to 5 %.
CHUNKED_MATMUL_FACTOR = 1.035
LOW_PRECISION = frozenset({"fp8", "fp8_rowwise", "fp8_block", "mxfp8", "nvfp4"})


class NotApplicableError(ValueError):
    """An optimisation whose conditions do not hold here; the text says which."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A model and the way it is trained, before or after optimisations.

    Attributes:
        compiled: "" eager, `regional` (each block) or `whole` (the model with its loss).
        recompute_layers_frac: share of layers that full recompute covers.
        scales: (share of the step, factor) applied to the simulated breakdown; `total` is the whole step.
        fused_casts: quantising runs inside neighbouring kernels even without a compiler.
    p2p_overlap: pipeline transfers run beside compute where the schedule allows.
        tokens_factor: tokens processed for the same useful tokens, over those before.
        steps_factor: steps to the same quality, over those before.
        applied: keys in the order in which they were applied.
        profile: calibration profile that its kernels are read from; "" = none.
    """

    model: ModelSpec
    layout: Layout
    software: Software
    gpu: str
    nodes: int = 1
    compiled: str = ""
    cuda_graph: bool = False
    ep_overlap: bool = False
    recompute_layers_frac: float = 1.0
    scales: tuple[tuple[str, float], ...] = ()
    fused_casts: bool = False
    p2p_overlap: bool = True
    tokens_factor: float = 1.0
    steps_factor: float = 1.0
    applied: tuple[str, ...] = ()
    profile: str = ""

    def with_software(self, **changes: object) -> "Stack":
        """The stack on changed software."""
        return replace(self, software=replace(self.software, **changes))  # type: ignore[arg-type]

    def with_layout(self, **changes: object) -> "Stack":
        """The stack in a changed layout."""
        return replace(self, layout=replace(self.layout, **changes))  # type: ignore[arg-type]

    def scaled(self, share: str, factor: float) -> "Stack":
        """The stack with one more factor on a share of the step."""
        return replace(self, scales=(*self.scales, (share, factor)))


def _architecture(stack: Stack) -> int:
    name = catalog.gpu(stack.gpu).arch
    return next((i for i, a in enumerate(ARCHITECTURES) if name.startswith(a)), -1)


def _states(stack: Stack) -> Mapping[str, bool]:
    """Conditions of the catalogue's vocabulary that are not a comparison of degrees."""
    fusions, soft, lay, model = stack.software.fusions, stack.software, stack.layout, stack.model
    return {
        "compiled": bool(stack.compiled) or fusions >= POINTWISE,
        "dense": not model.moe_experts,
        "moe": bool(model.moe_experts),
        "static": True,
        "padding": True,
        "attention:unfused": "flash" not in fusions,
        "attention:fused": "flash" in fusions and soft.attention != "flash3",
        "pointwise:eager": not fusions >= POINTWISE or (not stack.compiled and soft.host_scale >= 1.0),
        "pointwise:eager/fused": True,
        "loss:eager": "cross_entropy" not in fusions,
        "optimizer:unfused": lay.optimizer in {"adamw_foreach", "adamw_loop"},
        "optimizer:full": soft.optimizer_bytes_per_param > 20,
        "vocab:odd": model.vocab % 128 != 0,
        "routing:eager": "moe" not in fusions,
        "older": age(_newest(stack)) > age(soft),
        "overlap:none": not soft.dp_overlap,
        "prefetch:none": not (soft.gather_overlap and soft.fsdp_prefetch),
        "sequence:whole": not lay.sequence_parallel,
        "tp_overlap:none": soft.tp_overlap_frac == 0.0,
        "window:none": model.sliding_window == 0,
        "precision:amp": lay.autocast,
        "precision:fp32": lay.precision == "fp32",
        "precision:fp32/tf32": lay.precision in {"fp32", "tf32"},
        "precision:bf16": lay.precision in {"bf16", "fp16"},
        "recompute:none": lay.recompute == "none",
        "recompute:none/selective": lay.recompute in {"none", "selective"},
        "vpp:1": lay.vpp == 1,
        "zero:3": lay.zero_stage == 3,
    }


def unmet(*, key: str, stack: Stack) -> tuple[str, ...]:
    """Conditions of an optimisation that a stack does not meet, conflicts with what is applied included.

    Raises:
        CatalogError: an unknown key.
        ValueError: a condition of the catalogue that is not in the vocabulary.
    """
    entry, lay = optimisation(key), stack.layout
    degrees = {"tp": lay.tp, "pp": lay.pp, "dp": lay.dp * lay.cp, "ep": lay.ep, "cp": lay.cp, "zero": lay.zero_stage}
    degrees |= {"gpus": lay.gpus, "nodes": stack.nodes}
    states = _states(stack)
    out = []
    for text in entry.requires:
        if text.startswith("arch:"):
            holds = _architecture(stack) >= ARCHITECTURES.index(text.removeprefix("arch:"))
        elif ">" in text:
            name, _, limit = text.partition(">")
            holds = degrees[name] > int(limit)
        elif "<" in text:
            name, _, limit = text.partition("<")
            holds = degrees[name] < int(limit)
        elif text in states:
            holds = states[text]
        else:
            raise ValueError(f"optimisation {key}: unknown condition {text!r}")
        if not holds:
            out.append(text)
    for other in stack.applied:
        if other == key:
            out.append(f"already:{key}")
        elif other in entry.conflicts or key in optimisation(other).conflicts:
            out.append(f"conflict:{other}")
    return tuple(out)


def _newest(stack: Stack) -> Software:
    return software(framework=stack.software.framework, year=2100)


def _layer(stack: Stack) -> tuple[Operator, ...]:
    moe = bool(stack.model.moe_experts)
    return layer_operators(model=stack.model, layout=stack.layout, moe=moe, fusions=stack.software.fusions)


def effective_model(stack: Stack) -> ModelSpec:
    """The model whose products run: fp32 kernels need no alignment, and compilers pad odd products by themselves.

    With a profile the compiled step's own list of kernels pads.
    """
    free = stack.layout.precision == "fp32" or (stack.compiled == "whole" and not stack.profile)
    return _padded(stack.model, tp=stack.layout.tp) if free else stack.model


def _padded(model: ModelSpec, *, tp: int) -> ModelSpec:
    step = 128 * tp
    return replace(model, vocab=-(-model.vocab // step) * step)


def uncounted_bytes(stack: Stack) -> float:
    """Device-memory traffic of a rank and step that the operator list leaves out.

    - Quantising in kernels of its own: every product reads both operands for their scales and quantises the right one
      (read 2 bytes, write 1); the pass over the left one is part of the product's own cost. One scale a row or block
      always pays it: the two layouts of a tensor have different scales.
    - RMSNorm composed of pointwise operators: 36 bytes an element forward (cast up, square, mean, scale, cast down,
      weight) and 82 backward (one pass an autograd node, sums of the two gradients), against 24 and 40.
    - Rotary positions in eager code run in fp32 (cast up, rotate, cast back: 20 bytes an element against 14).
    """
    lay, nbytes = stack.layout, 0.0
    apart = not (stack.fused_casts or stack.compiled)
    if lay.precision in LOW_PRECISION and (apart or lay.precision == "fp8_rowwise"):
        products = [op for op in _layer(stack) if op.kind in {"matmul", "grouped_matmul"} and op.low_precision]
        nbytes += sum((2.0 * op.m * op.k + 5.0 * op.k * op.n) * max(1, op.groups) for op in products)
    if "rope" not in stack.software.fusions and lay.compute_bytes == 2:
        nbytes += sum(6 / 14 * op.nbytes for op in _layer(stack) if op.name.startswith("rotary"))
    if "norm" not in stack.software.fusions and stack.model.norm == "rmsnorm":
        norms = [op for op in _layer(stack) if op.name.startswith("norm_")]
        nbytes += sum(COMPOSED_NORM[op.phase == "backward"] * op.nbytes for op in norms)
    return nbytes * stack.model.layers * lay.micro_batches / lay.pp


def _low_precision(dtype: str) -> Callable[[Stack, str], Stack]:
    def change(stack: Stack, variant: str) -> Stack:
        after = stack.with_layout(precision="nvfp4" if "nvfp4" in variant else dtype, autocast=False)
        fused = "transformerengine" in variant or stack.software.fusions >= POINTWISE
        after = replace(after, fused_casts=fused and "eager" not in variant)
        if dtype == "fp8" and stack.layout.zero_stage == 3 and stack.software.framework == "torchtitan":
            # Two gathers of 8-bit weights for two of 16 bit; the gradient's reduce-scatter stays.
            after = after.scaled("exposed_dp", 2 / 3)
        return after

    return change


def _amp(stack: Stack, variant: str) -> Stack:
    dtype = "bf16" if catalog.gpu(stack.gpu).peak_flops.get("bf16") else "fp16"
    return stack.with_layout(precision=dtype, autocast="pure" not in variant)


def _flash(stack: Stack, variant: str) -> Stack:
    kernel = "flash1" if variant.endswith("attention_1") else "flash2"
    fusions = (stack.software.fusions | {"flash"}) - {"softmax"}
    return stack.with_software(attention=kernel, fusions=fusions)


def _compile(stack: Stack, variant: str) -> Stack:
    whole = "regional" not in variant and stack.software.framework != "torchtitan"
    fusions = stack.software.fusions | POINTWISE
    if whole:
        fusions |= {"cross_entropy"}
    if "flash" not in fusions:
        fusions |= {"softmax"}
    after = replace(stack, compiled="whole" if whole else "regional")
    return after.with_software(fusions=fusions, host_scale=COMPILED_HOST_SCALE * stack.software.host_scale)


def _epilogue(stack: Stack, variant: str) -> Stack:
    del variant
    ops = _layer(stack)
    moved = sum(op.nbytes for op in ops if op.kind == "memory")
    saved = sum(op.nbytes for op in ops if op.name in {"activation", "activation_bwd"})
    # The product's epilogue does the activation: what is left is its output, about a third of the traffic.
    return stack.scaled("compute_memory_bound", 1 - 2 / 3 * saved / moved)


def _pad(stack: Stack, variant: str) -> Stack:
    del variant
    return replace(stack, model=_padded(stack.model, tp=stack.layout.tp))


def _most_chunks(*, layers: int, stages: int) -> int:
    """The most chunks, up to six, that divide a stage's layers; embedding and head fill a slot each where it helps."""
    slots = layers if layers % stages == 0 else layers + 2
    per_stage = max(1, slots // stages)
    return max(v for v in range(1, MAX_CHUNKS + 1) if per_stage % v == 0)


def _interleave(stack: Stack, variant: str) -> Stack:
    del variant
    lay = stack.layout
    chunks = _most_chunks(layers=stack.model.layers, stages=lay.pp)
    if chunks == 1 or lay.micro_batches % lay.pp:
        raise NotApplicableError(f"{stack.model.layers} layers on {lay.pp} stages cannot be interleaved")
    return stack.with_layout(vpp=chunks, schedule="interleaved")


def _zero_bubble(stack: Stack, variant: str) -> Stack:
    return stack.with_layout(schedule="zb2p" if "2p" in variant else "zb1p", vpp=1)


def _selective(stack: Stack, variant: str) -> Stack:
    if "(layer" in variant:
        return replace(stack.with_layout(recompute="full"), recompute_layers_frac=0.5)
    after = stack.with_layout(recompute="selective")
    if "flash" in stack.software.fusions and "op_selective" not in stack.software.fusions:
        # The fused kernel's forward pass runs again: one part in the 1 + 2.5 of both passes.
        after = after.scaled("compute_attention", 1 + 1 / 3.5)
    return after


def _casts(stack: Stack, variant: str) -> Stack:
    del variant
    return stack.with_layout(autocast=False)


def _upgrade(stack: Stack, variant: str) -> Stack:
    del variant
    new = _newest(stack)
    return stack.with_software(
        attention=new.attention,
        fusions=stack.software.fusions | new.fusions,
        dp_overlap=new.dp_overlap,
        gather_overlap=new.gather_overlap,
        tp_overlap_frac=max(new.tp_overlap_frac, stack.software.tp_overlap_frac),
        host_scale=min(new.host_scale, stack.software.host_scale),
        from_year=new.from_year,
        from_month=new.from_month,
    )


def _fuse(*names: str) -> Callable[[Stack, str], Stack]:
    return lambda stack, _variant: stack.with_software(fusions=stack.software.fusions | frozenset(names))


def _share(share: str, factor: float) -> Callable[[Stack, str], Stack]:
    return lambda stack, _variant: stack.scaled(share, factor)


def _software_of(**changes: object) -> Callable[[Stack, str], Stack]:
    return lambda stack, _variant: stack.with_software(**changes)


def _layout_of(**changes: object) -> Callable[[Stack, str], Stack]:
    return lambda stack, _variant: stack.with_layout(**changes)


def _update(optimizer: str, instead_of: Collection[str]) -> Callable[[Stack, str], Stack]:
    """Another form of AdamW; of a stack that does not say which form it runs, the usual share."""

    def change(stack: Stack, variant: str) -> Stack:
        del variant
        if stack.layout.optimizer in instead_of:
            return stack.with_layout(optimizer=optimizer)
        unknown = not stack.layout.optimizer.startswith("adamw_")
        return stack.scaled("optimizer", FUSED_OPTIMIZER_FACTOR) if unknown else stack

    return change


def _async_tp(stack: Stack, variant: str) -> Stack:
    del variant
    chunked = stack.scaled("compute_matmul", CHUNKED_MATMUL_FACTOR)
    return chunked.with_software(tp_overlap_frac=TP_OVERLAP_FRAC)


def _offload(stack: Stack, variant: str) -> Stack:
    del variant
    # Optimizer states in host memory; what the host link costs is the usual factor of published cases.
    after = stack.with_layout(optimizer_offload_frac=1.0)
    return after.scaled("total", optimisation("offload").factor_typical)


def _hand_written(stack: Stack, variant: str) -> Stack:
    del variant
    fusions = (stack.software.fusions | POINTWISE | {"flash", "cross_entropy"}) - {"softmax"}
    attention = stack.software.attention if "flash" in stack.software.fusions else "flash2"
    return replace(stack, compiled="whole").with_software(fusions=fusions, host_scale=0.1, attention=attention)


CHANGES: Mapping[str, Callable[[Stack, str], Stack]] = {
    "tf32": _layout_of(precision="tf32"),
    "amp": _amp,
    "fp8_tensorwise": _low_precision("fp8"),
    "fp8_rowwise": _low_precision("fp8_rowwise"),
    "mx_nv_fp": _low_precision("mxfp8"),
    "flash_attn": _flash,
    "fa3": _software_of(attention="flash3"),
    "fused_pointwise": _fuse(*POINTWISE),
    "fused_ce": _fuse("cross_entropy"),
    "fused_optimizer": _update("adamw_fused", {"adamw_foreach", "adamw_loop"}),
    "gemm_epilogue": _epilogue,
    "shape_padding": _pad,
    "grouped_gemm": _fuse("moe"),
    "hand_cuda": _hand_written,
    "torch_compile": _compile,
    "cuda_graphs": lambda stack, _variant: replace(
        stack if stack.profile else stack.scaled("total", GRAPH_COPY_FACTOR), cuda_graph=True
    ),
    "host_sync": _share("launch_gap", 1 - HOST_SYNC_REALISED_FRAC),
    "opt_batching": _update("adamw_foreach", {"adamw_loop"}),
    "cast_removal": _casts,
    "framework_upgrade": _upgrade,
    "dp_overlap": _software_of(dp_overlap=True, gather_overlap=True),
    "fsdp_prefetch": _software_of(gather_overlap=True, fsdp_prefetch=1),
    "zero_stage": lambda stack, _variant: stack.with_layout(zero_stage=min(3, stack.layout.zero_stage + 1)),
    "seq_parallel": _layout_of(sequence_parallel=True),
    "async_tp": _async_tp,
    "interleaved": _interleave,
    "zero_bubble": _zero_bubble,
    "ep_overlap": lambda stack, _variant: replace(stack, ep_overlap=True),
    "collective_tuning": _share("exposed_dp", 0.8),
    "grad_compression": _share("exposed_dp", 0.25),
    "zero_quant": _share("exposed_dp", 0.4),
    "local_sgd": lambda stack, _variant: replace(
        stack.scaled("exposed_dp", 1 / 16), steps_factor=1.05 * stack.steps_factor
    ),
    "offload": _offload,
    "full_ac": _layout_of(recompute="full"),
    "selective_ac": _selective,
    "local_attention": lambda stack, _variant: replace(
        stack, model=replace(stack.model, sliding_window=max(1024, stack.layout.sequence // 8))
    ),
    "parallel_block": _share("exposed_tp", 0.5),
}


def _eager(stack: Stack) -> Stack:
    fusions = stack.software.fusions - {"activation", "residual", "rope"}
    return replace(stack, compiled="").with_software(fusions=fusions, host_scale=max(1.0, stack.software.host_scale))


REMOVALS: Mapping[str, Callable[[Stack], Stack]] = {
    "tf32": lambda s: s.with_layout(precision="fp32", autocast=False),
    "amp": lambda s: s.with_layout(precision="fp32", autocast=False),
    "flash_attn": lambda s: s.with_software(
        attention="unfused",
        fusions=(s.software.fusions - {"flash"}) | ({"softmax"} if "megatron" in s.software.framework else set()),
    ),
    "fa3": lambda s: s.with_software(attention="flash2"),
    "fused_pointwise": _eager,
    "torch_compile": _eager,
    "fused_ce": lambda s: s.with_software(fusions=s.software.fusions - {"cross_entropy"}),
    "grouped_gemm": lambda s: s.with_software(fusions=s.software.fusions - {"moe"}),
    "seq_parallel": lambda s: s.with_layout(sequence_parallel=False),
    "async_tp": lambda s: s.with_software(tp_overlap_frac=0.0),
    "dp_overlap": lambda s: s.with_software(dp_overlap=False, gather_overlap=False),
    "fsdp_prefetch": lambda s: s.with_software(gather_overlap=False, fsdp_prefetch=0),
    "cuda_graphs": lambda s: replace(s, cuda_graph=False),
    "ep_overlap": lambda s: replace(s, ep_overlap=False),
    "interleaved": lambda s: s.with_layout(vpp=1, schedule="1f1b"),
    "zero_bubble": lambda s: s.with_layout(vpp=1, schedule="1f1b"),
    "cast_removal": lambda s: s.with_layout(autocast=True),
    "fused_optimizer": lambda s: s.with_layout(optimizer="adamw_foreach"),
}


def without(*, key: str, stack: Stack) -> Stack:
    """The stack as it was before an optimisation that it may already hold."""
    change = REMOVALS.get(key)
    return change(stack) if change is not None else stack


def apply(*, key: str, stack: Stack, variant: str = "", force: bool = False) -> Stack:
    """The stack after one optimisation.

    Args:
        key: key of the optimisation catalogue.
        stack: the stack before.
        variant: free text that picks a form of it (`zero_bubble_2p`, `torch_compile(regional)`).
        force: apply although conditions are not met (a measured case did).

    Raises:
        NotApplicableError: conditions that do not hold; the text names them.
        CatalogError: an unknown key.
    """
    missing = unmet(key=key, stack=stack)
    if missing and not force:
        raise NotApplicableError(f"{key}: {', '.join(missing)}")
    entry, change = optimisation(key), CHANGES.get(key)
    if change is not None:
        after = change(stack, variant.lower())
    elif entry.modelled_by == "pilot":
        after = replace(stack, steps_factor=stack.steps_factor * entry.factor_typical)
    elif entry.modelled_by == "run":
        after = stack  # it acts on goodput, not on the step
    elif entry.modelled_by == "data":
        after = replace(stack, tokens_factor=stack.tokens_factor * entry.factor_typical)
    else:
        # No share of the simulated step shows it: the catalogue's usual factor on the whole step.
        after = stack.scaled("total", entry.factor_typical)
    return replace(after, applied=(*stack.applied, key))
