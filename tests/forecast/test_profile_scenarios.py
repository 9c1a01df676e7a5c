"""`cluster.profile` acts: measured kernels and host times on one GPU, measured sharded shapes on many."""

import json
from dataclasses import replace
from importlib.resources import files

import pytest

from planner.cost.profiled import profiled_costs
from planner.forecast import ForecastError, forecast_strategy, step_on
from planner.scenario import parse_scenario
from planner.simulate.profiled_step import profiled_step
from planner.validate.steps import packaged_rows, shape_of_row
from planner.workload.torch_rank import shape_of

PROFILE = "h200-sxm"
ROWS = packaged_rows()[::6]


def scenario(
    model, *, profile=PROFILE, node="single-h200", nodes=1, sequence=2048, batch=8, strategy="{preset: stack}"
):
    named = f", profile: {profile}" if profile else ""
    return parse_scenario(f"""
model: {model}
cluster: {{node: {node}, nodes: {nodes}{named}}}
training: {{tokens: 1e9, sequence_length: {sequence}, global_batch_sequences: {batch}}}
strategies:
  x: {strategy}
""")


def forecast(model, **where):
    return forecast_strategy(scenario=scenario(model, **where), name="x", engine="fast").document


def read_share(document):
    """Share of kernel time read between the shapes of a profile; published tables never carry this label."""
    return document["label_share"].get("interpolated", 0.0)


def row_scenario(shape):
    gpt = shape.kind == "gpt"
    words = {"activation": "gelu", "position": "learned", "norm": "layernorm", "bias": True, "tied_embeddings": True}
    if not gpt:
        words = {"activation": "swiglu", "position": "rotary", "norm": "rmsnorm", "bias": False}
        words["tied_embeddings"] = False
    sizes = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
    model = json.dumps({k: getattr(shape, k) for k in sizes} | words | {"head_dim": shape.head_dim})
    strategy = {
        "micro_batch_sequences": shape.micro_batch,
        "recompute": "full" if shape.recompute else "none",
        "precision": shape.precision,
        "optimizer": f"adamw_{shape.optimizer}",
        "framework": {"name": "pytorch", "mode": shape.mode},
    }
    batch = shape.micro_batch * shape.accumulation
    return scenario(model, sequence=shape.sequence, batch=batch, strategy=json.dumps(strategy))


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["id"] or "row")
def test_one_gpu_agrees_with_the_validated_step_of_the_same_shape(row):
    shape, _ = shape_of_row(row)
    one = row_scenario(shape)
    batch = one.training.global_batch_sequences
    _, answer = step_on(scenario=one, strategy=one.strategies["x"], gpus=1, global_batch=batch, engine="fast")
    validated = profiled_step(costs=profiled_costs(PROFILE), shape=shape)
    assert answer.step_s == pytest.approx(validated.step_s, rel=0.02)
    parts = dict(answer.breakdown_s)
    groups = dict(validated.groups_s)
    assert parts["compute_matmul"] == pytest.approx(groups["matmul"], rel=1e-6)
    assert parts["compute_attention"] == pytest.approx(groups["attention"], rel=1e-6)
    assert answer.measured_sigma == pytest.approx(validated.sigma)


def test_many_micro_batches_cost_what_their_number_says():
    def seconds(batch):
        one = scenario("gpt2", sequence=1024, batch=batch, strategy="{micro_batch_sequences: 8}")
        return step_on(scenario=one, strategy=one.strategies["x"], gpus=1, global_batch=batch, engine="fast")[1].step_s

    one, two, three, four, eight = (seconds(8 * n) for n in (1, 2, 3, 4, 8))
    assert one < two < three < four < eight
    assert eight - four == pytest.approx(4 * (four - three), rel=0.03)


def test_a_sharded_layer_has_the_measured_kernels_of_its_shape_and_the_modelled_wire():
    one = forecast("llama3-8b", node="hgx-h200", sequence=8192, batch=8, strategy="{tp: 8, framework: {name: pytorch}}")
    bare = forecast(
        "llama3-8b",
        node="hgx-h200",
        sequence=8192,
        batch=8,
        profile=None,
        strategy="{tp: 8, framework: {name: pytorch}}",
    )
    assert read_share(one) > 0.4
    assert read_share(bare) == 0
    assert one["link_busy_s"] == pytest.approx(bare["link_busy_s"])
    assert one["breakdown_s"]["compute_matmul"] != pytest.approx(bare["breakdown_s"]["compute_matmul"], rel=1e-3)
    assert one["breakdown_s"]["compute_matmul"] == pytest.approx(bare["breakdown_s"]["compute_matmul"], rel=0.3)


