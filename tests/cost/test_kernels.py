"""Kernels: labels, monotony, floors and published plateaus."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import catalog
from planner.cost.kernels import attention_s, grouped_matmul_s, kernel_floor_s, matmul_s, memory_bound_s

SIZES = st.sampled_from([128, 512, 1024, 4096, 16384])


@given(m=SIZES, n=SIZES, k=SIZES)
def test_larger_products_take_longer(m, n, k):
    base = matmul_s(gpu="H100-SXM", dtype="bf16", m=m, n=n, k=k).seconds
    for wider in ({"m": 2 * m}, {"n": 2 * n}, {"k": 2 * k}):
        assert matmul_s(gpu="H100-SXM", dtype="bf16", **({"m": m, "n": n, "k": k} | wider)).seconds >= base


@pytest.mark.parametrize(
    ("gpu", "tflops"), [("A100-80-SXM", 235), ("H100-SXM", 620), ("H200-SXM", 655), ("B200-SXM", 1190)]
)
def test_large_products_reach_the_sustained_rate(gpu, tflops):
    seconds = matmul_s(gpu=gpu, dtype="bf16", m=8192, n=8192, k=8192).seconds
    assert 2 * 8192**3 / seconds / 1e12 == pytest.approx(tflops, rel=0.06)


def test_misaligned_vocabulary_is_slow():
    even = matmul_s(gpu="H200-SXM", dtype="bf16", m=8192, n=50304, k=1024).seconds
    odd = matmul_s(gpu="H200-SXM", dtype="bf16", m=8192, n=50257, k=1024).seconds
    assert 4 < odd / even < 7  # 5.2 measured over the three products


@pytest.mark.parametrize("gpu", sorted(n for n in catalog.gpus() if not n.lower().startswith(("tpu", "trainium"))))
def test_every_part_gets_an_answer_with_a_label(gpu):
    for dtype in ("bf16", "fp16", "fp32", "fp8", "nvfp4"):
        estimate = matmul_s(gpu=gpu, dtype=dtype, m=4096, n=4096, k=4096)
        assert estimate.seconds > 0
        assert estimate.label in {"measured", "published", "transferred", "datasheet", "assumed"}
    peak = max(catalog.gpu(gpu).peak_flops.get(d, 0) for d in ("bf16", "fp16"))
    if peak:
        assert 2 * 8192**3 / matmul_s(gpu=gpu, dtype="bf16", m=8192, n=8192, k=8192).seconds < peak


def test_nothing_is_shorter_than_the_floor():
    floor = kernel_floor_s(gpu="H100-SXM").seconds
    assert memory_bound_s(gpu="H100-SXM", nbytes=1).seconds >= floor
    assert matmul_s(gpu="H100-SXM", dtype="bf16", m=1, n=8, k=8).seconds >= floor


@given(seq=st.sampled_from([512, 2048, 8192]), heads=st.sampled_from([8, 32]))
def test_attention_backward_is_slower_and_causal_faster(seq, heads):
    def run(**kw):
        base = {"gpu": "A100-80-SXM", "dtype": "bf16", "batch": 2, "heads": heads, "kv_heads": heads, "seq_q": seq,
                "seq_kv": seq, "head_dim": 128, "causal": True, "implementation": "flash2"}  # fmt: skip
        return attention_s(**(base | kw)).seconds

    assert run(direction="bwd") > run()
    assert run(causal=False) > run()
    assert run(implementation="flash1") > run()


def grouped_s(dtype, groups=16, rows=64, **more):
    return grouped_matmul_s(
        gpu="GB200", dtype=dtype, groups=groups, m_per_group=rows, n=1536, k=2048, **more
    ).seconds  # fmt: skip


@pytest.mark.parametrize("dtype", ["mxfp8", "nvfp4"])
def test_one_kernel_for_all_experts_starts_once(dtype):
    fused, apart = grouped_s(dtype, in_kernel=True), grouped_s(dtype)
    assert fused < apart
    floor = kernel_floor_s(gpu="GB200").seconds
    # More experts of fewer rows: the launches of each grow with their number, that of one kernel does not.
    assert grouped_s(dtype, groups=64, rows=16) - apart > 40 * floor
    flops = 2.0 * 1536 * 2048 * 4096
    assert fused >= flops / (catalog.gpu("GB200").peak_flops["fp4" if dtype == "nvfp4" else "fp8"])


def test_scaling_by_the_largest_value_takes_three_launches_an_expert():
    floor = kernel_floor_s(gpu="GB200").seconds
    eight, blocks = (grouped_s(d, groups=32, rows=1) - grouped_s(d, groups=16, rows=1) for d in ("fp8", "mxfp8"))
    assert eight - blocks == pytest.approx(2 * 16 * floor, rel=0.2)


def test_grouped_products_waste_small_groups():
    def rate(rows):
        seconds = grouped_matmul_s(gpu="H100-SXM", dtype="bf16", groups=8, m_per_group=rows, n=4096, k=4096).seconds
        return 2 * 8 * rows * 4096 * 4096 / seconds

    assert rate(64) < rate(512) < rate(4096)
