"""Integrity of the packaged tables."""

import pytest

from planner import catalog
from planner.catalog.huggingface import model_from_config
from planner.catalog.prices import prices, rental_price
from planner.catalog.software import age, releases, software
from planner.catalog.tables import rows
from planner.workload.params import total_params

# Papers that print two or three digits: ours must round to the very digits printed.
ROUNDED = {r["name"]: r["params_b"] for r in rows("models.csv") if 0 < len(r["params_b"].replace(".", "")) <= 3}


@pytest.mark.parametrize("name", sorted(catalog.published_params()))
def test_parameters_match_the_published_count(name):
    ours, theirs = total_params(catalog.model(name)), catalog.published_params()[name]
    if name in ROUNDED:
        decimals = len(ROUNDED[name].partition(".")[2])
        assert f"{ours / 1e9:.{decimals}f}" == ROUNDED[name]
    else:
        assert ours == pytest.approx(theirs, rel=0.004)


def test_every_gpu_has_source_and_positive_figures():
    for spec in catalog.gpus().values():
        assert spec.source
        assert spec.provenance
        assert spec.mem_bytes > 1e9
        assert spec.mem_bytes_per_s > 1e11
        assert spec.peak_flops
        assert all(v > 0 for v in spec.peak_flops.values())


def test_every_node_names_a_known_gpu():
    for node in catalog.nodes().values():
        assert catalog.gpu(node.gpu).name
        assert node.gpus_per_node >= 1
        assert node.source


def test_unknown_names_carry_the_nearest():
    with pytest.raises(catalog.CatalogError, match="nearest"):
        catalog.gpu("H100-SXMM")


def test_prices_are_positive_and_known():
    assert len(prices()) > 100
    price = rental_price(gpu="H100-SXM", tenure="on_demand")
    assert price is not None
    assert price.date
    assert 0.5 < price.usd_per_gpu_hour < 15


def test_software_years_are_ordered_and_have_evidence():
    for row in releases():
        assert row.evidence
        assert 0 <= row.tp_overlap_frac <= 1
    assert software(framework="megatron", year=2021).attention == "unfused"
    assert software(framework="megatron", year=2026).from_year <= 2026
    assert all(1 <= row.from_month <= 12 for row in releases())


def test_a_release_is_a_year_and_a_month_and_a_year_alone_its_last():
    def at(year, month=12):
        return software(framework="nemo", year=year, month=month)

    assert at(2024, 3).attention == "flash2"
    assert at(2024, 7).attention == at(2024).attention == "flash3"
    assert "ep_dedup" not in at(2025, 5).fusions
    assert "ep_dedup" in at(2025).fusions
    assert "moe_kernel" not in at(2026, 4).fusions
    assert "moe_kernel" in at(2026, 6).fusions
    assert at(1990) == at(2023)
    ages = [age(r) for r in releases() if r.framework == "nemo"]
    assert ages == sorted(set(ages))


def test_hugging_face_config():
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
    }
    assert total_params(model_from_config(config, name="x")) == 8_030_261_248
    with pytest.raises(ValueError, match=r"falcon.*known: llama"):
        model_from_config({"model_type": "falcon"}, name="x")
    with pytest.raises(ValueError, match="hidden_size"):
        model_from_config(config | {"hidden_size": -1}, name="x")
