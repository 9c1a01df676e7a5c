from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.workload.torch_memory import kept_layer_bytes, step_memory
from planner.workload.torch_step import (
    StepShape,
    embedding_kernels,
    flops,
    head_kernels,
    layer_kernels,
    padded_vocab,
)

GPT2 = StepShape(
    kind="gpt", layers=12, hidden=768, heads=12, kv_heads=12, ffn=3072, vocab=50304, micro_batch=4, sequence=1024
)
LLAMA = StepShape(
    kind="llama", layers=16, hidden=2048, heads=32, kv_heads=8, ffn=8192, vocab=128256, micro_batch=4, sequence=4096
)


def test_parameters_are_those_torch_counts() -> None:
    assert GPT2.params == 124_475_904
    assert LLAMA.params == 1_498_482_688
    assert (GPT2.tensors, LLAMA.tensors) == (148, 99)


@pytest.mark.parametrize("shape", [GPT2, LLAMA])
@pytest.mark.parametrize("mode", ["eager", "regional", "compile"])
def test_products_of_a_layer_do_six_flops_a_weight_and_token(shape: StepShape, mode: str) -> None:
    forward, backward = layer_kernels(replace(shape, mode=mode))  # type: ignore[arg-type]
    assert flops(forward) == 2 * shape.layer_weights * shape.tokens
    assert flops(backward) == 2 * flops(forward)


def test_recompute_runs_the_forward_again_but_for_its_last_product() -> None:
    again = layer_kernels(replace(LLAMA, recompute=True))[1]
    last = 2.0 * LLAMA.tokens * LLAMA.hidden * LLAMA.ffn
    assert flops(again) == pytest.approx(6 * LLAMA.layer_weights * LLAMA.tokens - last)


def test_pure_sixteen_bits_need_no_casts_and_bias_free_layers_no_column_sums() -> None:
    def names(shape: StepShape) -> set[str]:
        return {k.op for part in layer_kernels(shape) for k in part}

    assert "cast" in names(LLAMA)
    assert "cast" not in names(replace(LLAMA, precision="bf16"))
    assert "column_sum" in names(GPT2)
    assert "column_sum" not in names(LLAMA)


def test_only_the_whole_model_compiler_pads_the_vocabulary() -> None:
    odd = replace(GPT2, vocab=50257)
    assert padded_vocab(odd) == 50257
    assert padded_vocab(replace(odd, mode="compile")) == 50264
    assert padded_vocab(replace(GPT2, mode="compile")) == 50304


def test_a_tied_head_adds_two_gradients_of_the_table() -> None:
    assert any(k.elements == GPT2.vocab * GPT2.hidden for k in embedding_kernels(GPT2))
    assert not any(k.elements == LLAMA.vocab * LLAMA.hidden for k in embedding_kernels(LLAMA))
    assert flops(head_kernels(GPT2)) == 6.0 * GPT2.tokens * GPT2.vocab * GPT2.hidden


# Allocator samples of the H200 profile, four layers (gpt 768 8 x 1024; llama 2048 8 x 1024): (shape, bytes kept).
KEPT = [
    (replace(GPT2, micro_batch=8), 968_101_888),
    (replace(GPT2, micro_batch=8, precision="bf16"), 807_407_616),
    (replace(GPT2, micro_batch=8, mode="regional"), 918_425_600),
    (replace(LLAMA, micro_batch=8, sequence=1024), 4_081_324_032),
    (replace(LLAMA, micro_batch=8, sequence=1024, precision="bf16"), 3_326_349_312),
    (replace(LLAMA, micro_batch=8, sequence=1024, precision="bf16", mode="regional"), 2_789_478_400),
    (replace(LLAMA, micro_batch=8, sequence=1024, mode="regional"), 3_410_235_392),
]


@pytest.mark.parametrize(("shape", "measured"), KEPT)
def test_bytes_kept_for_the_backward_pass_are_those_of_the_allocator(shape: StepShape, measured: int) -> None:
    assert 4 * kept_layer_bytes(shape) == pytest.approx(measured, rel=0.005)


@given(
    layers=st.integers(1, 40),
    batch=st.integers(1, 32),
    precision=st.sampled_from(["amp", "bf16"]),
    mode=st.sampled_from(["eager", "regional", "compile"]),
)
def test_memory_grows_with_everything(layers: int, batch: int, precision: str, mode: str) -> None:
    shape = replace(LLAMA, layers=layers, micro_batch=batch, precision=precision, mode=mode)  # type: ignore[arg-type]
    peak = step_memory(shape).peak_bytes
    assert peak < step_memory(replace(shape, layers=layers + 1)).peak_bytes
    assert peak < step_memory(replace(shape, micro_batch=batch + 1)).peak_bytes
    assert step_memory(replace(shape, recompute=True)).peak_bytes <= peak
    assert peak > (8 if precision == "bf16" else 16) * shape.params * 0.74
