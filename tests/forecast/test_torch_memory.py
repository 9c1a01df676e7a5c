"""Memory of forecasts on one GPU against measured steps: PyTorch's own tensors, through a scenario."""

import statistics

import pytest

from planner.forecast import forecast_strategy
from planner.scenario import parse_scenario
from planner.validate.steps import packaged_rows, shape_of_row
from planner.workload.torch_memory import step_memory

GPT = "norm: layernorm, activation: gelu, position: learned, bias: true, tied_embeddings: true"
LLAMA = "norm: rmsnorm, activation: swiglu, position: rotary, bias: false, tied_embeddings: false"
TEXT = """
model: {{layers: {layers}, hidden: {hidden}, heads: {heads}, kv_heads: {kv}, ffn: {ffn}, vocab: {vocab}, {kind}}}
cluster: {{node: hgx-h200, nodes: 1, gpus_per_node_used: {gpus}}}
training: {{tokens: 1e9, sequence_length: {seq}, global_batch_sequences: {gbs}}}
strategies:
  only:
    {{tp: 1, pp: 1, zero_stage: {zero}, micro_batch_sequences: {mbs}, precision: {precision}, optimizer: {optimizer},
     recompute: {recompute}, framework: {{name: pytorch, release: 2026, mode: {mode}}}}}
"""


def memory_gb(shape, *, gpus=1, zero=0, optimizer=None):
    text = TEXT.format(
        layers=shape.layers, hidden=shape.hidden, heads=shape.heads, kv=shape.kv_heads, ffn=shape.ffn, gpus=gpus,
        vocab=shape.vocab, kind=GPT if shape.kind == "gpt" else LLAMA, seq=shape.sequence, zero=zero,
        gbs=gpus * shape.micro_batch * shape.accumulation, mbs=shape.micro_batch, precision=shape.precision,
        optimizer=optimizer or f"adamw_{shape.optimizer}", recompute="full" if shape.recompute else "none",
        mode=shape.mode,
    )  # fmt: skip
    return forecast_strategy(scenario=parse_scenario(text), name="only", engine="fast").document["memory_gb"]


ROWS = [r for r in packaged_rows() if float(r["memory_gb"] or 0)]
SHAPES = {r["id"]: shape_of_row(r)[0] for r in ROWS}


def test_measured_steps_are_met():
    errors = [abs(memory_gb(SHAPES[r["id"]])["peak"] / float(r["memory_gb"]) - 1) for r in ROWS]
    assert len(errors) >= 69
    assert statistics.mean(errors) <= 0.01
    assert max(errors) <= 0.04


@pytest.fixture(scope="module")
def eager():
    return next(s for s in SHAPES.values() if s.kind == "llama" and s.mode == "eager" and s.optimizer == "fused")


def test_parts_add_up_to_the_peak_and_every_moment_is_below_it(eager):
    found = memory_gb(eager)
    parts = ("weights", "gradients", "optimizer", "activations", "buffers")
    assert sum(found[p] for p in parts) == pytest.approx(found["peak"])
    assert found["peak"] == pytest.approx(step_memory(eager).peak_bytes / 1e9)
    assert found["peak_load"] <= found["peak_first_step"] <= found["peak"]


def test_replicas_add_their_buckets_and_sharding_is_counted_by_the_layout(eager):
    one, two = memory_gb(eager), memory_gb(eager, gpus=2)
    assert two["peak"] - one["peak"] == pytest.approx(one["weights"])
    sharded = memory_gb(eager, gpus=2, zero=3)
    assert sharded["weights"] == pytest.approx(one["weights"] / 2, rel=0.05)


def test_fp32_masters_are_another_optimizer():
    shape = next(s for s in SHAPES.values() if s.precision == "bf16" and s.mode == "eager")
    assert memory_gb(shape, optimizer="adamw")["optimizer"] > 2.5 * memory_gb(shape)["optimizer"]
