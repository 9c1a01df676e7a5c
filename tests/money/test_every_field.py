"""Every field of `pricing`, `programme` and the acting ones of `team` move the bill the right way."""

from datetime import date, timedelta

import pytest

from planner.bill import bill_of
from planner.forecast import step_on
from planner.scenario import parse_scenario
from planner.scenario.pricing import Own, Pricing
from planner.scenario.programme import Programme
from planner.scenario.team import Team

SIX = """model: llama3-70b
cluster: {node: hgx-h100, nodes: 32}
training: {tokens: 2T, sequence_length: 8192, global_batch_sequences: 1024}
strategies:
  engineered: {tp: 8, pp: 4, engineering_weeks: 6}
"""
FRESH = (date.today() - timedelta(days=5)).isoformat()
OLD = "2020-01-01"


@pytest.fixture(scope="module")
def step():
    scenario = parse_scenario(SIX)
    return step_on(
        scenario=scenario, strategy=scenario.strategies["engineered"], gpus=256, global_batch=1024, engine="fast"
    )[1]


@pytest.fixture(scope="module")
def bill(step):
    def made(**blocks):
        scenario = parse_scenario(SIX).model_copy(
            update={
                "pricing": Pricing.model_validate(blocks.get("pricing", {})),
                "programme": Programme.model_validate(blocks.get("programme", {})),
                "team": Team.model_validate(blocks.get("team", {})),
            }
        )
        return bill_of(
            scenario=scenario,
            strategy=scenario.strategies["engineered"],
            answer=step,
            gpu_hours=500_000.0,
            goodput=0.9,
            days_sigma=0.1,
        )

    return made


def total(b):
    return b.document["cost_usd_total"]["p50"]


def width(b):
    return b.document["cost_usd_total"]["p90"] / total(b)


def bucket(name):
    return lambda b: b.document["cost_usd"][name]


def key(*path):
    def read(b):
        value = b.document
        for step in path:
            value = value[step]
        return value

    return read


