"""Switches and links against a public bill and against the counting formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import catalog
from planner.money.fabric import fat_tree


@pytest.mark.parametrize(
    ("row", "gpus", "switches"),
    [
        ("PP083", 512, 8),
        ("PP084", 1024, 48),
        ("PP085", 2048, 96),
        ("PP086", 16_384, 768),
        ("PP087", 32_768, 2560),
        ("PP088", 131_072, 10_240),
    ],
)
def test_public_sheet_of_eight_rails(row, gpus, switches):
    """The Aug-2024 sheet counts eight separate planes of 64-port switches at 36,000 USD; its bills within 4 %."""
    found = fat_tree(endpoints=gpus, radix=64, planes=8)
    assert found.switches == switches
    price = next(p.usd for p in catalog.purchase_prices() if p.id == row)
    assert found.switches * 36_000 + found.links * 1280 == pytest.approx(price, rel=0.04)


@pytest.mark.parametrize(
    ("endpoints", "tiers", "switches"), [(64, 1, 1), (65, 2, 5), (2048, 2, 96), (2049, 3, 162), (65_536, 3, 5120)]
)
def test_shared_spine(endpoints, tiers, switches):
    found = fat_tree(endpoints=endpoints, radix=64)
    assert (found.tiers, found.switches) == (tiers, switches)


def test_oversubscription_thins_the_spine():
    full, thin = (fat_tree(endpoints=1536, radix=64, oversubscription=s) for s in (1.0, 3.0))
    assert full.switches == 48 + 24
    assert thin.switches == 32 + 8  # 48 ports down a leaf, a third of the links up
    assert thin.links == 1536 + 512


@given(st.integers(0, 200_000), st.sampled_from([32, 64, 128]), st.integers(1, 8), st.floats(1, 8))
def test_more_endpoints_never_need_fewer_parts(endpoints, radix, planes, ratio):
    small = fat_tree(endpoints=endpoints, radix=radix, planes=planes, oversubscription=ratio)
    large = fat_tree(endpoints=endpoints + 1000, radix=radix, planes=planes, oversubscription=ratio)
    assert large.switches >= small.switches
    assert large.links > small.links
    assert small.links >= endpoints
    # Every link takes a port at its upper end, those between switches one at each.
    assert small.switches * radix >= endpoints


def test_impossible_networks():
    with pytest.raises(ValueError, match="make no network"):
        fat_tree(endpoints=8, radix=2)
    assert fat_tree(endpoints=0, radix=64).switches == 0
