"""All errors of a file at once, each with its line and the nearest valid choice."""

import json

import pytest

from planner.scenario import ScenarioError, load_scenario, parse_scenario

FIVE = """name: five errors
model: llama3-70bb
cluster: {node: hgx-h1000, nodes: 4}
training:
  tokens: 2 parsecs
  sequence_length: 8192
  global_batch_sequences: 1024
  learnig_rate: 3
strategies:
  a: {tp: -1}
"""
GOOD = """model: llama3-70b
cluster: {node: hgx-h100, nodes: 32}
training: {tokens: 2T, sequence_length: 8192, global_batch_sequences: 1024}
"""


def issues_of(text, file="f.yaml"):
    with pytest.raises(ScenarioError) as error:
        parse_scenario(text, file=file)
    return error.value.issues


def test_five_errors_in_one_file():
    issues = issues_of(FIVE)
    assert [(i.line, i.path) for i in issues] == [
        (2, "model"),
        (3, "cluster.node"),
        (5, "training.tokens"),
        (8, "training.learnig_rate"),
        (10, "strategies.a.tp"),
    ]
    assert all(i.file == "f.yaml" and i.message for i in issues)
    assert issues[0].nearest[0] == "llama3-70b"
    assert issues[1].nearest[0] == "hgx-h100"


def test_every_duplicate_is_named_beside_other_errors():
    text = GOOD + "strategies:\n  a:\n    tp: 8\n    tp: 4\n  b: {pp: 999}\ngoals: {budget_usd: 1, budget_usd: 2}\n"
    found = {(i.code, i.line, i.path) for i in issues_of(text)}
    assert ("duplicate_key", 7, "strategies.a.tp") in found
    assert ("duplicate_key", 9, "goals.budget_usd") in found
    assert ("layout", 8, "strategies.b.pp") in found


def test_same_key_in_two_blocks_is_no_duplicate():
    assert parse_scenario(GOOD + "strategies: {a: {tp: 8}, b: {tp: 4}}\n").strategies["b"].tp == 4


def test_layout_checks_run_while_other_blocks_are_wrong():
    text = GOOD.replace("2T", "soon").replace("nodes: 32", "nodes: 32, colour: red")
    found = {(i.code, i.path) for i in issues_of(text + "strategies: {a: {tp: 8, dp: 31}, b: {zero_stage: 9}}\n")}
    assert {
        ("layout", "strategies.a.dp"),
        ("literal_error", "strategies.b.zero_stage"),
        ("unknown_key", "cluster.colour"),
    } <= found


def test_misspelt_auto():
    (issue,) = issues_of(GOOD + "strategies: {best: atuo}\n")
    assert issue.nearest == ("auto",)
    assert parse_scenario(GOOD + "strategies: {best: auto}\n").strategies == {"best": "auto"}


@pytest.mark.parametrize(
    ("strategy", "key", "words"),
    [
        ("{tp: 3}", "tp", "64 attention heads"),
        ("{pp: 81}", "pp", "81 stages for 80 layers"),
        ("{tp: 8, pp: 4, vpp: 6}", "vpp", "nearest that does: 5"),
        ("{tp: 8, pp: 4, dp: 4}", "dp", "128, but the cluster has 256"),
        ("{tp: 8, pp: 4, micro_batch_sequences: 3}", "micro_batch_sequences", "128 sequences"),
        ("{tp: 8, pp: 16, vpp: 2, schedule: gpipe}", "schedule", "needs interleaved"),
        ("{tp: 8, ep: 8}", "ep", "no experts"),
        ("{cp: 3}", "cp", "does not divide the sequence"),
    ],
)
def test_layouts_say_why(strategy, key, words):
    found = [i for i in issues_of(GOOD + f"strategies:\n  a: {strategy}\n") if i.path == f"strategies.a.{key}"]
    assert found
    assert found[0].line == 5
    assert words in found[0].message


def test_embedding_slots_make_126_layers_placeable():
    text = GOOD.replace("llama3-70b", "llama3.1-405b").replace("nodes: 32", "nodes: 2048")
    parse_scenario(text + "strategies: {a: {tp: 8, pp: 16, vpp: 8}}\n")
    assert issues_of(text + "strategies: {a: {tp: 8, pp: 16, vpp: 5}}\n")


def test_experts_spread_over_the_ranks_of_a_stage():
    text = GOOD.replace("llama3-70b", "mixtral-8x7b")
    parse_scenario(text + "strategies: {a: {pp: 4, ep: 8}}\n")
    found = issues_of(text.replace("nodes: 32", "nodes: 1") + "strategies: {a: {pp: 2, tp: 1, ep: 8}}\n")
    assert found[0].path == "strategies.a.ep"


