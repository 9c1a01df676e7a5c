"""How blanks of a published row are closed."""

from dataclasses import replace
from datetime import date

import pytest

from planner import catalog
from planner.catalog.software import releases
from planner.simulate.assemble import forecast_step
from planner.validate.recipes import recipe_features, recipes, recomputed_modules
from planner.validate.setup import setup_of_row
from planner.workload.memory import worst_rank
from planner.workload.recompute import FREED

ROW = {
    "model": "llama2-7b", "gpu": "H100-SXM", "n_gpus": "64", "gpus_per_node": "8", "scaleout": "ib", "year": "2024",
    "scaleout_gbps_per_node": "3200", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "32", "ffn": "11008",
    "vocab": "32000", "seq": "4096", "gbs": "128", "precision": "bf16", "framework": "NeMo", "zero_stage": "1",
}  # fmt: skip


def layout(**cells):
    return setup_of_row({**ROW, **cells}).layout


SHARDED = {"framework": "llm-foundry (FSDP)"}


def test_fewer_sequences_than_gpus_without_context_parallelism_splits_tensors_then_stages():
    found = layout(cp="1", gbs="4", **SHARDED)
    assert (found.cp, found.tp, found.pp) == (1, 8, 2)
    assert found.dp == 4


def test_fewer_sequences_than_gpus_with_nothing_stated_splits_context_last():
    found = layout(gbs="4", **SHARDED)
    assert (found.tp, found.cp, found.pp) == (8, 2, 1)


def test_more_ranks_than_sequences_as_printed_hold_one_each():
    setup = setup_of_row({**ROW, "tp": "4", "pp": "1", "cp": "1", "dp": "16", "mbs": "1", "gbs": "8"})
    assert (setup.layout.dp, setup.layout.global_batch) == (16, 16)
    assert "gbs" in setup.assumed


def step_s(setup, layout):
    return forecast_step(model=setup.model, layout=layout, machine=setup.machine).step_s


@pytest.mark.parametrize(
    "cells", [{"seq": "4096"}, {"seq": "32768", "gbs": "64"}, {"seq": "65536", "gbs": "16", "cp": "1"}]
)
def test_a_tuned_stack_without_a_printed_mapping_ran_the_fastest_that_fits(cells):
    setup = setup_of_row({**ROW, **cells})
    best, shape = setup.layout, setup.layout
    rank = worst_rank(model=setup.model, layout=best, fusions=setup.machine.software.fusions)
    assert rank.peak_bytes + rank.reserved_bytes <= setup.capacity_bytes
    assert best.cp == 1 or "cp" not in cells
    for tp, recompute in ((1, "none"), (2, "none"), (4, "none"), (8, "none"), (8, "full")):
        dp = shape.gpus // tp
        if shape.global_batch % dp:
            continue
        other = replace(
            shape, tp=tp, pp=1, cp=1, dp=dp, vpp=1, recompute=recompute, sequence_parallel=tp > 1, schedule="1f1b"
        )
        rank = worst_rank(model=setup.model, layout=other, fusions=setup.machine.software.fusions)
        if rank.peak_bytes + rank.reserved_bytes <= setup.capacity_bytes:
            assert step_s(setup, best) <= step_s(setup, other)


def test_blank_recompute_is_the_stack_s_default():
    jax = {"framework": "MaxText (JAX)", "tp": "1", "pp": "1", "cp": "1", "mbs": "1"}
    assert layout(**jax).recompute == "full"
    assert layout(**jax, recompute="none").recompute == "none"


def test_degrees_that_leave_out_the_expert_group_mean_sequence_parallel_attention():
    moe = {"moe_experts": "8", "moe_topk": "2", "tp": "1", "pp": "1", "cp": "1", "ep": "8"}
    assert layout(**moe, dp="8").cp == 8
    assert layout(**moe, dp="64").cp == 1


@pytest.mark.parametrize(("sequence", "recompute"), [("4096", "none"), ("65536", "full")])
def test_no_recompute_is_ruled_out_by_memory_only_by_far(sequence, recompute):
    found = setup_of_row({**ROW, "tp": "1", "pp": "1", "cp": "1", "mbs": "1", "seq": sequence})
    assert found.layout.recompute == recompute
    assert "recompute" in found.assumed


def test_a_stated_policy_is_kept():
    assert layout(tp="1", pp="1", cp="1", mbs="1", seq="65536", recompute="none").recompute == "none"


@pytest.mark.parametrize(
    ("cells", "attention", "dedup"),
    [
        ({"year": "2024", "source_detail": "performance_summary.md at 24.07"}, "flash3", False),
        ({"year": "2024", "source": "NeMo long-sequence"}, "flash2", False),
        ({"year": "2025", "source_detail": "v25.05.05 grok1/README.md"}, "flash3", False),
        ({"year": "2025", "source_detail": "docs/performance-summary.md release 25.11"}, "flash3", True),
        ({"year": "2025"}, "flash3", True),
        ({"year": "2025", "notes": "token-drop MoE"}, "flash3", False),
    ],
)
def test_a_row_runs_the_release_that_it_names(cells, attention, dedup):
    soft = setup_of_row({**ROW, "tp": "1", "pp": "1", "cp": "1", **cells}).machine.software
    assert soft.attention == attention
    assert ("ep_dedup" in soft.fusions) == dedup


def test_recipes_are_facts_of_known_runs_and_switch_on_only_these():
    frameworks = {r.framework for r in releases()}
    for r in recipes():
        assert r["framework"] in frameworks
        assert r["feature"] == "ep_overlap" or set(recomputed_modules([r["feature"]])) <= set(FREED)
        assert r["provenance"]
        assert date.fromisoformat(r["date"])
        assert "@" in r["source"] or "the same file" in r["source"]
        assert catalog.gpu(r["gpu"]).name == r["gpu"]
    run = {"model": "deepseek-v3", "gpu": "B200-SXM", "precision": "mxfp8", "ep": "32"}
    assert recipe_features(row=run, framework="nemo", year=2026, month=4) == {
        "ep_overlap",
        "recompute:mla_up_proj+mlp",
    }
    assert not recipe_features(row=run, framework="nemo", year=2026, month=2)
    assert not recipe_features(row={**run, "ep": "16"}, framework="nemo", year=2026, month=4)


def test_a_remat_policy_names_the_modules_that_run_again():
    row = {**ROW, "framework": "MaxText (JAX)", "tp": "1", "pp": "1", "cp": "1", "recompute": "selective"}
    assert setup_of_row(row).layout.recompute_modules == ()
    named = setup_of_row({**row, "notes": "FSDP; remat save_dot_with_context_except_mlp"}).layout
    assert (named.recompute, named.recompute_modules) == ("selective", ("mlp",))
