"""How blanks of a published row are closed."""

import pytest

from planner.validate.setup import setup_of_row

ROW = {
    "model": "llama2-7b", "gpu": "H100-SXM", "n_gpus": "64", "gpus_per_node": "8", "scaleout": "ib", "year": "2024",
    "scaleout_gbps_per_node": "3200", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "32", "ffn": "11008",
    "vocab": "32000", "seq": "4096", "gbs": "128", "precision": "bf16", "framework": "NeMo", "zero_stage": "1",
}  # fmt: skip


def layout(**cells):
    return setup_of_row({**ROW, **cells}).layout


def test_fewer_sequences_than_gpus_without_context_parallelism_splits_tensors_then_stages():
    found = layout(cp="1", gbs="4")
    assert (found.cp, found.tp, found.pp) == (1, 8, 2)
    assert found.dp == 4


def test_fewer_sequences_than_gpus_with_nothing_stated_splits_context_last():
    found = layout(gbs="4")
    assert (found.tp, found.cp, found.pp) == (8, 2, 1)


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
