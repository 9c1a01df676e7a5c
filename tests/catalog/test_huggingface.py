"""Shapes from config.json: every known family against its published count, and what must be refused."""

import json

import pytest

from planner import catalog
from planner.catalog.huggingface import FAMILIES, model_from_config, model_from_file
from planner.workload.params import total_params


def config(*, family, preset, **more):
    """A config.json of a preset, as its family writes it."""
    m = catalog.model(preset)
    if family == "gpt2":
        keys = ("n_layer", "n_embd", "n_head", "n_positions")
        base = dict(zip(keys, (m.layers, m.hidden, m.heads, m.max_sequence), strict=True))
    else:
        base = {
            "num_hidden_layers": m.layers,
            "hidden_size": m.hidden,
            "num_attention_heads": m.heads,
            "intermediate_size": m.ffn,
            "max_position_embeddings": m.max_sequence,
        }
    if family not in {"gpt2", "gpt_neox"}:
        base["num_key_value_heads"] = m.kv_heads
    return {"model_type": family, "vocab_size": m.vocab, **base, **more}


DEEPSEEK = {
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
CASES = [
    ("llama", "llama2-70b", {}),
    ("llama", "llama3.2-3b", {"head_dim": 128, "tie_word_embeddings": True}),
    ("mistral", "mistral-7b", {"sliding_window": 4096}),
    ("qwen2", "qwen2.5-7b", {"sliding_window": 131072, "use_sliding_window": False}),
    ("qwen3", "qwen3-8b", {"head_dim": 128}),
    ("gpt2", "gpt2-xl", {}),
    ("gpt_neox", "gpt-neox-20b", {}),
    ("mixtral", "mixtral-8x7b", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    (
        "qwen3_moe",
        "qwen3-235b-a22b",
        {"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536},
    ),
    ("deepseek_v3", "deepseek-v3", DEEPSEEK),
    ("deepseek_v3", "deepseek-v3", DEEPSEEK | {"head_dim": 64}),
]


@pytest.mark.parametrize(("family", "preset", "more"), CASES)
def test_families_reach_the_published_count(family, preset, more):
    ours = model_from_config(config(family=family, preset=preset, **more), name="x")
    assert total_params(ours) == pytest.approx(catalog.published_params()[preset], rel=0.0005)


def test_every_family_is_covered():
    assert {family for family, _, _ in CASES} == set(FAMILIES)


def test_windows():
    assert model_from_config(
        config(family="mistral", preset="mistral-7b", sliding_window=4096), name="x"
    ).sliding_window
    assert not model_from_config(
        config(family="qwen2", preset="qwen2.5-7b", sliding_window=4096), name="x"
    ).sliding_window


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"num_attention_heads": 33}, "do not divide hidden"),
        ({"num_key_value_heads": 5}, "key and value heads"),
        ({"head_dim": -128}, "head_dim"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"model_type": ["llama"]}, "not known"),
        ({"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 8, "moe_intermediate_size": 8}, "of 4"),
        ({"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": [], "moe_intermediate_size": 8}, "whole"),
    ],
)
def test_impossible_numbers_are_refused_by_key(change, words):
    with pytest.raises(ValueError, match=words):
        model_from_config(config(family="llama", preset="llama3-8b") | change, name="x")


@pytest.mark.parametrize("text", ["", "[]", "{", "3", "[" * 100_000, "\ufeff{}", '{"model_type": NaN}'])
def test_files_that_are_no_config(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"JSON|object|not known"):
        model_from_file(str(path))


def test_a_file_takes_its_folder_as_name(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config(family="llama", preset="llama3-8b")), "utf-8")
    assert model_from_file(str(folder / "config.json")).name == "mine"
