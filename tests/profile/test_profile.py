"""The shipped H200 profile: readable, sound, and refused when it is not."""

import json
from importlib.resources import files

import pytest

from planner.profile.load import ProfileError, load_profile, parse_profile, shipped


def test_shipped_profile_is_sound():
    assert "h200-sxm" in shipped()
    profile = load_profile("h200-sxm")
    assert len(profile.samples) > 400
    for s in profile.samples:
        assert s.p10_s <= s.p50_s * (1 + 1e-9)
        assert s.p50_s <= s.p90_s * (1 + 1e-9)


def test_hot_products_run_at_the_power_cap():
    """8192 cubed in bf16: about 650-690 TFLOP/s hot on this part, never above the dense peak."""
    rates = [
        2 * s.shape["m"] * s.shape["n"] * s.shape["k"] / s.p50_s
        for s in load_profile("h200-sxm").samples
        if s.kind == "matmul" and s.dtype == "bf16" and s.state == "hot"
    ]
    assert max(rates) < 989e12
    big = [
        2 * 8192**3 / s.p50_s
        for s in load_profile("h200-sxm").samples
        if s.kind == "matmul"
        and set(s.shape.values()) == {8192}
        and s.dtype == "bf16"
        and s.state == "hot"
        and s.phase == "fwd"
    ]
    assert 600e12 < big[0] < 760e12


def test_wrong_profiles_are_refused_with_a_reason():
    text = files("planner.profile").joinpath("shipped/h200-sxm.json").read_text()
    data = json.loads(text)
    with pytest.raises(ProfileError, match="schema_version 2"):
        parse_profile(json.dumps(data | {"schema_version": 2}), source="x")
    with pytest.raises(ProfileError, match="device"):
        parse_profile(json.dumps({k: v for k, v in data.items() if k != "device"}), source="x")
    with pytest.raises(ProfileError, match="not JSON"):
        parse_profile("{", source="x")
    with pytest.raises(ProfileError, match="shipped: h200-sxm"):
        load_profile("no-such")
