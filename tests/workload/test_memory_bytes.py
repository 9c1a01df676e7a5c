"""Bytes of a rank: schedules, recompute policies, losses, experts, states and workspaces against counts by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog.types import MlaSpec, ModelSpec
from planner.workload.layout import Layout
from planner.workload.memory import chunks_held, rank_memory, warmup_chunks
from planner.workload.memory_activations import layer_activation_bytes
from planner.workload.memory_stack import MemoryStack, stack_of, workspace_bytes
from planner.workload.memory_states import expert_shards, rank_states, stage_params, state_bytes

GPT = ModelSpec("gpt-64m", 12, 512, 8, 8, 64, 2048, 50304, max_sequence=1024)
MOE = ModelSpec(
    "moe",
    8,
    1024,
    16,
    4,
    64,
    4096,
    32000,
    activation="swiglu",
    norm="rmsnorm",
    position="rotary",
    tied_embeddings=False,
    bias=False,
    moe_experts=8,
    moe_topk=2,
    moe_ffn=2048,
)
FLASH = frozenset({"norm", "activation", "residual", "rope", "cross_entropy", "flash"})
BARE = MemoryStack(loss="fused", workspace_bytes=0.0)


def last(layout: Layout, stack: MemoryStack = BARE, model: ModelSpec = GPT):
    return rank_memory(model=model, layout=layout, stage=layout.pp - 1, fusions=frozenset(), stack=stack)


def test_last_interleaved_stage_holds_v_minus_one_groups_and_one():
    layout = Layout(pp=4, vpp=3, global_batch=32, micro_batch=1, schedule="interleaved")
    assert warmup_chunks(layout=layout, stage=3) == 9
    assert warmup_chunks(layout=replace(layout, microbatch_group=5), stage=3) == 11
    assert chunks_held(layout=layout, stage=3) == (4, 4, 1)
    assert sum(chunks_held(layout=layout, stage=0)) == 2 * 3 + 2 * 4 + 1


@given(pp=st.sampled_from([2, 4, 8]), v=st.integers(1, 6), m=st.integers(1, 32), stage=st.integers(0, 7))
def test_no_stage_holds_more_than_the_step_has(pp, v, m, stage):
    layout = Layout(pp=pp, vpp=v, global_batch=m, schedule="interleaved" if v > 1 else "1f1b")
    held = chunks_held(layout=layout, stage=min(stage, pp - 1))
    assert len(held) == v
    assert max(held) <= m


def test_last_stage_of_a_two_stage_gpt_by_hand():
    """6 layers x 34 sbh (no attention dropout kept by flash), logits 6 B, final norm, one boundary gradient."""
    layout = Layout(pp=2, dp=4, micro_batch=4, global_batch=32, sequence=1024)
    tokens, h = 4096, 512
    lse = tokens * 8 * 4
    layers = 6 * (34 * tokens * h + lse)
    loss = 6 * tokens * 50304 + 2 * tokens * h * 2
    boundary = 2 * tokens * h * 2 - tokens * h * 2
    m = last(layout, replace(BARE, dropout=True))
    states = m.weights_bytes + m.gradients_bytes + m.optimizer_bytes
    assert m.peak_bytes - states == pytest.approx(layers + loss + boundary, rel=1e-9)
    assert m.steady_bytes - states == pytest.approx(2 * tokens * h * 2)


def test_unfused_attention_with_dropout_keeps_five_bytes_a_score():
    layout = Layout(micro_batch=4, sequence=1024)
    flash, unfused = (
        layer_activation_bytes(model=GPT, layout=layout, moe=False, fusions=frozenset(), stack=s)
        for s in (replace(BARE, dropout=True), replace(BARE, dropout=True, attention="unfused"))
    )
    assert unfused - flash == 5 * 4 * 8 * 1024**2 - 4096 * 8 * 4


def test_copied_attention_costs_one_output_unless_one_sequence():
    for size, copies in ((1, 0), (4, 1)):
        layout = Layout(micro_batch=size, sequence=1024)
        a, b = (
            layer_activation_bytes(
                model=GPT, layout=layout, moe=False, fusions=frozenset(), stack=replace(BARE, attention=kind)
            )
            for kind in ("fused", "copied")
        )
        assert b - a == copies * size * 1024 * 512 * 2


@pytest.mark.parametrize(("kind", "per_logit"), [("in_place", 2), ("kernel", 4), ("fused", 6), ("compiled", 10)])
def test_loss_kinds_differ_by_bytes_of_a_logit(kind, per_logit):
    layout = Layout(micro_batch=4, sequence=1024, global_batch=4)
    zero = 4096 * 50304
    assert last(layout, replace(BARE, loss=kind)).buffers_bytes == pytest.approx(per_logit * zero + 4 * 4096 * 512)


def test_first_step_lacks_moments():
    layout = Layout(micro_batch=4, sequence=1024, global_batch=4)
    m = last(layout)
    params = sum(stage_params(model=GPT, layout=layout, stage=0))
    assert m.peak_bytes - m.peak_first_step_bytes == pytest.approx(8 * params)
    assert m.peak_load_bytes == pytest.approx((2 + 4 + 4) * params)


def test_workspaces_by_arch_and_mode():
    """Two cuBLAS handles and Transformer Engine's own; 71, 101 and 34 MB were measured above states."""
    mb = 1e6
    assert workspace_bytes(arch="ampere", transformer_engine=True, deterministic=True) / mb == pytest.approx(71.3, 0.01)
    assert workspace_bytes(arch="hopper", transformer_engine=True, deterministic=False) / mb == pytest.approx(
        100.7, 0.01
    )
    plain = workspace_bytes(arch="ampere", transformer_engine=True, deterministic=False)
    assert plain / mb == pytest.approx(21.2, 0.01)
    grouped = workspace_bytes(arch="hopper", transformer_engine=True, deterministic=True, grouped=True)
    assert (grouped - 3 * 33_554_432) / mb == pytest.approx(134.2, 0.01)


