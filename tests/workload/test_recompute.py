"""Recompute by module and by layers: what runs again, what is freed, and that the parts add up."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import catalog
from planner.catalog.software import software
from planner.scenario.strategy import RecomputeModule
from planner.simulate.assemble import forecast_step
from planner.simulate.durations import machine_of
from planner.workload.layout import Layout, layers_by_kind
from planner.workload.memory import worst_rank
from planner.workload.memory_activations import layer_kept
from planner.workload.memory_stack import stack_of
from planner.workload.operators import layer_operators
from planner.workload.recompute import AGAIN, FREED, again_of

FLASH = software(framework="megatron", year=2024).fusions
UNFUSED = software(framework="megatron", year=2021).fusions
DENSE = Layout(tp=4, pp=4, dp=2, sequence_parallel=True, micro_batch=1, global_batch=64, sequence=4096)
EXPERTS = replace(DENSE, tp=1, pp=8, dp=8, ep=8, etp=1, sequence_parallel=False)


def operators(model, layout, *, moe, fusions=FLASH):
    return layer_operators(model=catalog.model(model), layout=layout, moe=moe, fusions=fusions)


def test_every_module_says_what_it_frees_and_what_it_runs_again():
    assert set(FREED) == set(AGAIN) == set(get_args(RecomputeModule))
    forward = set()
    for name, layout, moe in (
        ("llama3-70b", DENSE, False),
        ("gpt3-175b", DENSE, False),
        ("deepseek-v3", EXPERTS, True),
    ):
        for fusions in (FLASH, UNFUSED):
            for tp in (layout.tp, 2):
                shape = replace(layout, tp=tp, sequence_parallel=True, etp=2 if moe and tp == 2 else 1)
                forward |= {o.name for o in operators(name, shape, moe=moe, fusions=fusions) if o.phase == "forward"}
    assert not {op for ops in AGAIN.values() for op in ops} - forward
    kept = set()
    for name, layout, moe in (("llama3-70b", DENSE, False), ("deepseek-v3", EXPERTS, True)):
        tensors = layer_kept(model=catalog.model(name), layout=layout, moe=moe, stack=stack_of(FLASH))
        kept |= {k.module for k in tensors}
    assert not {m for modules in FREED.values() for m in modules} - kept


def test_a_dense_layer_has_no_experts_and_an_expert_layer_no_dense_mlp():
    assert again_of(("mlp",), moe=True) == frozenset()
    assert again_of(("moe", "moe_act", "shared_experts"), moe=False) == frozenset()
    assert again_of(("mlp", "layernorm"), moe=True) == set(AGAIN["layernorm"])


def step_of(model, layout, *, engine="fast", year=2024):
    machine = machine_of(node="hgx-h100", software=software(framework="megatron", year=year))
    return forecast_step(model=catalog.model(model), layout=layout, machine=machine, engine=engine)


def peak_of(model, layout):
    return worst_rank(model=catalog.model(model), layout=layout, fusions=FLASH).peak_bytes


@pytest.mark.parametrize(
    ("model", "layout", "modules"),
    [
        ("llama3-70b", DENSE, ("mlp",)),
        ("llama3-70b", DENSE, ("layernorm",)),
        ("llama3-70b", DENSE, ("core_attn",)),
        ("llama3-70b", DENSE, ("layernorm", "mlp")),
        ("deepseek-v3", EXPERTS, ("moe_act",)),
        ("deepseek-v3", EXPERTS, ("mla_up_proj",)),
        ("deepseek-v3", EXPERTS, ("shared_experts",)),
        ("deepseek-v3", EXPERTS, ("moe",)),
    ],
)
def test_modules_cost_time_and_save_memory_between_none_and_full(model, layout, modules):
    some = replace(layout, recompute="selective", recompute_modules=modules)
    full = replace(layout, recompute="full")
    none_s, some_s, full_s = (step_of(model, each).step_s for each in (layout, some, full))
    assert none_s < some_s < full_s
    none, part, whole = (peak_of(model, each) for each in (layout, some, full))
    if modules == ("core_attn",):
        # The backward pass of a flash kernel keeps no scores: nothing to free.
        assert part == none
    else:
        assert whole < part < none


def test_the_time_of_a_module_is_that_of_its_forward_operators():
    plain = operators("llama3-70b", DENSE, moe=False)
    again = operators("llama3-70b", replace(DENSE, recompute="selective", recompute_modules=("mlp",)), moe=False)
    extra = [o for o in again if o.phase == "recompute"]
    assert {o.name for o in extra} == set(AGAIN["mlp"])
    assert again[: len(plain)] == plain
    assert all(replace(o, phase="forward") in plain for o in extra)


@given(dense=st.integers(0, 40), moe=st.integers(0, 40), again=st.integers(1, 90))
def test_layers_of_a_chunk_add_up_and_the_first_ones_run_again(dense, moe, again):
    layout = replace(DENSE, recompute="full", recompute_method="block", recompute_layers=again)
    found = dict(layers_by_kind(layout=layout, dense=dense, moe=moe))
    assert sum(found.values()) == dense + moe
    assert sum(n for (_, runs_again), n in found.items() if runs_again) == min(again, dense + moe)
    assert all(n > 0 for n in found.values())
    if found.get((True, True)):
        assert (False, False) not in found


@pytest.mark.parametrize(("model", "layout"), [("llama3-70b", DENSE), ("deepseek-v3", EXPERTS)])
@pytest.mark.parametrize("zero", [1, 3])
def test_layer_by_layer_from_none_to_full(model, layout, zero):
    layout = (
        replace(layout, zero_stage=zero) if zero < 3 else replace(layout, zero_stage=3, pp=1, dp=layout.dp * layout.pp)
    )
    if zero == 3:
        layout = replace(layout, micro_batch=8, global_batch=layout.dp * 16)
    chunk = -(-catalog.model(model).layers // layout.pp)

    def covering(n):
        return replace(layout, recompute="full", recompute_method="block", recompute_layers=n)

    times = [step_of(model, layout).step_s, *(step_of(model, covering(n)).step_s for n in (1, chunk // 2, chunk))]
    assert times == sorted(times)
    assert times[0] < times[-1]  # one layer more may hide beside gathered weights
    assert times[-1] == pytest.approx(step_of(model, replace(layout, recompute="full")).step_s, rel=1e-12)
    peaks = [peak_of(model, covering(n)) for n in (1, chunk // 2, chunk)]
    assert peaks == sorted(peaks, reverse=True)


def test_breakdown_adds_up_and_engines_agree_with_some_layers_recomputed():
    layout = replace(DENSE, recompute="full", recompute_method="block", recompute_layers=7)
    fast, events = (step_of("llama3-70b", layout, engine=e) for e in ("fast", "events"))
    assert fast.step_s == pytest.approx(events.step_s, rel=1e-9)
    assert sum(v for _, v in fast.breakdown_s) == pytest.approx(fast.step_s, rel=1e-6)
