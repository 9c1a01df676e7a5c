"""The operator list of a layer after sharding: shapes, bytes and launches, forward and backward. No seconds.

Matrix products are (m, n, k); traffic is bytes through device memory; collectives carry nccl-tests sizes
(the full gathered buffer for all-gather and reduce-scatter). Fusion is a set of names (`planner.workload.software`).
"""

from dataclasses import dataclass, replace

from planner.catalog.types import ModelSpec
from planner.workload.layout import Layout
from planner.workload.params import attention_dims, gates, layer_params
from planner.workload.recompute import AGAIN, again_of
from planner.workload.routing import busiest_over_mean


@dataclass(frozen=True, slots=True)
class Operator:
    """One kernel or collective of a phase.

    Attributes:
        kind: matmul, grouped_matmul, attention, memory or collective.
        phase: forward, recompute or backward.
        launches: framework calls the host makes for it (eager).
        groups: experts of a grouped matmul; `m` is then rows of one group.
        nbytes: traffic of a memory operator, or payload of a collective.
        axis: tp, cp, ep or etp for a collective.
        copies: experts a token goes to, where one copy is sent to each node and each rank (0 = one to each expert).
        in_kernel: a grouped matmul that quantises and activates by itself, all groups in one launch.
    """

    name: str
    kind: str
    phase: str = "forward"
    m: float = 0
    n: float = 0
    k: float = 0
    batch: float = 1
    groups: int = 0
    heads: float = 0
    kv_heads: float = 0
    seq_q: float = 0
    seq_kv: float = 0
    head_dim: float = 0
    causal: bool = True
    backward_pass: bool = False
    nbytes: float = 0.0
    launches: float = 1.0
    collective: str = ""
    axis: str = ""
    low_precision: bool = False
    copies: int = 0
    in_kernel: bool = False

    @property
    def flops(self) -> float:
        """Multiply-adds counted twice; causal attention counted half; attention backward 2.5 x forward."""
        if self.kind == "matmul":
            return 2.0 * self.m * self.n * self.k * self.batch
        if self.kind == "grouped_matmul":
            return 2.0 * self.m * self.n * self.k * self.groups
        if self.kind == "attention":
            full = 4.0 * self.batch * self.heads * self.seq_q * self.seq_kv * self.head_dim
            return full * (0.5 if self.causal else 1.0) * (2.5 if self.backward_pass else 1.0)
        return 0.0


def _linear(*, name: str, m: float, n: float, k: float, launches: float = 1) -> list[Operator]:
    forward = Operator(name, "matmul", m=m, n=n, k=k, launches=launches, low_precision=True)
    dgrad = replace(forward, name=f"{name}_dgrad", phase="backward", n=k, k=n)
    wgrad = replace(forward, name=f"{name}_wgrad", phase="backward", m=n, n=k, k=m)
    return [forward, dgrad, wgrad]


def _memory(
    *,
    name: str,
    forward_bytes: float,
    backward_bytes: float,
    launches: float = 1,
    backward_launches: float | None = None,
) -> list[Operator]:
    back = launches if backward_launches is None else backward_launches
    return [
        Operator(name, "memory", nbytes=forward_bytes, launches=launches),
        Operator(f"{name}_bwd", "memory", phase="backward", nbytes=backward_bytes, launches=back),
    ]


# Traffic that eager PyTorch's own kernels would need at the copy rate, in elements' widths: time on an H200 (profile
# h200-sxm, 16-bit, large) times its copy rate. Strided and mixed loads run well below it: forward, backward.
NATIVE_NORM = (3.2, 7.0)
NATIVE_ROTARY = (35.0, 33.0)
NATIVE_SWIGLU = (11.5, 19.5)
NATIVE_COPIES = (6.0, 7.0)  # heads back to tokens; joined gradient of q, k and v
# Generated kernels evaluate both halves of the joined gate and up gradient (kernel traces, torch 2.11).
GENERATED_SWIGLU_BACKWARD = 9.5


def _norm(*, name: str, elements: float, width: int, fusions: frozenset[str]) -> list[Operator]:
    if "norm" in fusions:
        return _memory(name=name, forward_bytes=2.0 * width * elements, backward_bytes=3.0 * width * elements)
    if "norm_native" in fusions:
        return _memory(
            name=name,
            forward_bytes=NATIVE_NORM[0] * width * elements,
            backward_bytes=NATIVE_NORM[1] * width * elements,
            backward_launches=2,
        )
    # An unfused RMSNorm upcasts to fp32, squares, averages, scales and casts back: about five passes.
    return _memory(name=name, forward_bytes=24.0 * elements, backward_bytes=40.0 * elements, launches=6)


