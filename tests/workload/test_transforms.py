"""Each optimisation changes what its mechanism says, and only where its conditions hold."""

import pytest

from planner import catalog
from planner.catalog.optimisations import optimisations
from planner.catalog.software import software
from planner.workload.layout import Layout
from planner.workload.operators import layer_operators
from planner.workload.transforms import CHANGES, NotApplicableError, Stack, apply, uncounted_bytes, unmet, without

LAYOUT = Layout(tp=4, pp=2, dp=8, zero_stage=1, micro_batch=1, global_batch=128, sequence=4096, precision="bf16")


def stack(*, gpu="H100-SXM", framework="pytorch", year=2023, model="llama2-7b", **layout):
    from dataclasses import replace

    return Stack(
        model=catalog.model(model),
        layout=replace(LAYOUT, **layout),
        software=software(framework=framework, year=year),
        gpu=gpu,
        nodes=8,
    )


def totals(s):
    ops = layer_operators(model=s.model, layout=s.layout, moe=False, fusions=s.software.fusions)
    return (
        sum(op.flops for op in ops),
        sum(op.launches for op in ops),
        sum(op.nbytes for op in ops if op.kind == "memory"),
    )


@pytest.mark.parametrize("key", ["torch_compile", "fused_pointwise", "flash_attn"])
def test_fusion_moves_fewer_bytes_in_fewer_launches(key):
    before = stack(year=2019) if key == "flash_attn" else stack()
    after = apply(key=key, stack=before)
    flops, launches, nbytes = totals(before)
    flops2, launches2, nbytes2 = totals(after)
    assert launches2 < launches
    assert nbytes2 < nbytes
    if key != "flash_attn":
        assert flops2 == flops


def test_recompute_adds_a_forward_pass():
    before = stack(year=2019)
    after = apply(key="full_ac", stack=before)
    assert totals(after)[0] == pytest.approx(totals(before)[0] * 4 / 3, rel=1e-6)


def test_sequence_parallel_moves_fewer_bytes_and_the_same_flops():
    before = stack(framework="megatron", sequence_parallel=False)
    after = apply(key="seq_parallel", stack=before)
    assert totals(after)[0] == totals(before)[0]
    assert totals(after)[2] < totals(before)[2]


def test_unfused_casts_cost_traffic_that_a_compiler_saves():
    eager = apply(key="fp8_tensorwise", stack=stack(), force=True)
    compiled = apply(key="fp8_tensorwise", stack=apply(key="torch_compile", stack=stack()))
    assert uncounted_bytes(eager) > uncounted_bytes(compiled) == 0


@pytest.mark.parametrize(
    ("key", "kwargs", "missing"),
    [
        ("fp8_tensorwise", {"gpu": "A100-80-SXM"}, "arch:Hopper"),
        ("fp8_tensorwise", {}, "compiled"),
        ("zero_bubble", {"pp": 1}, "pp>1"),
        ("async_tp", {"tp": 1}, "tp>1"),
        ("ep_overlap", {}, "moe"),
        ("tf32", {}, "precision:fp32"),
        ("fsdp_prefetch", {}, "zero:3"),
    ],
)
def test_conditions_are_named(key, kwargs, missing):
    s = stack(**kwargs)
    assert missing in unmet(key=key, stack=s)
    with pytest.raises(NotApplicableError, match=key):
        apply(key=key, stack=s)


def test_conflicts_and_repeats_are_refused():
    once = apply(key="interleaved", stack=stack(framework="megatron"))
    assert {"already:interleaved"} <= set(unmet(key="interleaved", stack=once))
    assert "conflict:interleaved" in unmet(key="zero_bubble", stack=once)


def test_every_condition_of_the_catalogue_is_understood():
    for key in optimisations():
        unmet(key=key, stack=stack())


@pytest.mark.parametrize("key", ["seq_parallel", "async_tp", "dp_overlap", "interleaved", "torch_compile", "fused_ce"])
def test_without_undoes_apply(key):
    start = without(key=key, stack=stack(framework="megatron"))
    after = apply(key=key, stack=start, force=True)
    assert after != start
    back = without(key=key, stack=after)
    assert (back.layout, back.software.fusions, back.compiled) == (start.layout, start.software.fusions, start.compiled)


@pytest.mark.parametrize(
    "key", [k for k, e in optimisations().items() if e.modelled_by in {"pilot", "data"} and k not in CHANGES]
)
def test_what_no_step_shows_acts_on_steps_or_tokens(key):
    before = stack()
    after = apply(key=key, stack=before, force=True)
    entry = optimisations()[key]
    assert after.steps_factor * after.tokens_factor == pytest.approx(entry.factor_typical)
    assert (after.layout, after.software) == (before.layout, before.software)
