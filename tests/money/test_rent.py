"""Prices with their day and spread, commitments, spot."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog.prices import discount_frac, rental_price, rental_rows
from planner.money.rent import (
    catalogue_rent,
    commitment_break_even,
    price_warnings,
    quoted,
    spot_break_even_ratio,
    spot_useful_frac,
)

TODAY = date(2026, 6, 1)


def rent(**changes):
    given = {"gpu": "H100-SXM", "tenure": "on_demand", "provider": None, "region": None, "today": TODAY}
    return catalogue_rent(**(given | changes))


@pytest.mark.parametrize(
    ("day", "words"),
    [
        (None, "no date"),
        ("soon", "no readable date"),
        ("2026-03-02", "91 days"),
        ("2026-03-03", None),
        ("2026-05", None),
    ],
)
def test_age_of_a_price(day, words):
    found = price_warnings(day=day, today=TODAY, what="it")
    assert (not found) if words is None else words in found[0]


def test_what_an_owner_spends_is_no_rent():
    """Rows of operating floors and of amortised cost stand in the price table; nobody is charged them."""
    assert not {p.instance for p in rental_rows(gpu="H100-SXM", tenure="on_demand")} & {
        "H100 cash operating floor (capex stripped)",
        "H100 build-and-amortise",
    }
    assert {p.instance for p in rental_rows(gpu="H100-SXM", tenure="reserved_1y")} >= {"H100 1-year contract"}


def test_on_demand_is_dearer_than_commitment_and_spot():
    for gpu in ("H100-SXM", "A100-80-SXM", "H200-SXM", "B200-SXM"):
        full = rent(gpu=gpu).usd_per_gpu_hour
        for tenure in ("reserved_1y", "reserved_3y", "spot"):
            assert rent(gpu=gpu, tenure=tenure).usd_per_gpu_hour < full


def test_missing_tenure_takes_the_usual_discount():
    found = rent(gpu="H200-SXM", tenure="reserved_1y")
    assert found.usd_per_gpu_hour == pytest.approx(
        rental_price(gpu="H200-SXM", tenure="on_demand").usd_per_gpu_hour * (1 - discount_frac(tenure="reserved_1y"))
    )
    assert found.label == "assumed"
    assert any("usual discount" in w for w in found.warnings)


def test_wide_market_is_said_and_a_provider_narrows_it():
    assert any("name" in w and "provider" in w for w in rent().warnings)
    assert rent(provider="Lambda").sigma < rent().sigma


def test_unknown_part_and_own_quote():
    assert rent(gpu="no such part").label == "assumed"
    fresh = quoted(usd_per_gpu_hour=2, day="2026-05-20", today=TODAY, formula="quote")
    assert (fresh.sigma, fresh.warnings) == (0.0, ())
    assert quoted(usd_per_gpu_hour=2, day=None, today=TODAY, formula="quote").sigma > 0


def test_spot_placeholders_are_dropped():
    """Rows at a tenth of on-demand or at its full price are no offers."""
    for gpu in ("H100-SXM", "H200-SXM"):
        full = {p.region: p.usd_per_gpu_hour for p in rental_rows(gpu=gpu, tenure="on_demand")}
        for p in rental_rows(gpu=gpu, tenure="spot"):
            assert p.region not in full or 0.11 < p.usd_per_gpu_hour / full[p.region] < 0.99


def test_commitments():
    """Hyperscalers of the table: about 30 % off for a year, 55 % for three."""
    assert commitment_break_even(discount=0.41) == pytest.approx(0.59)
    assert 0.25 < discount_frac(tenure="reserved_1y") < 0.45
    assert 0.45 < discount_frac(tenure="reserved_3y") < 0.65
    with pytest.raises(ValueError, match="no discount"):
        discount_frac(tenure="on_demand")


def test_worked_spot_case():
    """16 nodes of us-east-2b: spells of 1.7 h, stall 0.5 min, recovery 10 min, interval 10 min: 0.80 useful; at 0.36 of
    the price a useful hour costs 0.45 of on-demand."""
    useful = spot_useful_frac(stall_s=30, interval_s=600, losses_per_s=1 / (1.7 * 3600), recovery_s=600)
    assert useful == pytest.approx(0.80, abs=0.005)
    assert 0.36 / useful == pytest.approx(0.45, abs=0.005)
    assert spot_break_even_ratio(useful_spot=useful) == useful


@given(st.floats(1, 300), st.floats(60, 7200), st.floats(0, 1e-3), st.floats(0, 7200), st.floats(0.01, 1))
def test_spot_break_even(stall, interval, losses, recovery, on_demand):
    """At the break-even price a useful hour costs the same on both."""
    useful = spot_useful_frac(stall_s=stall, interval_s=interval, losses_per_s=losses, recovery_s=recovery)
    if useful > 0:
        ratio = spot_break_even_ratio(useful_spot=useful, useful_on_demand=on_demand)
        assert ratio * 3.0 / useful == pytest.approx(3.0 / on_demand)
    worse = spot_useful_frac(stall_s=stall, interval_s=interval, losses_per_s=2 * losses, recovery_s=recovery)
    assert worse <= useful