def _tp_collective(*, layout: Layout, nbytes: float, where: str) -> list[Operator]:
    """Megatron f and g operators around a tensor-parallel block (arXiv 1909.08053; sequence parallel 2205.05198)."""
    if layout.tp == 1:
        return []
    base = Operator(f"tp_{where}", "collective", nbytes=nbytes, axis="tp")
    if not layout.sequence_parallel:
        return [
            replace(base, collective="all_reduce"),
            replace(base, name=f"tp_{where}_bwd", collective="all_reduce", phase="backward"),
        ]
    return [
        replace(base, name=f"tp_{where}_ag", collective="all_gather"),
        replace(base, name=f"tp_{where}_rs", collective="reduce_scatter"),
        replace(base, name=f"tp_{where}_ag_bwd", collective="all_gather", phase="backward"),
        replace(base, name=f"tp_{where}_rs_bwd", collective="reduce_scatter", phase="backward"),
        # The gathered input is not kept: it is gathered again for the weight gradient.
        replace(base, name=f"tp_{where}_regather", collective="all_gather", phase="backward"),
    ]


def _attention_core(*, model: ModelSpec, layout: Layout, fusions: frozenset[str]) -> list[Operator]:
    qk, v = attention_dims(model)
    heads, kv = model.heads / layout.tp, max(1.0, model.kv_heads / layout.tp)
    seq_q = layout.sequence / layout.cp
    span = layout.sequence
    causal = model.causal
    if model.sliding_window and model.sliding_window < span:
        # Every query sees at most a window of keys.
        span, causal = model.sliding_window, False
    head_dim = (qk + v) / 2
    b = layout.micro_batch
    if "flash" in fusions:
        forward = Operator(
            "attention",
            "attention",
            batch=b,
            heads=heads,
            kv_heads=kv,
            seq_q=seq_q,
            seq_kv=span,
            head_dim=head_dim,
            causal=causal,
            launches=2,
        )
        return [forward, replace(forward, name="attention_bwd", phase="backward", backward_pass=True, launches=3)]
    bh = b * heads
    scores = bh * seq_q * span
    ops = [
        Operator("scores", "matmul", m=seq_q, n=span, k=qk, batch=bh),
        Operator("context", "matmul", m=seq_q, n=v, k=span, batch=bh),
    ]
    for name, m, n, k in (
        ("dscores", seq_q, span, v),
        ("dv", span, v, seq_q),
        ("dq", seq_q, qk, span),
        ("dk", span, qk, seq_q),
    ):
        ops.append(Operator(name, "matmul", phase="backward", m=m, n=n, k=k, batch=bh))
    if "softmax" in fusions:
        # Scaled masked softmax in one kernel; dropout reads, writes and keeps a byte mask.
        return ops + _memory(
            name="softmax", forward_bytes=scores * (4 + 5), backward_bytes=scores * (5 + 6), launches=2
        )
    return ops + _memory(name="softmax", forward_bytes=scores * 26, backward_bytes=scores * 24, launches=5)


