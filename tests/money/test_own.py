"""The worked owned GPU-hour, capital recovery, cash flow, break-evens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.money.own import (
    Asset,
    break_even_utilization,
    capital_recovery_factor,
    capital_usd_per_year,
    cash_flow,
    owned_usd_per_gpu_hour,
    resale_frac,
    robust_sigma,
    server_price,
)


def worked_usd_per_hour(*, years=5.0, residual=0.125):
    """One H100: 38,750 server + 4,248 fabric, 8 %, 1.275 kW at 180 USD/kW-month, 0.75 load, PUE 1.25, 5 % upkeep."""
    price = 38_750 + 4_248
    asset = Asset("compute", "gpu", price, residual * price, years, 0.05)
    colocation = 1.275 * 180 * 12
    energy = 1.275 * 0.75 * 1.25 * 8760 * 0.083
    staff = 1.5 / 1000 * 300_000
    year = asset.usd_per_year(interest_frac=0.08) + colocation + energy + staff
    return owned_usd_per_gpu_hour(usd_per_year=year, gpus=1, utilization_frac=0.9)


def test_worked_gpu_hour():
    """About 2 USD; a shorter life with 30 % resale adds 0.36, six years without resale take off 0.07."""
    base = worked_usd_per_hour()
    assert base == pytest.approx(2.04, abs=0.005)
    assert worked_usd_per_hour(years=3, residual=0.30) - base == pytest.approx(0.36, abs=0.01)
    assert worked_usd_per_hour(years=6, residual=0.0) - base == pytest.approx(-0.07, abs=0.01)


def test_worked_case_through_the_scenario():
    """The same inputs through the product, with measured load in place of 0.75, racks and a fabric by counts."""
    from planner.bill import bill_of
    from planner.forecast import step_on
    from planner.scenario import parse_scenario

    scenario = parse_scenario("""model: llama3-70b
cluster: {node: hgx-h100, nodes: 128}
training: {tokens: 2T, sequence_length: 8192, global_batch_sequences: 1024}
strategies: {a: {tp: 8, pp: 4}}
pricing:
  tenure: own
  usd_per_kwh: 0.083
  usd_per_operator_year: 300000
  own:
    server_usd_per_gpu: 38750
    network_planes: 8
    storage_frac: 0
    rack_usd: 0
    installation_frac: 0
    spares_frac: 0
    usd_per_kw_month: 180
""")
    strategy = scenario.strategies["a"]
    step = step_on(scenario=scenario, strategy=strategy, gpus=1024, global_batch=1024, engine="fast")[1]
    found = bill_of(
        scenario=scenario, strategy=strategy, answer=step, gpu_hours=1e5, goodput=0.95, days_sigma=0.1
    ).document
    # Colocation, electricity and upkeep of switches and storage come on top of the worked case: under 10 cents.
    assert worked_usd_per_hour() < found["price"]["usd_per_gpu_hour"] < worked_usd_per_hour() + 0.15
    assert found["ownership"]["capex_usd"]["fabric"] / 1024 == pytest.approx(4248, rel=0.01)


def test_capital_recovery():
    assert capital_recovery_factor(interest_frac=0.08, years=5) == pytest.approx(0.2505, abs=5e-5)
    assert capital_recovery_factor(interest_frac=0, years=4) == 0.25


@given(st.floats(1e3, 1e8), st.floats(0, 0.9), st.floats(0.001, 0.3), st.integers(1, 15), st.floats(0, 1e6))
def test_cash_flow_and_level_cost_agree(price, residual, interest, years, running):
    """The present value of the payments is that of the level yearly cost."""
    asset = Asset("compute", "x", price, residual * price, years, 0.03)
    flow = cash_flow(assets=[asset], running_usd_per_year=running, interest_frac=interest, years=years)
    assert flow.usd_per_year == pytest.approx(asset.usd_per_year(interest_frac=interest) + running, rel=1e-9)
    assert flow.usd[0] == pytest.approx(price)
    assert len(flow.usd) == years + 1


@given(st.floats(0, 0.9), st.floats(0, 0.3), st.floats(1, 12))
def test_resale_and_time_lower_the_yearly_cost(residual, interest, years):
    def yearly(left, life):
        return capital_usd_per_year(price_usd=1e6, residual_usd=left * 1e6, interest_frac=interest, years=life)

    assert yearly(residual + 0.1, years) < yearly(residual, years)
    assert yearly(0.0, years + 1) < yearly(0.0, years)


def test_longer_lived_assets_keep_value_and_shorter_ones_are_bought_again():
    building = Asset("facility", "hall", 1500.0, 0.0, 15, 0.0)
    assert cash_flow(assets=[building], running_usd_per_year=0, interest_frac=0, years=5).usd == (
        1500,
        0,
        0,
        0,
        0,
        -1000,
    )
    server = Asset("compute", "server", 100.0, 10.0, 2, 0.0)
    assert cash_flow(assets=[server], running_usd_per_year=1, interest_frac=0, years=4).usd == (100, 1, 91, 1, -9)


def test_break_even():
    assert break_even_utilization(
        fixed_usd_per_year=8760, usd_per_used_hour=0.0, gpus=1, rent_usd_per_gpu_hour=2.0
    ) == pytest.approx(0.5)
    assert break_even_utilization(fixed_usd_per_year=1, usd_per_used_hour=3, gpus=1, rent_usd_per_gpu_hour=2) is None


def test_resale_curve():
    assert [resale_frac(y) for y in (0, 1, 3, 5, 6, 9)] == [1.0, 0.625, 0.3, 0.125, 0.0, 0.0]
    assert resale_frac(2.5) == pytest.approx((0.425 + 0.3) / 2)


def test_server_prices():
    h100 = server_price(gpu="H100-SXM")
    assert 25_000 < h100.usd_per_gpu < 47_000
    assert h100.sigma > 0
    assert h100.label == "published"
    bare = server_price(gpu="L40S")
    assert bare.usd_per_gpu == pytest.approx(8000 * 1.64)
    assert bare.label == "assumed"
    assert server_price(gpu="B300-SXM") is None
    assert robust_sigma([1, 2]) == 0.0
