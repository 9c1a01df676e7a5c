"""Parameters, FLOPs and memory against published counts and closed forms."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog.types import ModelSpec
from planner.workload.layout import Layout, layers_per_chunk
from planner.workload.memory import layer_activation_bytes, rank_memory, worst_rank
from planner.workload.operators import head_operators, layer_operators
from planner.workload.params import model_flops_per_token, total_params

GPT3 = ModelSpec("gpt3", 96, 12288, 96, 96, 128, 49152, 51200, max_sequence=2048)
LLAMA70 = ModelSpec(
    "llama3-70b",
    80,
    8192,
    64,
    8,
    128,
    28672,
    128256,
    activation="swiglu",
    norm="rmsnorm",
    position="rotary",
    tied_embeddings=False,
    bias=False,
)
UNFUSED = frozenset({"norm", "activation", "softmax", "dropout", "cross_entropy"})
FLASH = frozenset({"norm", "activation", "residual", "rope", "cross_entropy", "flash"})


def test_published_parameter_counts():
    assert total_params(LLAMA70) == 70_553_706_496  # the checkpoint's own count
    assert total_params(GPT3) == pytest.approx(174.6e9, rel=0.002)


def test_layer_flops_are_the_textbook_24_b_s_h2():
    """One GPT layer forward: 24 B s h^2 + 4 B s^2 h (Narayanan et al. 2021, appendix)."""
    layout = Layout(micro_batch=2, sequence=2048, global_batch=2)
    ops = layer_operators(model=GPT3, layout=layout, moe=False, fusions=UNFUSED)
    forward = sum(op.flops for op in ops if op.phase == "forward")
    b, s, h = 2, 2048, 12288
    assert forward == pytest.approx(24 * b * s * h**2 + 4 * b * s**2 * h, rel=1e-6)
    backward = sum(op.flops for op in ops if op.phase == "backward")
    assert backward == pytest.approx(2 * forward, rel=1e-6)


def test_full_recompute_repeats_the_forward_pass():
    layout = Layout(micro_batch=1, sequence=2048, global_batch=1, recompute="full", tp=8, sequence_parallel=True)
    ops = layer_operators(model=GPT3, layout=layout, moe=False, fusions=UNFUSED)
    flops = {p: sum(op.flops for op in ops if op.phase == p) for p in ("forward", "recompute")}
    assert flops["recompute"] == flops["forward"]
    names = [op.name for op in ops if op.phase == "recompute" and op.kind == "collective"]
    assert names, "tensor-parallel collectives are repeated too"


@given(tp=st.sampled_from([1, 2, 4, 8]), seq=st.sampled_from([1024, 4096]), full=st.booleans())
def test_tensor_parallelism_conserves_flops(tp, seq, full):
    one = Layout(micro_batch=1, sequence=seq, global_batch=1, recompute="full" if full else "none")
    many = replace(one, tp=tp)
    total = [
        sum(op.flops for op in layer_operators(model=LLAMA70, layout=lay, moe=False, fusions=FLASH)) * lay.tp
        for lay in (one, many)
    ]
    assert total[1] == pytest.approx(total[0], rel=1e-9)


def test_no_communication_at_degree_one():
    ops = layer_operators(model=LLAMA70, layout=Layout(), moe=False, fusions=FLASH)
    ops += head_operators(model=LLAMA70, layout=Layout(), fusions=FLASH)
    assert not [op for op in ops if op.kind == "collective"]


@pytest.mark.parametrize(
    ("tp", "sp", "recompute", "formula"),
    [
        (1, False, "none", lambda s, b, h, a, t: s * b * h * (34 + 5 * a * s / h)),
        (8, False, "none", lambda s, b, h, a, t: s * b * h * (10 + 24 / t + 5 * a * s / (h * t))),
        (8, True, "none", lambda s, b, h, a, t: s * b * h / t * (34 + 5 * a * s / h)),
        (8, True, "selective", lambda s, b, h, a, t: 34 * s * b * h / t),
        (1, False, "full", lambda s, b, h, a, t: 2 * s * b * h),
    ],
)
def test_activation_bytes_are_korthikantis(tp, sp, recompute, formula):
    """Korthikanti et al. 2022, table 2; their MLP keeps 19 sbh, attention 11 sbh, norms 4 sbh."""
    s, b, h, a = 2048, 1, 12288, 96
    layout = Layout(tp=tp, sequence_parallel=sp, micro_batch=b, sequence=s, global_batch=1, recompute=recompute)
    ours = layer_activation_bytes(model=GPT3, layout=layout, moe=False, fusions=UNFUSED)
    assert ours == pytest.approx(formula(s, b, h, a, tp), rel=0.06)


def test_states_are_sixteen_or_eighteen_bytes_a_parameter():
    layout = Layout(tp=8, pp=8, dp=4, zero_stage=0, gradient_bytes=4, global_batch=64, sequence=2048, recompute="full")
    m = rank_memory(model=GPT3, layout=layout, stage=3, fusions=UNFUSED)
    per_layer = 12 * 12288**2 + 13 * 12288
    params = 12 * (per_layer / 8)
    assert m.weights_bytes + m.gradients_bytes + m.optimizer_bytes == pytest.approx(18 * params, rel=0.01)
    sharded = rank_memory(model=GPT3, layout=replace(layout, zero_stage=1), stage=3, fusions=UNFUSED)
    assert sharded.optimizer_bytes == pytest.approx(m.optimizer_bytes / 4)


def test_uneven_stages_put_every_layer_once():
    for layers, pp, vpp in ((126, 8, 1), (126, 16, 1), (70, 12, 1), (96, 8, 6), (80, 4, 5), (61, 4, 2)):
        counts = layers_per_chunk(layers=layers, layout=Layout(pp=pp, vpp=vpp))
        assert sum(map(sum, counts)) == layers
        assert max(map(max, counts)) - min(map(min, counts)) <= 1


@given(dp=st.sampled_from([1, 2, 8, 64]), zero=st.integers(0, 3))
def test_more_sharding_never_takes_more_memory(dp, zero):
    a = Layout(dp=dp, zero_stage=zero, global_batch=dp, sequence=4096)
    b = replace(a, zero_stage=min(3, zero + 1))
    pair = [rank_memory(model=LLAMA70, layout=x, stage=0, fusions=FLASH) for x in (a, b)]
    assert pair[1].weights_bytes + pair[1].gradients_bytes + pair[1].optimizer_bytes <= (
        pair[0].weights_bytes + pair[0].gradients_bytes + pair[0].optimizer_bytes
    ) * (1 + 1e-12)


def test_model_flops_per_token_of_llama3_70b():
    """6 x (70.55e9 - input embedding 1.05e9) + 6 L h s (causal-halved 12 L h s)."""
    expected = 6 * (70_553_706_496 - 128256 * 8192 - 0) + 6 * 80 * 8192 * 8192
    assert model_flops_per_token(model=LLAMA70, sequence=8192) == pytest.approx(expected, rel=1e-3)


def test_worst_rank_is_the_maximum():
    layout = Layout(tp=8, pp=4, dp=2, zero_stage=1, global_batch=64, sequence=4096)
    worst = worst_rank(model=LLAMA70, layout=layout, fusions=FLASH)
    every = [rank_memory(model=LLAMA70, layout=layout, stage=s, fusions=FLASH) for s in range(4)]
    assert math.isclose(worst.peak_bytes, max(m.peak_bytes for m in every))
