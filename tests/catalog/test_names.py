"""Every name leads to one entry; every row says where it comes from."""

import pytest

from planner import catalog
from planner.catalog.tables import name_key, rows

FRIENDLY = [
    "dgx-a100",
    "hgx-a100",
    "hgx-a100-40g",
    "dgx-h100",
    "hgx-h100",
    "hgx-h200",
    "dgx-h200",
    "hgx-b200",
    "hgx-b300",
    "gb200-nvl72",
    "gb300-nvl72",
    "a100-ethernet-100g",
    "single-h200",
    "mi300x",
    "p4d.24xlarge",
    "p5.48xlarge",
    "a3-megagpu-8g",
    "ND96isr_H100_v5",
    "BM.GPU.H100.8",
]
PRESETS = [
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "gpt3-1.3b",
    "gpt3-6.7b",
    "gpt3-13b",
    "gpt3-175b",
    "megatron-1.7b",
    "megatron-3.6b",
    "megatron-7.5b",
    "megatron-18.4b",
    "megatron-39.1b",
    "megatron-76.1b",
    "megatron-145.6b",
    "megatron-310.1b",
    "megatron-529.6b",
    "megatron-1008b",
    "megatron-22b",
    "korthikanti-530b",
    "korthikanti-1t",
    "llama2-7b",
    "llama2-13b",
    "llama2-70b",
    "llama3-8b",
    "llama3-70b",
    "llama3.1-405b",
    "llama3.2-1b",
    "llama3.2-3b",
    "mistral-7b",
    "bloom-176b",
    "qwen2.5-7b",
    "qwen2.5-72b",
    "mixtral-8x7b",
    "mixtral-8x22b",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
    "deepseek-v3",
    "bert-large",
    "mpt-7b",
    "gpt-neox-20b",
]


@pytest.mark.parametrize("name", FRIENDLY)
def test_node_names_people_type(name):
    assert catalog.node(name) is catalog.node(name.upper())


@pytest.mark.parametrize("name", PRESETS)
def test_presets_people_type(name):
    assert catalog.model(name) is catalog.model(name.upper())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("meta-llama/Llama-3.1-405B", "llama3.1-405b"),
        ("Llama 2 7B", "llama2-7b"),
        ("megatron-1t", "megatron-1008b"),
        ("openai-community/gpt2", "gpt2"),
    ],
)
def test_model_spellings(text, name):
    assert catalog.model(text).name == name


@pytest.mark.parametrize("wrong", ["llama3/../../70b", "", "a/b/gpt2", "gpt-31.3b-x"])
def test_strange_model_names_are_refused(wrong):
    with pytest.raises(catalog.CatalogError):
        catalog.model(wrong)


def test_separators_between_digits_count():
    assert name_key("a1-2") != name_key("a12")
    assert name_key("Llama-2 7B") == name_key("llama2-7b")


@pytest.mark.parametrize("find", [catalog.gpu, catalog.node, catalog.model])
def test_the_error_names_the_kind_and_is_a_value_error(find):
    with pytest.raises(ValueError, match="unknown") as error:
        find("hgx-h10000")
    assert isinstance(error.value, catalog.CatalogError)
    assert "nearest" not in error.value.reason


@pytest.mark.parametrize(("table", "key"), [("gpus.csv", "gpu"), ("nodes.csv", "node"), ("models.csv", "name")])
def test_names_are_unique(table, key):
    names = [name_key(r[key]) for r in rows(table)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("table", ["gpus.csv", "nodes.csv", "models.csv", "prices.csv", "purchase_prices.csv"])
def test_every_row_has_a_source(table):
    assert all(r["source"] for r in rows(table))
    if table != "models.csv":
        assert all(r["year"] and r["provenance"] for r in rows(table))


def test_figures_are_si_and_positive():
    h100 = catalog.gpu("H100-SXM")
    assert h100.peak_flops["bf16"] == 989e12
    assert h100.scaleup_bytes_per_s == 450e9
    assert catalog.node("hgx-h100").scaleout_bytes_per_s == pytest.approx(400e9)
    for node in catalog.nodes().values():
        assert min(node.max_power_w, node.host_mem_bytes, node.scaleout_bytes_per_s) >= 0
        assert node.scaleup_domain_gpus >= 1


def test_composed_nodes_say_so():
    by_name = {r["node"]: r["provenance"] for r in rows("nodes.csv")}
    assert by_name["a100-ethernet-100g"] == by_name["single-h200"] == "composed"


def test_prices_of_one_part():
    of_h100 = catalog.prices("h100-sxm-80gb")
    assert of_h100
    assert {p.gpu for p in of_h100} == {"H100-SXM"}
    assert len(of_h100) < len(catalog.prices())
    with pytest.raises(catalog.CatalogError):
        catalog.prices("H1000")


def test_purchase_prices():
    everything = catalog.purchase_prices()
    assert len({p.id for p in everything}) == len(everything) > 100
    assert all((p.usd or p.usd_per_gpu or p.ratio or 0) > 0 for p in everything)
    assert all(catalog.gpu(p.gpu).name == p.gpu for p in everything if p.gpu)
    assert all(10_000 < p.usd_per_gpu < 100_000 for p in catalog.purchase_prices("h100-sxm") if p.kind == "server")