@pytest.mark.parametrize(
    ("cluster", "path"),
    [
        ("{node: hgx-h100, nodes: 1, gpus_per_node_used: 9}", "cluster.gpus_per_node_used"),
        ("{node: single-h200, nodes: 2}", "cluster.nodes"),
        ("{node: hgx-h100, nodes: 2, fabric: none}", "cluster.nodes"),
        ("{node: hgx-h100, nodes: 2, fabric: token-ring}", "cluster.fabric.kind"),
        ("{node: hgx-h100, nodes: true}", "cluster.nodes"),
        ("{node: 5, nodes: 2}", "cluster.node"),
    ],
)
def test_clusters_that_cannot_be_built(cluster, path):
    text = GOOD.replace("{node: hgx-h100, nodes: 32}", cluster)
    assert path in {i.path for i in issues_of(text)}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("{layers: 2, hidden: 100, heads: 3, vocab: 10}", "do not divide hidden"),
        ("{layers: 2, hidden: 96, heads: 3, kv_heads: 2, vocab: 10}", "key and value heads"),
        ("{layers: 2, hidden: 96, heads: 3, vocab: 10, moe_experts: 4}", "moe_topk"),
        ("{layers: 2, hidden: 96, heads: 3}", "'vocab' is needed"),
        ("{layers: two, hidden: 96, heads: 3, vocab: 10}", "valid integer"),
        ("missing/config.json", "cannot read"),
    ],
)
def test_inline_models_and_files(model, words):
    found = issues_of(GOOD.replace("llama3-70b", model, 1))
    assert any(words in i.message and i.line == 1 for i in found)


def test_model_file_beside_the_scenario_counts_by_content(tmp_path):
    shape = {
        "model_type": "llama",
        "hidden_size": 256,
        "num_attention_heads": 8,
        "num_hidden_layers": 4,
        "intermediate_size": 512,
        "vocab_size": 1000,
    }
    (tmp_path / "config.json").write_text(json.dumps(shape), "utf-8")
    (tmp_path / "s.yaml").write_text(GOOD.replace("llama3-70b", "config.json"), "utf-8")
    first = load_scenario(tmp_path / "s.yaml")
    assert first.model_spec.hidden == 256
    (tmp_path / "config.json").write_text(json.dumps(shape | {"vocab_size": 2000}), "utf-8")
    assert load_scenario(tmp_path / "s.yaml").hash() != first.hash()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "- a\n- b",
        "a: [",
        "a: b: c",
        "? [1, 2]\n: 3",
        "a: !!python/object/apply:os.system [ls]",
        "a: !!timestamp never",
        "--- 1\n--- 2",
        "a: " + "9" * 10_000,
        "a: \x00",
        "model: !!set {a, b}",
    ],
)
def test_text_that_is_no_scenario(text):
    assert issues_of(text)


def test_a_long_value_does_not_flood_the_message():
    (issue,) = issues_of(GOOD.replace("2T", "'" + "x" * 5000 + "'"))
    assert len(issue.message) < 6000
    assert "..." in issue.message


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_bytes(b"\xff\xfe\x00model")
    with pytest.raises(ScenarioError, match="UTF-8"):
        load_scenario(path)
    path.write_text("\ufeff" + GOOD, "utf-8")
    assert load_scenario(path).gpus == 256


def test_a_date_need_not_be_quoted():
    assert parse_scenario(GOOD + "pricing: {quote_date: 2026-10-01}\n").pricing.quote_date == "2026-10-01"


BATCH = GOOD.replace("nodes: 32", "nodes: 48").replace("global_batch_sequences: 1024", "global_batch_sequences: 480")


@pytest.mark.parametrize("layout", ["tp: 8, dp: 48", "tp: 8", "tp: 4, pp: 2"])
def test_a_rank_that_holds_no_whole_number_of_micro_batches_is_refused(layout):
    (issue,) = issues_of(BATCH + f"strategies:\n  a: {{{layout}, micro_batch_sequences: 3}}\n")
    assert (issue.code, issue.line, issue.path) == ("layout", 5, "strategies.a.micro_batch_sequences")
    assert issue.nearest == ("2", "1", "5")
    assert "10 sequences" in issue.message
    assert "432 or 576" in issue.message


@pytest.mark.parametrize("change", ["micro_batch_sequences: 2", "micro_batch_sequences: 5"])
def test_the_nearest_choices_are_accepted(change):
    assert parse_scenario(BATCH + f"strategies:\n  a: {{tp: 8, dp: 48, {change}}}\n")


@pytest.mark.parametrize("batch", [432, 576])
def test_the_nearest_global_batches_are_accepted(batch):
    text = BATCH.replace("global_batch_sequences: 480", f"global_batch_sequences: {batch}")
    assert parse_scenario(text + "strategies:\n  a: {tp: 8, dp: 48, micro_batch_sequences: 3}\n")
