"""Integrity of the tables of power, electricity, carbon, wages and currencies."""

import pytest

from planner.catalog import CatalogError
from planner.catalog.facility import carbon_intensity, electricity_price, exchange_rate, fact, facts
from planner.catalog.labour import labour_facts
from planner.catalog.tables import rows

PROVENANCE = {"primary-read", "secondary-read", "computed", "measured", "hearsay", "recalled", "definition"}


@pytest.mark.parametrize("table", ["facility.csv", "labour.csv", "currencies.csv"])
def test_every_row_has_id_source_and_provenance(table):
    found = rows(table)
    assert len({r["id"] for r in found}) == len(found)
    for r in found:
        assert r["source"]
        assert r["provenance"] in PROVENANCE
        assert r.get("year") or r.get("date") or r["provenance"] == "definition"


def test_values_lie_in_their_ranges():
    for f in (*facts().values(), *labour_facts().values()):
        for bound, sign in ((f.low, 1), (f.high, -1)):
            if bound is not None and f.value is not None:
                assert sign * (f.value - bound) >= 0, f.id


def test_figures_are_plausible():
    for f in facts().values():
        if f.category == "pue":
            assert 1.0 < f.known < 2.0
        if f.category == "electricity":
            assert 0.05 < f.known < 0.4
        if f.category == "carbon_intensity" and f.region:
            assert 0 < f.known < 1000
            assert f.country
            assert electricity_price(f.region).unit in {"USD/kWh", "EUR/kWh"}
        if f.category == "gpu_load":
            assert 0 < f.known < 1
    assert fact("F194").known < fact("F195").known < fact("F199").known < fact("F196").known


def test_measured_loads_are_those_of_the_shipped_profile():
    """The draws of rows F194 to F198 come from the packaged calibration; its power samples are at a 700 W limit."""
    import json
    from importlib.resources import files

    text = files("planner.profile").joinpath("shipped/h200-sxm.json").read_text("utf-8")
    power = [s for s in json.loads(text)["samples"] if s["kind"] == "power"]
    full = next(s["power_w"] for s in power if s["op"] == "matmul" and s["shape"]["duty"] == 1.0)
    copy = next(s["power_w"] for s in power if s["op"] == "copy")
    idle = next(s["power_w"] for s in power if s["op"] == "idle")
    for row, watts in (("F196", full), ("F198", copy), ("F194", idle)):
        assert fact(row).known == pytest.approx(watts / 700, abs=0.003)


def test_regions():
    assert carbon_intensity(None).country == "United States"
    assert carbon_intensity("gcp:europe-west3").country == "Germany"
    assert carbon_intensity("GCP:Europe-North1").carbon_free_frac == 0.98
    with pytest.raises(CatalogError, match="nearest"):
        carbon_intensity("gcp:us-centrall")


def test_electricity():
    assert electricity_price(None).id == "F056"
    assert electricity_price("Ireland").known > electricity_price("Sweden").known
    assert electricity_price("aws:eu-west-2").region == "EU average"
    assert electricity_price("Japan").region == "World"


def test_exchange_rates():
    assert exchange_rate("usd").usd_per_unit == 1
    euro = exchange_rate("EUR")
    assert euro.date == max(r["date"] for r in rows("currencies.csv") if r["currency"] == "EUR")
    assert 0.9 < euro.usd_per_unit < 1.3
    with pytest.raises(CatalogError, match="unknown currency"):
        exchange_rate("XYZ")


def test_operator_wage():
    assert labour_facts()["L09"].value * labour_facts()["L13"].value == pytest.approx(208_575)