def test_shapes_of_a_rank_are_those_after_sharding():
    loaded = scenario("llama3-8b", node="hgx-h200", strategy="{tp: 8, framework: {name: pytorch}}")
    resolved, _ = step_on(scenario=loaded, strategy=loaded.strategies["x"], gpus=8, global_batch=8, engine="fast")
    shape = shape_of(model=loaded.model_spec, layout=resolved.layout, software=resolved.software)
    whole = replace(shape, tp=1)
    assert (shape.rank_heads, shape.rank_kv_heads, shape.head_dim) == (4, 1, 128)
    assert 8 * shape.layer_weights == whole.layer_weights
    assert 8 * shape.ffn_width == whole.ffn_width
    assert 8 * shape.vocab_width == whole.vocab_width


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("mixtral-8x7b", "{ep: 8}"),
        ("llama3-8b", "{tp: 4, pp: 2, framework: {name: megatron}}"),
        ("qwen2.5-7b", "{preset: stack}"),
    ],
)
def test_stacks_that_are_not_pytorchs_own_read_their_operators_one_by_one(model, strategy):
    where = {"node": "hgx-h200", "sequence": 4096, "batch": 64, "strategy": strategy}
    one, bare = forecast(model, **where), forecast(model, profile=None, **where)
    assert read_share(one) > 0.15
    assert read_share(bare) == 0
    assert one["step_s"]["p50"] == pytest.approx(bare["step_s"]["p50"], rel=0.35)
    assert one["step_s"] != bare["step_s"]
    assert any("one by one" in w for w in one["warnings"])


def test_the_profile_is_named_and_narrows_the_band():
    one, bare = forecast("llama3.2-1b"), forecast("llama3.2-1b", profile=None)
    assert (one["versions"]["profile"], bare["versions"]["profile"]) == (PROFILE, None)
    width = [d["step_s"]["p90"] / d["step_s"]["p10"] for d in (one, bare)]
    assert width[0] < width[1]
    assert one["label_share"]["measured"] > 0
    line = next(x for x in one["provenance"] if x["id"] == "breakdown_s.compute_matmul")
    assert PROFILE in line["source"]


def test_the_quick_profile_works_too():
    quick, full = (forecast("llama3.2-1b", profile=p)["step_s"]["p50"] for p in ("h200-sxm-quick", PROFILE))
    assert quick == pytest.approx(full, rel=0.08)


def test_a_profile_of_another_gpu_is_an_error_that_names_both():
    with pytest.raises(ForecastError, match=r"H200-SXM.*H100-SXM"):
        forecast("llama3.2-1b", node="hgx-h100")


def test_an_unknown_profile_names_the_shipped_ones():
    with pytest.raises(ForecastError, match=r"h200-sxm-quick"):
        forecast("llama3.2-1b", profile="h300")


def test_a_profile_by_path_counts_by_its_content(tmp_path):
    text = files("planner.profile").joinpath("shipped/h200-sxm-quick.json").read_text("utf-8")
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path in paths:
        path.write_text(text, "utf-8")
    a, b = (forecast("llama3.2-1b", profile=str(path)) for path in paths)
    assert a["scenario_hash"] == b["scenario_hash"]
    assert a["step_s"] == b["step_s"] == forecast("llama3.2-1b", profile="h200-sxm-quick")["step_s"]


@pytest.mark.parametrize(
    ("key", "micro", "strategy"),
    [
        ("torch_compile", 8, "{micro_batch_sequences: 8"),
        ("cuda_graphs", 1, "{micro_batch_sequences: 1"),
        ("fused_pointwise", 8, "{micro_batch_sequences: 8"),
        ("fused_ce", 8, "{micro_batch_sequences: 8"),
        ("shape_padding", 8, "{micro_batch_sequences: 8"),
        ("cast_removal", 8, "{micro_batch_sequences: 8, precision: amp"),
        ("fused_optimizer", 1, "{micro_batch_sequences: 1, optimizer: adamw_loop"),
        ("flash_attn", 8, "{micro_batch_sequences: 8, framework: {name: pytorch, release: 2020}"),
    ],
)
def test_optimisations_are_simulated_from_measured_parts(key, micro, strategy):
    document = forecast("gpt2", sequence=1024, batch=micro, strategy=f"{strategy}, optimisations: [{key}]}}")
    effect = document["optimisations"][0]
    assert effect["applied"], effect["note"]
    assert 0.005 < effect["gain_frac"] < 0.9
    assert effect["before_s"] > effect["after_s"] == pytest.approx(document["step_s"]["p50"], rel=1e-6)