UP, DOWN = 1, -1
RENT, OWN = {}, {"tenure": "own"}
# field, settings it acts under, a value, another value, figure, direction of the figure from the first to the second
PRICING = [
    ("tenure", {}, "on_demand", "reserved_3y", total, DOWN),
    ("tenure", {}, "on_demand", "spot", total, DOWN),
    ("tenure", {}, "on_demand", "own", bucket("facility"), UP),
    ("provider", {}, "Lambda", "OCI", bucket("compute"), UP),
    ("region", OWN, "Sweden", "Ireland", bucket("power"), UP),
    ("region", {}, "gcp:europe-north2", "gcp:asia-south1", key("carbon_t"), UP),
    ("region", {"provider": "AWS", "tenure": "spot"}, "aws:us-east-2", "aws:ap-northeast-1", bucket("compute"), UP),
    ("currency", {"usd_per_currency": 2.0}, "USD", "GBP", key("cost_total_in_currency", "currency"), DOWN),
    ("currency", {"quote_per_gpu_hour": 2.0}, "USD", "EUR", bucket("compute"), UP),
    ("usd_per_currency", {"currency": "GBP"}, 1.2, 1.4, key("cost_total_in_currency", "p50"), DOWN),
    ("usd_per_currency", {"currency": "GBP", "quote_per_gpu_hour": 2}, 1.2, 1.4, total, UP),
    ("currency_date", {"currency": "GBP", "usd_per_currency": 1.3}, FRESH, OLD, lambda b: len(b.warnings), UP),
    ("usd_per_gpu_hour", {}, 2.0, 3.0, bucket("compute"), UP),
    ("quote_per_gpu_hour", {}, 2.0, 3.0, bucket("compute"), UP),
    ("quote_date", {"usd_per_gpu_hour": 2.0}, FRESH, OLD, width, UP),
    ("commitment_used_frac", {"tenure": "reserved_1y"}, 1.0, 0.5, bucket("compute"), UP),
    ("price_change_frac_per_year", {}, 0.0, -0.28, key("programme_usd"), DOWN),
    ("operations", {}, "included", "self_run", bucket("people"), UP),
    ("operations", {}, "included", "managed", bucket("support"), UP),
    ("operations", OWN, "self_run", "included", bucket("people"), DOWN),
    ("managed_premium_frac", {"operations": "managed"}, 0.05, 0.1, bucket("support"), UP),
    ("managed_premium_frac", {"operations": "managed", "tenure": "own"}, 0.05, 0.1, bucket("support"), UP),
    ("operations_fte_per_1000_gpus", OWN, 1.0, 2.0, bucket("people"), UP),
    ("usd_per_operator_year", OWN, 1e5, 2e5, bucket("people"), UP),
    ("usd_per_person_week", {}, 4000, 8000, bucket("people"), UP),
    ("storage_usd_per_gb_month", {}, 0.02, 0.2, bucket("storage"), UP),
    ("checkpoints_kept", {}, 1, 10, bucket("storage"), UP),
    ("dataset_bytes_per_token", {}, 2, 4, bucket("storage"), UP),
    ("usd_per_kwh", OWN, 0.05, 0.2, bucket("power"), UP),
    ("pue", OWN, 1.1, 1.5, bucket("power"), UP),
    ("pue", {}, 1.1, 1.5, key("energy_kwh"), UP),
    ("cooling", {}, "air", "liquid", key("energy_kwh"), DOWN),
    ("cooling", {}, "air", "liquid", key("facility", "racks"), DOWN),
    ("watts_per_gpu", {}, 700, 1000, key("energy_kwh"), UP),
    ("energy_convention", {}, "gpu_tdp", "modelled", key("energy_kwh"), UP),
    ("energy_convention", {}, "gpu_tdp", "gpu_tdp_pue", key("energy_kwh"), UP),
    ("energy_convention", {}, "gpu_tdp", "server_factor", key("carbon_t"), UP),
    ("grid_g_per_kwh", {}, 100, 500, key("carbon_t"), UP),
    ("carbon_basis", {"region": "gcp:europe-north1"}, "location", "market", key("carbon_t"), DOWN),
    ("carbon_free_frac", {"carbon_basis": "market"}, 0.2, 0.9, key("carbon_t"), DOWN),
    ("embodied_g_per_gpu_hour", {}, 0.0, 10.3, key("carbon_t"), UP),
]
OWNED = [
    ("server_usd_per_gpu", {}, 30_000, 40_000, bucket("compute"), UP),
    ("purchase_date", {"server_usd_per_gpu": 30_000}, FRESH, OLD, width, UP),
    ("switch_ports", {}, 64, 32, key("facility", "switches"), UP),
    ("switch_ports", {}, 512, 64, bucket("network"), UP),
    ("switch_usd", {}, 36_000, 50_000, bucket("network"), UP),
    ("cable_usd", {}, 1000, 1500, bucket("network"), UP),
    ("network_planes", {}, 1, 8, bucket("network"), DOWN),  # 32 endpoints a plane fit one switch
    ("storage_frac", {}, 0.05, 0.1, bucket("storage"), UP),
    ("rack_usd", {}, 5000, 20_000, bucket("facility"), UP),
    ("installation_frac", {}, 0.02, 0.1, bucket("facility"), UP),
    ("spares_frac", {}, 0.0, 0.1, bucket("compute"), UP),
    ("tax_frac", {}, 0.0, 0.1, bucket("compute"), UP),
    ("interest_frac", {}, 0.05, 0.1, bucket("compute"), UP),
    ("life_years", {}, 3, 5, bucket("compute"), DOWN),
    ("residual_frac", {}, 0.0, 0.3, bucket("compute"), DOWN),
    ("maintenance_frac", {}, 0.03, 0.08, bucket("compute"), UP),
    ("software_usd_per_gpu_year", {}, 0, 4500, bucket("compute"), UP),
    ("utilization_frac", {}, 0.5, 0.9, total, DOWN),
    ("site", {}, "colocation", "build", key("ownership", "capex_usd"), UP),
    ("usd_per_kw_month", {}, 130, 260, bucket("facility"), UP),
    ("construction_usd_per_w", {"site": "build"}, 8, 15, bucket("facility"), UP),
    ("building_years", {"site": "build"}, 10, 20, bucket("facility"), DOWN),
]
MANY = {"years": 6, "runs_per_year": 4}
PROGRAMME = [
    ("runs_per_year", {}, 1, 4, key("programme_usd"), UP),
    ("years", {}, 1, 3, key("programme_usd"), UP),
    ("years", {}, 1, 3, key("programme", "upkeep"), UP),
    ("experiment_factor", {}, 1.0, 1.58, key("programme", "experiments"), UP),
    ("refresh_years", {"years": 6}, 6, 2, key("programme", "hardware_refresh"), UP),
    ("discount_frac", {"years": 6}, 0.0, 0.1, key("programme_usd"), DOWN),
]
TEAM = [
    ("systems", {}, 1, 4, key("engineering_calendar_weeks"), DOWN),
    ("application", {}, 0, 4, key("engineering_calendar_weeks"), DOWN),
    ("stage", {}, "mature", "early", key("programme", "upkeep"), UP),
    ("upkeep_frac_per_year", {}, 0.1, 0.5, key("programme", "upkeep"), UP),
    ("refresh_frac", {}, 0.2, 0.8, key("programme", "hardware_refresh"), UP),
]
ELSEWHERE = {"algorithm", "ecosystem"}  # act on the road map, not on the bill