def attention_block(*, model: ModelSpec, layout: Layout, fusions: frozenset[str]) -> list[Operator]:
    """Norm, projections, rotary, core and residual of one layer."""
    t, h, tp, w = layout.tokens, model.hidden, layout.tp, layout.compute_bytes
    local = t / tp if layout.sequence_parallel else t
    ops = _norm(name="norm_attention", elements=local * h, width=w, fusions=fusions)
    ops += _tp_collective(layout=layout, nbytes=t * h * w, where="attention")
    kv_heads = max(model.kv_heads, tp)
    if model.mla is not None:
        a = model.mla
        ops += _linear(name="q_down", m=local, n=a.q_rank or h, k=h)
        ops += _linear(name="q_up", m=t, n=model.heads * (a.qk_nope_dim + a.qk_rope_dim) / tp, k=a.q_rank or h)
        ops += _linear(name="kv_down", m=local, n=a.kv_rank + a.qk_rope_dim, k=h)
        ops += _linear(name="kv_up", m=t, n=model.heads * (a.qk_nope_dim + a.v_dim) / tp, k=a.kv_rank)
        out_width = model.heads * a.v_dim / tp
        rotary = t * model.heads * a.qk_rope_dim / tp
    else:
        ops += _linear(name="qkv", m=t, n=(model.heads + 2 * kv_heads) * model.head_dim / tp, k=h)
        out_width = model.heads * model.head_dim / tp
        rotary = t * (model.heads + kv_heads) * model.head_dim / tp
    if model.position == "rotary":
        forward, backward = (2.0, 2.0) if "rope" in fusions else NATIVE_ROTARY
        ops += _memory(
            name="rotary",
            forward_bytes=forward * w * rotary,
            backward_bytes=backward * w * rotary,
            launches=1 if "rope" in fusions else 10,
        )
    ops += _attention_core(model=model, layout=layout, fusions=fusions)
    if "residual" not in fusions and "flash" in fusions:
        # Eager code copies: heads back to tokens forward, the joined q, k, v gradient backward.
        forward = NATIVE_COPIES[0] if model.position == "rotary" else 0.0
        ops += _memory(
            name="copies",
            forward_bytes=forward * w * t * out_width,
            backward_bytes=NATIVE_COPIES[1] * w * t * out_width,
        )
    ops += _linear(name="attention_out", m=t, n=h, k=out_width)
    return ops + _residual(elements=local * h, width=w, model=model, fusions=fusions, name="residual_attention")


def _residual(*, elements: float, width: int, model: ModelSpec, fusions: frozenset[str], name: str) -> list[Operator]:
    if "dropout" in fusions and "residual" not in fusions:
        extra = 2 * width + 1  # dropout reads, writes and keeps a byte mask
        bias = 2 * width if model.bias else 0
        return _memory(
            name=name,
            forward_bytes=elements * (3 * width + extra + bias),
            backward_bytes=elements * (2 * width + extra + (width if model.bias else 0)),
            launches=3,
        )
    # Eager autograd adds the two branches' gradients in a kernel of its own; fused stacks fold it into the norm.
    back = 1.0 if "residual" in fusions else 3.0
    return _memory(name=name, forward_bytes=3.0 * width * elements, backward_bytes=back * width * elements)


def _activation(
    *,
    model: ModelSpec,
    columns: float,
    rows: float,
    width: int,
    fusions: frozenset[str],
    name: str = "activation",
) -> list[Operator]:
    inputs = gates(model) - 1
    elements = rows * columns
    if "activation" in fusions:
        back = GENERATED_SWIGLU_BACKWARD if inputs == 2 and "generated" in fusions else 2 * inputs + 1
        return _memory(
            name=name,
            forward_bytes=elements * width * (inputs + 1),
            backward_bytes=elements * width * back,
        )
    bias = 2 * width * inputs if model.bias else 0
    forward, backward = NATIVE_SWIGLU if inputs == 2 else (2.2, 4.0)
    return _memory(
        name=name,
        forward_bytes=elements * (width * forward + bias),
        backward_bytes=elements * (width * backward + bias / 2),
        launches=3,
    )


def mlp_block(*, model: ModelSpec, layout: Layout, fusions: frozenset[str]) -> list[Operator]:
    """Norm, dense MLP and residual."""
    t, h, tp, w = layout.tokens, model.hidden, layout.tp, layout.compute_bytes
    local = t / tp if layout.sequence_parallel else t
    ops = _norm(name="norm_mlp", elements=local * h, width=w, fusions=fusions)
    ops += _tp_collective(layout=layout, nbytes=t * h * w, where="mlp")
    ops += _linear(name="up", m=t, n=(gates(model) - 1) * model.ffn / tp, k=h)
    ops += _activation(model=model, columns=model.ffn / tp, rows=t, width=w, fusions=fusions)
    ops += _linear(name="down", m=t, n=h, k=model.ffn / tp)
    return ops + _residual(elements=local * h, width=w, model=model, fusions=fusions, name="residual_mlp")


GROUPED_KERNEL = {"mxfp8", "nvfp4"}  # formats of cuDNN's grouped product with activation and quantisation inside


