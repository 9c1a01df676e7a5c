"""The kernels of one training step of a plain decoder on a single GPU, as PyTorch runs them. No seconds.

GPT (LayerNorm, biases, GELU, learned positions, tied head) or Llama (RMSNorm, rotary, SwiGLU, grouped queries, untied
head); eager, each block compiled, or the whole model compiled; autocast or pure 16-bit. Read off kernel traces of torch
2.11 on an H200: the order is the order of launch, shapes are those of the forward product for all three phases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Mode = Literal["eager", "regional", "compile"]


@dataclass(frozen=True, slots=True)
class StepShape:
    """One step: model, batch and how it is run.

    Attributes:
        micro_batch: sequences of a micro-batch; `accumulation` micro-batches a step.
        ffn: inner size; a Llama layer has two such products in one.
        recompute: every block is run again in the backward pass.
        attention: back end, as the profile names it: what PyTorch picks, or `math_causal` for the unfused one.
        low_precision: "" or the layout of 8-bit products (tensorwise, rowwise).
        fused: eager code with single generated kernels in it: `pointwise` (norms, activation, rotary), `loss`.
        graph: the whole step is one captured graph.
        tp: tensor-parallel ranks; widths, heads and vocabulary are those of one rank.
        sequence_parallel: norms and residuals are split over them.
        tied: one table for embedding and head; None = as the kind has it.
        core_recompute: the attention core alone is run again.
    """

    kind: Literal["gpt", "llama"]
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    micro_batch: int
    sequence: int
    accumulation: int = 1
    mode: Mode = "eager"
    precision: Literal["amp", "bf16"] = "amp"
    optimizer: Literal["fused", "foreach", "loop"] = "fused"
    recompute: bool = False
    attention: str = "default_causal"
    low_precision: str = ""
    fused: frozenset[str] = frozenset()
    graph: bool = False
    tp: int = 1
    sequence_parallel: bool = False
    tied: bool | None = None
    core_recompute: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        return self.micro_batch * self.sequence

    @property
    def head_dim(self) -> int:
        """Size of a head."""
        return self.hidden // self.heads

    @property
    def stream_tokens(self) -> int:
        """Tokens of the residual stream on a rank."""
        return self.tokens // self.tp if self.sequence_parallel else self.tokens

    @property
    def rank_heads(self) -> int:
        """Query heads of a rank."""
        return self.heads // self.tp

    @property
    def rank_kv_heads(self) -> int:
        """Key and value heads of a rank; with fewer heads than ranks each holds one."""
        return max(1, self.kv_heads // self.tp)

    @property
    def q_width(self) -> int:
        """Columns of the queries of a rank."""
        return self.rank_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of keys, and of values."""
        return self.rank_kv_heads * self.head_dim

    @property
    def qkv_width(self) -> int:
        """Columns of the joint product."""
        return self.q_width + 2 * self.kv_width

    @property
    def ffn_width(self) -> int:
        """Inner size of a rank."""
        return self.ffn // self.tp

    @property
    def up_width(self) -> int:
        """Columns of the first product of the MLP."""
        return self.ffn_width if self.kind == "gpt" else 2 * self.ffn_width

    @property
    def vocab_width(self) -> int:
        """Columns of the output projection of a rank."""
        return -(-self.vocab // self.tp)

    @property
    def one_table(self) -> bool:
        """Whether embedding and head share their table."""
        return self.kind == "gpt" if self.tied is None else self.tied

    @property
    def stream(self) -> str:
        """Data type of the residual stream and the weights."""
        return "fp32" if self.precision == "amp" else "bf16"

    @property
    def layer_weights(self) -> int:
        """Matrix weights of a layer."""
        return self.hidden * (self.qkv_width + self.q_width + self.up_width + self.ffn_width)

    @property
    def layer_params(self) -> int:
        """All parameters of a layer."""
        if self.kind == "gpt":
            return self.layer_weights + self.qkv_width + self.hidden + self.up_width + self.hidden + 4 * self.hidden
        return self.layer_weights + 2 * self.hidden

    @property
    def params(self) -> int:
        """Trained parameters, a tied head once."""
        ends = self.vocab_width * self.hidden * (1 if self.one_table else 2)
        if self.kind == "gpt":
            ends += self.sequence * self.hidden + 2 * self.hidden
        else:
            ends += self.hidden
        return self.layers * self.layer_params + ends

    @property
    def tensors(self) -> int:
        """Parameter tensors, which the optimizer visits."""
        return 12 * self.layers + 4 if self.kind == "gpt" else 6 * self.layers + 3


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch, or a few that always come together.

    Attributes:
        kind: matmul, attention, table (a measured operator of `elements` values), rows (one over `m` rows of `n`
            values), pointwise (`nbytes` of traffic in a generated kernel), reduction (its small end, or a small cast),
            embedding, loss or optimizer.
        op: name of a table operator, or variant of the others.
        phase: fwd, dgrad, wgrad or bwd.
    """

    kind: str
    op: str = ""
    phase: str = "fwd"
    dtype: str = "bf16"
    m: int = 0
    n: int = 0
    k: int = 0
    elements: float = 0.0
    nbytes: float = 0.0


def _matmul(*, m: int, n: int, k: int, phase: str = "fwd") -> Kernel:
    return Kernel("matmul", "matmul", phase, "bf16", m=m, n=n, k=k)


def _product(shape: StepShape, *, m: int, n: int, k: int, phase: str = "fwd") -> list[Kernel]:
    """A product of a layer: in 16 bits, or in 8 bits behind the kernels that quantise its operands.

    The left operand is read in 16 bits and written in 8; scale passes and the right operand's own kernel (read twice,
    written once) stand apart where no compiler joins them with their neighbours, and with one scale a row always.
    """
    if not shape.low_precision:
        return [_matmul(m=m, n=n, k=k, phase=phase)]
    rows, columns, inner = {"fwd": (m, n, k), "dgrad": (m, k, n), "wgrad": (n, k, m)}[phase]
    out = [_pointwise(3.0 * rows * inner)]
    if shape.mode == "eager" or shape.low_precision == "rowwise":
        out += [_pointwise(2.0 * rows * inner), _pointwise(5.0 * inner * columns)]
    return [*out, Kernel("matmul", shape.low_precision, phase, "fp8", m=m, n=n, k=k)]


def _table(op: str, dtype: str, elements: float, phase: str = "fwd") -> Kernel:
    return Kernel("table", op, phase, dtype, elements=elements)


def _rows(op: str, dtype: str, *, rows: int, width: int, phase: str = "fwd") -> Kernel:
    return Kernel("rows", op, phase, dtype, m=rows, n=width)


def _norm(shape: StepShape, phase: str = "fwd") -> Kernel:
    op = "layernorm" if shape.kind == "gpt" else "rmsnorm"
    return _rows(op, shape.stream, rows=shape.stream_tokens, width=shape.hidden, phase=phase)


REDUCTION = Kernel("reduction")


def _pointwise(nbytes: float) -> Kernel:
    return Kernel("pointwise", nbytes=nbytes)


def _down_cast(shape: StepShape, elements: float) -> list[Kernel]:
    """Autocast: 32-bit values to 16 bits."""
    return [_table("cast", "fp32", elements)] if shape.precision == "amp" else []


def _up_cast(shape: StepShape, elements: float) -> list[Kernel]:
    """Autocast: 16-bit gradients back to 32 bits."""
    return [_table("cast", "bf16", elements)] if shape.precision == "amp" else []


def _linear(shape: StepShape, *, n: int, k: int, cast_input: bool) -> list[Kernel]:
    t, gpt = shape.tokens, shape.kind == "gpt"
    bias = _down_cast(shape, n) if gpt else []
    head = bias + _down_cast(shape, n * k) + (_down_cast(shape, t * k) if cast_input else [])
    return [*head, *_product(shape, m=t, n=n, k=k)]


def _both_gradients(shape: StepShape, *, n: int, k: int) -> list[Kernel]:
    return [p for phase in ("dgrad", "wgrad") for p in _product(shape, m=shape.tokens, n=n, k=k, phase=phase)]


def _linear_backward(shape: StepShape, *, n: int, k: int, cast_output: bool) -> list[Kernel]:
    """Gradients of one product; `cast_output` where the gradient of the input returns to the residual stream."""
    t = shape.tokens
    out = _both_gradients(shape, n=n, k=k)
    if shape.kind == "gpt":
        out.append(_rows("column_sum", "bf16", rows=t, width=n))
    if cast_output:
        out += _up_cast(shape, t * k)
    out += _up_cast(shape, n * k)
    return out + (_up_cast(shape, n) if shape.kind == "gpt" else [])


def _residual_add(shape: StepShape) -> Kernel:
    op = "add_mixed" if shape.precision == "amp" else "add"
    return _table(op, "bf16", shape.stream_tokens * shape.hidden)


def eager_forward(shape: StepShape) -> list[Kernel]:
    """Forward pass of one layer in eager mode."""
    t, h, q = shape.tokens, shape.hidden, shape.q_width
    norm = _norm(shape)
    out = [norm, *_linear(shape, n=shape.qkv_width, k=h, cast_input=True)]
    if shape.kind == "llama":
        out += [_table("rotary", "bf16", t * q), _table("rotary", "bf16", t * shape.kv_width)]
    out.append(Kernel("attention", phase="fwd"))
    if shape.kind == "llama":
        out.append(_table("heads_copy", "bf16", t * q))
    out += [*_linear(shape, n=h, k=q, cast_input=False), _residual_add(shape), norm]
    out += _linear(shape, n=shape.up_width, k=h, cast_input=True)
    out.append(_table("gelu" if shape.kind == "gpt" else "swiglu", "bf16", t * shape.ffn_width))
    return [*out, *_linear(shape, n=h, k=shape.ffn_width, cast_input=False), _residual_add(shape)]


def eager_backward(shape: StepShape) -> list[Kernel]:
    """Backward pass of one layer in eager mode."""
    t, h, q = shape.tokens, shape.hidden, shape.q_width
    norm = [_norm(shape, "bwd"), _table("add", shape.stream, shape.stream_tokens * h)]
    out = _down_cast(shape, t * h) + _linear_backward(shape, n=h, k=shape.ffn_width, cast_output=False)
    out.append(_table("gelu" if shape.kind == "gpt" else "swiglu", "bf16", t * shape.ffn_width, "bwd"))
    out += _linear_backward(shape, n=shape.up_width, k=h, cast_output=True) + norm
    out += _down_cast(shape, t * h) + _linear_backward(shape, n=h, k=q, cast_output=False)
    out.append(Kernel("attention", phase="bwd"))
    if shape.kind == "llama":
        for width in (shape.kv_width, q):
            out += [_table("rotary", "bf16", t * width, "bwd"), _table("heads_copy", "bf16", t * width)]
    out.append(_table("join3", "bf16", t * shape.qkv_width / 3))
    return out + _linear_backward(shape, n=shape.qkv_width, k=h, cast_output=True) + norm


# Traffic of generated kernels in bytes a value, read off kernel traces (time times the copy rate, so arithmetic that a
# kernel cannot hide counts as traffic). Norms are joined with residual additions and casts; later layers read more
# additions again, these are means over a model.
FUSED_NORM = {("gpt", "amp"): 18.0, ("gpt", "bf16"): 10.0, ("llama", "amp"): 14.0, ("llama", "bf16"): 8.0}
FUSED_NORM_BACKWARD = {"amp": 17.0, "bf16": 9.0}
FUSED_NORM_COLUMNS = {"amp": 9.5, "bf16": 6.0}
FUSED_ACTIVATION = {"gpt": 5.5, "llama": 6.0}
# Both halves of a joined gate and up gradient evaluate the whole expression (masked loads).
FUSED_ACTIVATION_BACKWARD = {"gpt": 7.2, "llama": 19.0}


def _weight_cast(shape: StepShape, weights: float) -> list[Kernel]:
    return [_pointwise(6.0 * weights)] if shape.precision == "amp" else []


def compiled_forward(shape: StepShape) -> list[Kernel]:
    """Forward pass of one compiled layer: norm, residual and casts in one kernel, rotary and activation in one each."""
    t, h, q = shape.tokens, shape.hidden, shape.q_width
    norm = _pointwise(FUSED_NORM[shape.kind, shape.precision] * shape.stream_tokens * h)
    out = [norm, *_weight_cast(shape, shape.qkv_width * h), *_product(shape, m=t, n=shape.qkv_width, k=h)]
    if shape.kind == "llama":
        out += [_pointwise(5.0 * t * q), _pointwise(5.0 * t * shape.kv_width)]
    out.append(Kernel("attention", phase="fwd"))
    if shape.kind == "llama":
        out.append(_pointwise(4.0 * t * q))
    out += [*_weight_cast(shape, h * q), *_product(shape, m=t, n=h, k=q), norm]
    out += _weight_cast(shape, shape.up_width * h)
    out += _product(shape, m=t, n=shape.up_width, k=h)
    out.append(_pointwise(FUSED_ACTIVATION[shape.kind] * t * shape.ffn_width))
    if shape.kind == "gpt" and shape.precision == "amp":
        out += [REDUCTION] * 4  # casts of the biases
    return [*out, *_weight_cast(shape, h * shape.ffn_width), *_product(shape, m=t, n=h, k=shape.ffn_width)]


def _compiled_linear_backward(shape: StepShape, *, n: int, k: int) -> list[Kernel]:
    t = shape.tokens
    out = _both_gradients(shape, n=n, k=k)
    if shape.kind == "gpt":
        out += [_pointwise(2.0 * t * n), REDUCTION]
    return out + _weight_cast(shape, n * k)


def compiled_backward(shape: StepShape) -> list[Kernel]:
    """Backward pass of one compiled layer."""
    t, h, q, local = shape.tokens, shape.hidden, shape.q_width, shape.stream_tokens
    norm = [_pointwise(FUSED_NORM_BACKWARD[shape.precision] * local * h)]
    if shape.kind == "gpt":
        norm += [_pointwise(FUSED_NORM_COLUMNS[shape.precision] * local * h), REDUCTION, REDUCTION]
    else:
        norm += [_pointwise(0.25 * local * h), REDUCTION]
    cast = [_pointwise(6.0 * t * h)] if shape.precision == "amp" else []
    out = cast + _compiled_linear_backward(shape, n=h, k=shape.ffn_width)
    out.append(_pointwise(FUSED_ACTIVATION_BACKWARD[shape.kind] * t * shape.ffn_width))
    out += _compiled_linear_backward(shape, n=shape.up_width, k=h) + norm
    out += [*_compiled_linear_backward(shape, n=h, k=q), Kernel("attention", phase="bwd")]
    if shape.kind == "llama":
        out += [_pointwise(6.0 * t * q), _pointwise(6.0 * t * shape.kv_width)]
    out.append(_pointwise(4.0 * t * shape.qkv_width))
    return out + _compiled_linear_backward(shape, n=shape.qkv_width, k=h) + norm


def layer_kernels(shape: StepShape) -> tuple[list[Kernel], list[Kernel]]:
    """Kernels of one layer: forward, and what the backward pass runs (the forward again with recompute)."""
    eager = shape.mode == "eager" and "pointwise" not in shape.fused
    forward = eager_forward(shape) if eager else compiled_forward(shape)
    backward = eager_backward(shape) if eager else compiled_backward(shape)
    if shape.core_recompute:
        return forward, [Kernel("attention", phase="fwd"), *backward]
    if not shape.recompute:
        return forward, backward
    # Checkpointing stops once all that the backward pass needs is there: the last product and addition are left out.
    return forward, forward[: -2 if eager else -1] + backward


def padded_vocab(shape: StepShape) -> int:
    """Columns of the output projection: the whole-model compiler pads a misaligned vocabulary to 8."""
    return -(-shape.vocab_width // 8) * 8 if shape.mode == "compile" else shape.vocab_width


def head_kernels(shape: StepShape) -> list[Kernel]:
    """Last norm, output projection and loss, forward and backward."""
    t, h, v = shape.tokens, shape.hidden, padded_vocab(shape)
    fused = shape.mode == "compile" or "loss" in shape.fused
    loss = Kernel("loss", "compile" if fused else "eager", m=t, n=shape.vocab_width)
    products = [_matmul(m=t, n=v, k=h), loss, _matmul(m=t, n=v, k=h, phase="wgrad")]
    products.append(_matmul(m=t, n=v, k=h, phase="dgrad"))
    if shape.mode == "compile":
        both = FUSED_NORM[shape.kind, shape.precision] + FUSED_NORM_BACKWARD[shape.precision]
        norm = [_pointwise(both * t * h)]
        pad = [_pointwise(4.0 * h * v), _pointwise(4.0 * t * v)] if v != shape.vocab_width else []
        casts = _weight_cast(shape, v * h) * 2
        return [*norm, *casts, *pad, *products]
    casts = _down_cast(shape, t * h) + _down_cast(shape, v * h)
    back = _up_cast(shape, t * h) + _up_cast(shape, v * h)
    return [_norm(shape), *casts, *products, *back, _norm(shape, "bwd")]


def embedding_kernels(shape: StepShape) -> list[Kernel]:
    """Look-up with positions, its gradients, and the sum of the tied table's two gradients."""
    t, h = shape.tokens, shape.hidden
    out = [
        Kernel("embedding", phase="fwd", dtype=shape.stream, m=t, n=shape.vocab_width, k=h),
        Kernel("embedding", phase="bwd", dtype=shape.stream, m=t, n=shape.vocab_width, k=h),
    ]
    if shape.kind == "gpt":
        out += [_table("add", shape.stream, t * h), _table("fill", shape.stream, t * h / 2)]
    if shape.one_table:
        out.append(_table("add", shape.stream, shape.vocab_width * h))
    return out


def accumulate_kernels(shape: StepShape) -> list[Kernel]:
    """Every further micro-batch adds its gradients to those kept."""
    return [_table("add", shape.stream, shape.params)]


def update_kernels(shape: StepShape) -> list[Kernel]:
    """AdamW over all parameters."""
    return [Kernel("optimizer", shape.optimizer, m=shape.tensors, elements=shape.params, dtype=shape.precision)]


def flops(kernels: Sequence[Kernel]) -> float:
    """Multiply-adds of the matrix products, counted twice; attention is left out (its shape is the step's)."""
    return sum(2.0 * k.m * k.n * k.k for k in kernels if k.kind == "matmul")
