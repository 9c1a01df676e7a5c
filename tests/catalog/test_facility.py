"""Integrity of the tables of power, electricity, carbon, wages and currencies."""

import pytest

from planner.catalog import CatalogError
from planner.catalog.facility import carbon_intensity, electricity_price, exchange_rate, fact, facts
from planner.catalog.labour import labour_facts
from planner.catalog.tables import rows

LIMIT_W = 700.0
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


def test_measured_loads_lie_near_the_shipped_profiles():
    """Draws of rows F194, F196 and F198 against every packaged H200 calibration; sessions differ by 5 %."""
    import json
    from importlib.resources import files

    seen = {"idle": [], "matmul": [], "copy": []}
    for path in files("planner.profile").joinpath("shipped").iterdir():
        text = path.read_text("utf-8") if path.name.endswith(".json") else ""
        profile = json.loads(text) if text.strip() else {"samples": []}
        for s in profile["samples"]:
            if s["kind"] == "power" and s["shape"].get("duty", 1.0) == 1.0 and s["op"] in seen:
                seen[s["op"]].append(s["power_w"] / LIMIT_W)
    for row, op in (("F194", "idle"), ("F196", "matmul"), ("F198", "copy")):
        assert seen[op]
        assert all(abs(share - fact(row).known) < 0.06 for share in seen[op]), (row, seen[op])


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
