"""Peak bytes of a plain decoder's step in PyTorch's allocator, by what autograd keeps. Exact sizes, nothing fitted.

Kept bytes per layer agree with the allocator samples of the shipped H200 profile within 0.5 % (eager and compiled). The
peak is the largest of four moments: the loss with all activations alive, the first layer's backward pass, the end of
the backward pass with all gradients, and the update.
"""

from dataclasses import dataclass

from planner.workload.torch_step import StepShape, padded_vocab

WORKSPACE_BYTES = 2 * 32 * 2**20  # cuBLAS and cuBLASLt, 32 MiB each on Hopper (PyTorch's defaults)


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Bytes at each moment that may be the peak."""

    states_bytes: float
    activations_bytes: float
    at_loss_bytes: float
    at_backward_bytes: float
    at_end_bytes: float
    at_update_bytes: float

    @property
    def peak_bytes(self) -> float:
        """The largest moment."""
        return max(self.at_loss_bytes, self.at_backward_bytes, self.at_end_bytes, self.at_update_bytes)


def _width(shape: StepShape) -> int:
    return 4 if shape.precision == "amp" else 2


def kept_layer_bytes(shape: StepShape) -> float:
    """Bytes that one layer keeps for the backward pass, without recomputation.

    Residual stream at both norms, norm outputs, qkv, attention output and statistics, MLP inputs; under autocast the
    16-bit copies of the weights. Rotary keeps rotated copies of q and k and, through the view of v, the joint product.
    """
    t, h, f, w = shape.tokens, shape.hidden, shape.ffn, _width(shape)
    stream = 2 * w * h
    if shape.mode != "eager" and shape.precision == "amp":
        stream -= 2 * h  # the middle of the residual stream is kept as the 16-bit product that made it
    values = stream + 2 * 2 * h + 2 * shape.qkv_width + 2 * h
    if shape.kind == "llama":
        values += 2 * h + 2 * h + 2 * shape.kv_width  # rotated q, copied attention output, rotated k
        values += (8 if shape.mode == "eager" and "pointwise" not in shape.fused else 6) * f
    else:
        values += 4 * f
    statistics = 4 * shape.heads + (16 if shape.kind == "gpt" else 8)
    casts = 2.0 * shape.layer_weights if shape.precision == "amp" else 0.0
    return t * (values + statistics) + casts


def _layer_peak_bytes(shape: StepShape) -> float:
    """What the backward pass of one layer needs on top of what was kept."""
    t, h, f = shape.tokens, shape.hidden, shape.ffn
    return 4.0 * t * f + 2.0 * t * h + (2.0 * h * f if shape.kind == "gpt" else 0.0)


def _loss_bytes(shape: StepShape) -> float:
    """At the loss: log-probabilities, their gradient and the logits' in fp32; compiled, 16-bit logits alone."""
    t, h, v = shape.tokens, shape.hidden, padded_vocab(shape)
    casts = 2.0 * v * h + 2.0 * t * h if shape.precision == "amp" else 0.0
    if "loss" in shape.fused:
        return 4.0 * t * v + casts  # 16-bit logits, and a copy that becomes their gradient
    if shape.mode != "compile":
        return 12.0 * t * v + casts
    copies = 3.0 if v != shape.vocab else 1.0
    return 2.0 * copies * t * v + 2.0 * v * h + 2.0 * t * h + casts


def _update_bytes(shape: StepShape, params: float) -> float:
    """Temporaries of the update: none fused, one or two copies of what is updated at once else."""
    width = _width(shape)
    if shape.optimizer == "fused":
        return 0.0
    if shape.optimizer == "foreach":
        return float(width * params)
    return 2.0 * width * max(shape.vocab * shape.hidden, shape.hidden * shape.up_width)


def step_memory(shape: StepShape) -> StepMemory:
    """Allocator bytes of a step at its candidate peaks.

    Weights, AdamW moments and gradients are 4 bytes each a parameter under autocast, 2 in pure 16 bits.
    """
    p, w, t, h = shape.params, _width(shape), shape.tokens, shape.hidden
    states = 3.0 * w * p + WORKSPACE_BYTES
    layer = kept_layer_bytes(shape)
    kept = shape.layers * (w * t * h if shape.recompute else layer)
    if shape.mode == "compile" and shape.precision == "amp" and not shape.recompute:
        kept += max(0, shape.layers - 2) * 2 * t * h  # over block borders the sum is kept, but at the two ends
    again = layer if shape.recompute else 0.0
    head = (w + 2.0) * t * h  # input of the last norm and of the head
    held = float(w * p) if shape.accumulation > 1 else 0.0
    table = float(w * shape.vocab * h)
    ends = table if shape.kind == "gpt" else 0.0
    return StepMemory(
        states_bytes=states,
        activations_bytes=kept + head,
        at_loss_bytes=states + held + kept + head + _loss_bytes(shape),
        at_backward_bytes=states + held + kept + again + table + _layer_peak_bytes(shape),
        at_end_bytes=states + w * p + ends + 2 * w * t * h,
        at_update_bytes=states + w * p + _update_bytes(shape, p),
    )