def test_recompute_methods_order_themselves():
    base = Layout(micro_batch=4, sequence=1024, global_batch=4)
    full = replace(base, recompute="full")
    block = replace(full, recompute_method="block", recompute_layers=6)
    uniform = replace(full, recompute_method="uniform", recompute_layers=3)
    none_b, full_b, block_b, uniform_b = (last(x).activations_bytes for x in (base, full, block, uniform))
    assert uniform_b < full_b < block_b < none_b
    assert uniform_b == pytest.approx(full_b / 3)
    assert block_b == pytest.approx((none_b + full_b) / 2)


def test_recompute_modules_free_what_they_name():
    base = Layout(micro_batch=1, sequence=1024)
    part = replace(base, recompute="selective", recompute_modules=("mlp",))
    a, b = (
        layer_activation_bytes(model=GPT, layout=x, moe=False, fusions=frozenset(), stack=BARE) for x in (base, part)
    )
    assert a - b == 2 * 1024 * 2048 * 2


def test_eight_bit_products_keep_less():
    bf16, fp8 = (
        layer_activation_bytes(
            model=GPT, layout=Layout(sequence=1024, precision=p), moe=False, fusions=frozenset(), stack=BARE
        )
        for p in ("bf16", "fp8")
    )
    # Two norm outputs and the MLP's activation halve; the attention result gets an 8-bit copy.
    assert bf16 - fp8 == 1024 * (2 * 512 + 2048 - 512)


@given(etp=st.sampled_from([1, 2, 4]), ep=st.sampled_from([1, 2, 4, 8]))
def test_experts_are_split_by_both_degrees(etp, ep):
    layout = Layout(tp=4, ep=ep, etp=etp, dp=8, zero_stage=1, global_batch=32, sequence_parallel=True)
    _, experts = stage_params(model=MOE, layout=layout, stage=0)
    assert experts == pytest.approx(8 * 8 * 3 * 1024 * 2048 / (ep * etp))
    assert expert_shards(layout) == pytest.approx(32 / (ep * etp))


def test_expert_shards_follow_a_partial_sharding_group():
    layout = Layout(tp=2, ep=2, etp=2, dp=4, zero_stage=1)
    assert expert_shards(layout) == 2
    assert expert_shards(replace(layout, shard_ranks=2)) == 1


def test_latent_down_projections_are_whole_on_every_rank():
    mla = replace(MOE, mla=MlaSpec(256, 128, 64, 32, 64), head_dim=96)
    one, two = (stage_params(model=mla, layout=Layout(tp=t), stage=0)[0] for t in (1, 2))
    down = mla.layers * 1024 * (256 + 128 + 32)
    router_and_norms = mla.layers * (1024 * 8 + 2 * 1024 + 384) + 1024
    assert two == pytest.approx((one - down - router_and_norms) / 2 + down + router_and_norms)