def moves(before, after, direction):
    a, b = (sum(x.values()) if isinstance(x, dict) else x for x in (before, after))
    return a < b if direction == UP else a > b


def name(case):
    return f"{case[0]}-{case[3]}"


@pytest.mark.parametrize("case", PRICING, ids=name)
def test_pricing(bill, case):
    field, under, first, second, figure, direction = case
    # Price changes show only over years.
    programme = MANY if field == "price_change_frac_per_year" else {}
    before, after = (figure(bill(pricing={**under, field: v}, programme=programme)) for v in (first, second))
    assert moves(before, after, direction), (before, after)


@pytest.mark.parametrize("case", OWNED, ids=name)
def test_own(bill, case):
    field, under, first, second, figure, direction = case
    before, after = (figure(bill(pricing={"tenure": "own", "own": {**under, field: v}})) for v in (first, second))
    assert moves(before, after, direction), (before, after)


@pytest.mark.parametrize("case", PROGRAMME, ids=name)
def test_programme(bill, case):
    field, under, first, second, figure, direction = case
    before, after = (figure(bill(programme={**under, field: v})) for v in (first, second))
    assert moves(before, after, direction), (before, after)


@pytest.mark.parametrize("case", TEAM, ids=name)
def test_team(bill, case):
    field, under, first, second, figure, direction = case
    before, after = (figure(bill(team={**under, field: v}, programme={"years": 6})) for v in (first, second))
    assert moves(before, after, direction), (before, after)


@pytest.mark.parametrize(
    ("block", "cases", "elsewhere"),
    [(Pricing, PRICING, {"own"}), (Own, OWNED, set()), (Programme, PROGRAMME, set()), (Team, TEAM, ELSEWHERE)],
)
def test_no_field_is_forgotten(block, cases, elsewhere):
    assert {c[0] for c in cases} == set(block.model_fields) - elsewhere


@pytest.mark.parametrize("tenure", ["on_demand", "reserved_1y", "reserved_3y", "spot", "own"])
def test_buckets_add_up_and_every_figure_is_a_line(bill, tenure):
    found = bill(pricing={"tenure": tenure, "operations": "managed"})
    d = found.document
    assert sum(d["cost_usd"].values()) == pytest.approx(d["cost_usd_total"]["p50"])
    assert sum(d["people_usd"].values()) == pytest.approx(d["cost_usd"]["people"])
    parts = {k: v for k, v in d["programme"].items() if k not in {"total", "runs_usd_per_year"}}
    assert sum(parts.values()) == pytest.approx(d["programme_usd"])
    assert d["cost_usd_total"]["p10"] < d["cost_usd_total"]["p50"] < d["cost_usd_total"]["p90"]
    lines = {x.id: x for x in found.lines}
    assert len(lines) == len(found.lines)
    assert {f"cost_usd.{b}" for b in d["cost_usd"]} <= set(lines)
    assert all(x.formula and x.label for x in found.lines)
    for b, value in d["cost_usd"].items():
        assert lines[f"cost_usd.{b}"].value == value
    assert lines["energy_kwh"].value == d["energy_kwh"]
    assert sum(d["energy_kwh_by_part"].values()) == pytest.approx(d["energy_kwh_by_convention"]["modelled"])