def moe_block(*, model: ModelSpec, layout: Layout, fusions: frozenset[str]) -> list[Operator]:
    """Norm, router, dispatch, grouped experts, combine, shared expert and residual, of the busiest expert rank."""
    t, h, w, g = layout.tokens, model.hidden, layout.compute_bytes, gates(model)
    local = t / layout.tp if layout.sequence_parallel else t
    choices = local * model.moe_topk
    routed = choices * busiest_over_mean(choices=choices, ranks=layout.ep)
    experts = max(1, model.moe_experts // layout.ep)
    if layout.etp > 1:
        routed *= layout.etp
    rows = routed / experts
    ops = _norm(name="norm_mlp", elements=local * h, width=w, fusions=fusions)
    ops += _linear(name="router", m=local, n=model.moe_experts, k=h)
    ops += _memory(
        name="route",
        forward_bytes=local * model.moe_experts * 12.0,
        backward_bytes=local * model.moe_experts * 12.0,
        launches=20 if "moe" in fusions else 40,
        backward_launches=12 if "moe" in fusions else 24,
    )
    # Sorted by expert before the exchange and again behind it, and back the same way: four passes, read and written.
    permute = routed / layout.etp * h * w * (8.0 if "moe" in fusions else 16.0)
    ops += _memory(
        name="permute", forward_bytes=permute, backward_bytes=permute, launches=6 if "moe" in fusions else 16
    )
    if layout.ep > 1:
        a2a = Operator(
            "ep_dispatch",
            "collective",
            nbytes=routed / layout.etp * h * w,
            axis="ep",
            collective="all_to_all",
            copies=model.moe_topk if "ep_dedup" in fusions else 0,
        )
        ops += [a2a, replace(a2a, name="ep_combine")]
        ops += [
            replace(a2a, name="ep_combine_bwd", phase="backward"),
            replace(a2a, name="ep_dispatch_bwd", phase="backward"),
        ]
    if layout.etp > 1:
        # Ranks that share an expert gather each other's tokens before it and scatter its partial sums behind it.
        gather = Operator("etp_gather", "collective", nbytes=routed * h * w, axis="etp", collective="all_gather")
        scatter = replace(gather, name="etp_scatter", collective="reduce_scatter")
        ops += [gather, scatter]
        ops += [replace(gather, name="etp_scatter_bwd", phase="backward")]
        ops += [replace(scatter, name="etp_gather_bwd", phase="backward")]
    ffn = model.moe_ffn / layout.etp
    fused = "moe_kernel" in fusions and layout.precision in GROUPED_KERNEL
    for name, n, k in (("expert_up", (g - 1) * ffn, h), ("expert_down", h, ffn)):
        f = Operator(name, "grouped_matmul", m=rows, n=n, k=k, groups=experts, low_precision=True, in_kernel=fused)
        ops += [
            f,
            replace(f, name=f"{name}_dgrad", phase="backward", n=k, k=n),
            replace(f, name=f"{name}_wgrad", phase="backward", m=n, n=k, k=rows),
        ]
    if not fused:
        ops += _activation(model=replace(model, bias=False), columns=ffn, rows=routed, width=w, fusions=fusions)
    if model.moe_shared_ffn:
        shared = model.moe_shared_ffn / layout.tp
        ops += _tp_collective(layout=layout, nbytes=t * h * w, where="shared")
        ops += _linear(name="shared_up", m=t, n=(g - 1) * shared, k=h)
        ops += _activation(
            model=replace(model, bias=False), columns=shared, rows=t, width=w, fusions=fusions, name="shared_activation"
        )
        ops += _linear(name="shared_down", m=t, n=h, k=shared)
    return ops + _residual(elements=local * h, width=w, model=model, fusions=fusions, name="residual_mlp")


def _weight_casts(*, model: ModelSpec, layout: Layout, moe: bool) -> list[Operator]:
    """Autocast reads fp32 weights and writes 16-bit ones at each use, and casts each gradient back."""
    if not layout.autocast:
        return []
    p = layer_params(model=model, moe=moe).total / layout.tp
    return _memory(name="weight_cast", forward_bytes=6.0 * p, backward_bytes=6.0 * p, launches=4, backward_launches=4)


def _context_parallel(*, model: ModelSpec, layout: Layout) -> list[Operator]:
    """Ring or all-gather exchange of keys and values; gradients go back the same way (ring attention, 2310.01889)."""
    if layout.cp == 1:
        return []
    width = model.kv_heads * model.head_dim if model.mla is None else model.heads * model.mla.v_dim
    kv = 2.0 * layout.micro_batch * layout.sequence * max(width / layout.tp, model.head_dim) * layout.compute_bytes
    gather = Operator("cp_kv", "collective", nbytes=kv, axis="cp", collective="all_gather")
    return [
        gather,
        replace(gather, name="cp_kv_bwd", phase="backward"),
        replace(gather, name="cp_dkv", phase="backward", collective="reduce_scatter"),
    ]


def layer_operators(*, model: ModelSpec, layout: Layout, moe: bool, fusions: frozenset[str]) -> tuple[Operator, ...]:
    """All operators of one decoder layer for one micro-batch, with what is recomputed.

    Full recompute repeats the forward pass (tensor-parallel collectives included); selective repeats the modules named,
    or the attention core where it is not a flash kernel, whose backward recomputes by itself (Korthikanti et al.,
    2205.05198).
    """
    ops = attention_block(model=model, layout=layout, fusions=fusions)
    ops += _context_parallel(model=model, layout=layout)
    block = moe_block if moe else mlp_block
    ops += block(model=model, layout=layout, fusions=fusions)
    ops += _weight_casts(model=model, layout=layout, moe=moe)
    if layout.lora_rank:
        # Frozen weights need no weight gradient.
        ops = [op for op in ops if not op.name.endswith("_wgrad")]
    forward = [op for op in ops if op.phase == "forward"]
    again: list[Operator] = []
    if layout.recompute == "full":
        again = [replace(op, phase="recompute") for op in forward]
    elif layout.recompute == "selective" and layout.recompute_modules:
        names = again_of(layout.recompute_modules, moe=moe)
        again = [replace(op, phase="recompute") for op in forward if op.name in names]
    elif layout.recompute == "selective" and "op_selective" in fusions:
        # torchtitan's policy keeps attention and every second product; all else is computed again.
        linears = [op for op in forward if op.kind == "matmul"]
        kept = {op.name for op in linears[::2]} | {"attention"}
        again = [replace(op, phase="recompute") for op in forward if op.name not in kept and op.kind != "collective"]
    elif layout.recompute == "selective" and "flash" not in fusions:
        again = [replace(op, phase="recompute") for op in forward if op.name in AGAIN["core_attn"]]
    return tuple(ops + again)


# A masked model predicts 15 % of its positions (BERT, arXiv 1810.04805, section 3.1); only they reach the head.
MASKED_FRAC = 0.15


def head_operators(*, model: ModelSpec, layout: Layout, fusions: frozenset[str]) -> tuple[Operator, ...]:
    """Final norm, output projection (vocabulary over tp) and cross-entropy of one micro-batch.

    Eager fp32 loss moves about 48 bytes a logit over both passes (cast, log-softmax, gather, gradient, cast); a fused
    one 18.
    """
    t, h, w = layout.tokens, model.hidden, layout.compute_bytes
    if not model.causal:
        t *= MASKED_FRAC
    local = t / layout.tp if layout.sequence_parallel else t
    ops = _norm(name="norm_final", elements=local * h, width=w, fusions=fusions)
    ops += _tp_collective(layout=layout, nbytes=t * h * w, where="head")[:5:2] if layout.tp > 1 else []
    head = _linear(name="head", m=t, n=model.vocab / layout.tp, k=h)
    ops += [replace(op, low_precision=False) for op in head]
    logits = t * model.vocab / layout.tp
    per_logit = 18.0 if "cross_entropy" in fusions else 48.0
    ops += _memory(name="loss", forward_bytes=logits * per_logit / 2, backward_bytes=logits * per_logit / 2, launches=6)
    if layout.autocast:
        p = model.vocab * h / layout.tp
        ops += _memory(name="head_cast", forward_bytes=6.0 * p, backward_bytes=6.0 * p)
    return tuple(ops)


def embedding_operators(*, model: ModelSpec, layout: Layout) -> tuple[Operator, ...]:
    """Look-up and its scatter-add gradient, with a zeroed gradient table."""
    t, h, w = layout.tokens, model.hidden, layout.compute_bytes
    table = model.vocab * h / layout.tp * (4 if layout.autocast else w)
    return tuple(
        _memory(name="embedding", forward_bytes=2.0 * w * t * h, backward_bytes=6.0 * w * t * h + table, launches=4)
    )