def test_multi_token_prediction_adds_a_layer_an_embedding_and_logits():
    layout = Layout(pp=2, global_batch=4, sequence=1024)
    more = replace(layout, mtp_layers=1)
    a, b = (sum(stage_params(model=MOE, layout=x, stage=1)) for x in (layout, more))
    layer = 8 * 3 * 1024 * 2048 + 1024 * (1024 + 2 * 256) + 1024 * 1024 + 1024 * 8 + 2 * 1024
    assert b - a == pytest.approx(layer + 2 * 1024**2 + 3 * 1024 + 32000 * 1024)
    assert last(more, model=MOE).buffers_bytes - last(layout, model=MOE).buffers_bytes == 4 * 1024 * 32000


def test_explicit_cells_are_used():
    layout = Layout(pp=2, vpp=2, cell_layers=(3, 4, 5, 0), global_batch=8)
    per_stage = [sum(stage_params(model=GPT, layout=layout, stage=s)) for s in (0, 1)]
    tables = 50304 * 512
    assert (per_stage[0] - tables) / (per_stage[1] - tables) == pytest.approx(2.0, rel=0.05)


def test_state_widths_of_optimizers():
    assert sum(state_bytes(params=1.0, ranks=1, layout=Layout())) == 18
    assert sum(state_bytes(params=1.0, ranks=1, layout=Layout(optimizer="muon"))) == 14
    assert sum(state_bytes(params=1.0, ranks=1, layout=Layout(optimizer="precision_aware"))) == 14
    assert sum(state_bytes(params=1.0, ranks=4, layout=Layout(zero_stage=1))) == 6 + 12 / 4
    assert sum(state_bytes(params=1.0, ranks=1, layout=Layout(optimizer_offload_frac=1.0))) == 6
    assert state_bytes(params=1.0, ranks=1, layout=Layout(weight_bytes=1.0))[0] == 1


def test_half_precision_gradients_need_a_copy_for_the_step():
    layout = Layout(precision="fp16", gradient_bytes=2, sequence=1024, global_batch=1)
    m = last(layout)
    params = sum(stage_params(model=GPT, layout=layout, stage=0))
    assert m.steady_bytes == pytest.approx(20 * params)


@given(size=st.sampled_from([1, 2, 4]), sp=st.booleans(), recompute=st.sampled_from(["none", "selective", "full"]))
def test_more_sequences_never_take_less_and_sequence_parallelism_never_more(size, sp, recompute):
    layout = Layout(
        tp=4, pp=2, dp=2, micro_batch=size, global_batch=64, sequence=2048, sequence_parallel=sp, recompute=recompute
    )
    for stage in (0, 1):
        here, more, split = (
            rank_memory(model=MOE, layout=x, stage=stage, fusions=FLASH).peak_bytes
            for x in (layout, replace(layout, micro_batch=2 * size), replace(layout, sequence_parallel=True))
        )
        assert more >= here
        # The gathered input of the head is the one thing that sequence parallelism adds.
        assert split <= here + layout.tokens * MOE.hidden * 2


def test_recomputed_layer_and_logits_do_not_live_together():
    layout = Layout(micro_batch=4, sequence=1024, global_batch=4, recompute="full")
    m = last(layout)
    logits = 6 * 4096 * 50304 + 2 * 4096 * 512 * 2
    assert m.buffers_bytes == pytest.approx(logits)


def test_deepspeed_stack_counts_buckets_and_a_wider_reserve():
    stack = stack_of(frozenset({"norm", "gather_by_parameter", "cross_entropy"}))
    other = stack_of(frozenset({"norm", "cross_entropy"}))
    layout = Layout(pp=2, dp=2, zero_stage=1, global_batch=8, sequence=1024)
    a, b = (last(layout, s) for s in (stack, other))
    params = sum(stage_params(model=GPT, layout=layout, stage=1))
    assert a.steady_bytes - b.steady_bytes == pytest.approx(2 * 2 * params)
    states = a.weights_bytes + a.gradients_bytes + a.optimizer_bytes
    assert a.reserved_bytes == pytest.approx(1e9 + 0.1 * (states + a.activations_bytes + a.buffers_bytes))
    assert a.reserved_bytes > b.reserved_bytes


def test_zero_three_divides_every_state():
    a, b = (sum(rank_states(model=GPT, layout=Layout(dp=8, zero_stage=z, global_batch=8), stage=0)) for z in (0, 3))
    assert b == pytest.approx(a / 8)