def test_an_owned_year_at_full_use_is_its_yearly_cost(bill):
    """A run that takes all used hours of a year pays exactly the year."""
    d = bill(pricing={"tenure": "own"}).document
    share = 500_000 / (8760 * 256 * 0.9)
    assert d["cost_usd_total"]["p50"] - 30_000 == pytest.approx(d["ownership"]["usd_per_year"] * share, rel=1e-9)
    assert d["price"]["usd_per_gpu_hour"] == pytest.approx(d["ownership"]["usd_per_year"] / (8760 * 256 * 0.9))


def test_break_even_is_where_the_two_costs_meet(bill):
    own = bill(pricing={"tenure": "own", "usd_per_gpu_hour": 3.0}).document["rent_or_buy"]
    edge = own["break_even_utilization_frac"]
    at_edge = bill(pricing={"tenure": "own", "usd_per_gpu_hour": 3.0, "own": {"utilization_frac": edge}})
    assert at_edge.document["price"]["usd_per_gpu_hour"] == pytest.approx(3.0, rel=1e-6)


def test_unused_gpus_of_a_node_are_paid(step):
    scenario = parse_scenario(SIX.replace("nodes: 32}", "nodes: 32, gpus_per_node_used: 4}"))
    half = bill_of(
        scenario=scenario,
        strategy=scenario.strategies["engineered"],
        answer=step,
        gpu_hours=1000.0,
        goodput=0.9,
        days_sigma=0.1,
    ).document
    assert half["cost_usd"]["compute"] == pytest.approx(2000 * half["price"]["usd_per_gpu_hour"])


def test_six_lines_give_a_full_bill():
    from planner.forecast import forecast_strategy

    text = "name: six\n" + "".join(SIX.splitlines(keepends=True)[:3])
    d = forecast_strategy(scenario=parse_scenario(text), name="stack", engine="fast").document
    for path in ("energy_kwh", "carbon_t", "cost_usd_per_useful_gpu_hour", "cost_usd_per_million_tokens"):
        assert d[path] > 0
    assert set(d["cost_usd"]) >= {"compute", "network", "storage", "power", "facility", "people"}
    assert d["cost_usd_total"]["p10"] < d["cost_usd_total"]["p50"] < d["cost_usd_total"]["p90"]
    assert d["rent_or_buy"]["owned_usd_per_gpu_hour"] > 0
    assert d["facility"]["racks"] > 0
    assert any("days old" in w for w in d["warnings"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{region: Atlantis}", "unknown region"),
        ("{provider: AWZ}", "unknown provider"),
        ("{currency: GBP}", "give usd_per_currency"),
        ("{usd_per_gpu_hour: 2, quote_per_gpu_hour: 2}", "not both"),
    ],
)
def test_wrong_settings_are_named(text, words):
    from planner.scenario import ScenarioError

    with pytest.raises(ScenarioError, match=words):
        parse_scenario(SIX + f"pricing: {text}\n")


def test_site_limits_warn():
    scenario = parse_scenario(SIX + "goals: {power_kw: 100, rack_kw: 8}\n")
    step = step_on(
        scenario=scenario, strategy=scenario.strategies["engineered"], gpus=256, global_batch=1024, engine="fast"
    )[1]
    found = bill_of(
        scenario=scenario,
        strategy=scenario.strategies["engineered"],
        answer=step,
        gpu_hours=1e5,
        goodput=0.9,
        days_sigma=0.1,
    )
    assert any("the site has 100 kW" in w for w in found.warnings)
    assert found.document["facility"]["racks"] == 64  # a 10.2 kW node takes two places of 8 kW
