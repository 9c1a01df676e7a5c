"""Sensitivity: the cheap function is the forecast, the ranking is right where it can be worked out by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.catalog.reliability import fitted_rate
from planner.decide.sensitivity import _crossings, sensitivity, tornado
from planner.decide.uncertain import COMPUTE, response_of
from planner.forecast import ForecastError, forecast_strategy
from planner.scenario import Scenario, load_scenario, parse_scenario

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
DEMO = load_scenario(next(p for p in SCENARIOS if "70b-256" in p.stem))
Z80 = 1.2815515655446004


def function(scenario: Scenario, name: str = "engineered"):
    return response_of(scenario=scenario, forecast=forecast_strategy(scenario=scenario, name=name, engine="fast"))


def changed(block, **update):
    data = DEMO.model_dump(mode="json")
    data[block] |= update
    return Scenario.model_validate(data)


def z_of(response, key, factor):
    return {key: np.array([np.log(factor) / next(i.sigma for i in response.inputs if i.key == key)])}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_without_draws_it_is_the_forecast(path):
    scenario = load_scenario(path)
    name = next(n for n, s in scenario.strategies.items() if not isinstance(s, str))
    forecast = forecast_strategy(scenario=scenario, name=name, engine="fast")
    response, document = response_of(scenario=scenario, forecast=forecast), forecast.document
    assert response({}, "step")[0] == pytest.approx(document["step_s"]["p50"])
    assert response({}, "days")[0] == pytest.approx(document["days"]["p50"])
    assert response({}, "cost")[0] == pytest.approx(document["cost_usd_total"]["p50"])


@pytest.mark.parametrize(
    ("key", "factor", "block", "update", "metric"),
    [
        ("failure_rate", 4.0, "run", {"failures_per_1000_node_days": 4000 * fitted_rate("per_node").per_day}, "days"),
        ("job_failure_rate", 5.0, "run", {"job_failures_per_day": 5 * fitted_rate("per_job").per_day}, "days"),
        ("storage_rate", 0.1, "run", {"storage_bytes_per_s": 5e9}, "days"),
        ("tokens", 1.5, "training", {"tokens": 3.0e12}, "days"),
        ("price", 0.5, "pricing", {"usd_per_gpu_hour": 1.0}, "cost"),
    ],
)
def test_a_drawn_input_gives_what_a_forecast_with_it_gives(key, factor, block, update, metric):
    # The interval is fixed, as the function keeps the planned one; a quote is given, to halve it.
    # A spread that is next to none: the median of two spread rates is not the sum of their medians.
    base = changed("run", checkpoint_interval_s=1800.0, rate_sigma=1e-3)
    data = base.model_dump(mode="json")
    data["pricing"] |= {"usd_per_gpu_hour": 2.0, "quote_date": "2020-01-01"}
    base = Scenario.model_validate(data)
    data[block] |= update
    response = function(base)
    moved = forecast_strategy(scenario=Scenario.model_validate(data), name="engineered", engine="fast").document
    wanted = moved["days"]["p50"] if metric == "days" else moved["cost_usd_total"]["p50"]
    assert response(z_of(response, key, factor), metric)[0] == pytest.approx(wanted, rel=1e-4)


def test_owned_power_goes_with_the_electricity_price():
    data = DEMO.model_dump(mode="json")
    data["pricing"] |= {"tenure": "own"}
    base = Scenario.model_validate(data)
    response = function(base)
    data["pricing"] |= {"usd_per_kwh": 3 * 0.0826}
    moved = forecast_strategy(scenario=Scenario.model_validate(data), name="engineered", engine="fast").document
    price = next(i.value for i in response.inputs if i.key == "electricity_price")
    drawn = response(z_of(response, "electricity_price", 3 * 0.0826 / price), "cost")[0]
    assert drawn == pytest.approx(moved["cost_usd_total"]["p50"], rel=1e-6)


def test_named_parts_and_the_rest_make_up_the_band_of_the_step():
    found = sensitivity(scenario=DEMO, strategy="engineered", metric="step")
    document = forecast_strategy(scenario=DEMO, name="engineered", engine="fast").document["step_s"]
    width = np.log(document["p90"] / document["p10"])
    value = found["value"]
    assert np.log(value["p90"] / value["p10"]) == pytest.approx(width, rel=0.08)


def test_indices_of_a_product_are_shares_of_variance():
    scenario = load_scenario(next(p for p in SCENARIOS if "single-h200" in p.stem))
    response = function(scenario, "engineered")
    parts, sigma = response.parts, {i.key: i.sigma for i in response.inputs}
    share = sum(parts[k] for k in COMPUTE) / sum(parts.values())
    kernel, rest = (share * sigma["kernel_rate"]) ** 2, sigma["step_model"] ** 2
    rows = {r["input"]: r for r in sensitivity(scenario=scenario, strategy="engineered", metric="step")["sobol"]}
    assert rows["kernel_rate"]["first"] == pytest.approx(kernel / (kernel + rest), abs=0.03)
    assert rows["step_model"]["total"] == pytest.approx(rest / (kernel + rest), abs=0.03)


@pytest.mark.parametrize("metric", ["days", "cost", "step"])
def test_document(metric):
    found = sensitivity(scenario=DEMO, metric=metric)
    widths = [abs(r["high"] - r["low"]) for r in found["tornado"]]
    assert widths == sorted(widths, reverse=True)
    assert {r["input"] for r in found["sobol"]} == {r["input"] for r in found["tornado"]}
    assert sum(r["first"] for r in found["sobol"]) == pytest.approx(1.0, abs=0.1)
    following = found["measure_next"]
    assert following["width_after"] == min(o["width_after"] for o in following["others"])
    assert following["width_after"] < following["width_before"]
    assert following["how"]
    assert found == sensitivity(scenario=DEMO, metric=metric)
    assert found["verdict"]["choice"] in DEMO.strategies
    assert found["flips_at"]


def test_price_is_asked_for_first_and_then_known():
    assert sensitivity(scenario=DEMO, metric="cost")["measure_next"]["input"] == "price"
    from datetime import date

    quoted = changed("pricing", usd_per_gpu_hour=2.0, quote_date=date.today().isoformat())
    found = sensitivity(scenario=quoted, metric="cost")
    assert "price" not in {r["input"] for r in found["tornado"]}
    assert found["measure_next"]["input"] != "price"


def test_a_known_rate_does_not_move():
    found = sensitivity(scenario=changed("run", rate_sigma=0.0), metric="days")
    assert "failure_rate" not in {r["input"] for r in found["tornado"]}


def test_ends_of_the_tornado():
    response = function(DEMO)
    tokens = next(i for i in response.inputs if i.key == "tokens")
    (row,) = tornado(response=response, inputs=[tokens], metric="days")
    more = changed("training", tokens=tokens.at(Z80))
    expected = forecast_strategy(scenario=more, name="engineered", engine="fast").document["days"]["p50"]
    assert row["high"] == pytest.approx(expected, rel=1e-3)


def test_flip_where_two_plans_meet():
    base = function(DEMO)
    empty = dict.fromkeys(base.parts, 0.0)
    wire = replace(base, name="wire", parts=empty | {"compute_matmul": 1.0, "exposed_dp": 1.0})
    dense = replace(base, name="dense", parts=empty | {"compute_matmul": 2.1})
    grid = np.linspace(-3, 3, 241)
    flips = {f["input"].split()[0]: f for f in _crossings(best=wire, other=dense, metric="step", grid=grid)}
    fabric = next(i.value for i in base.inputs if i.key == "fabric_bandwidth")
    # 1 + 1/f = 2.1 at f = 1/1.1; 1/k + 1 = 2.1/k at k = 1.1.
    assert flips["fabric_bandwidth"]["value"] == pytest.approx(fabric / 1.1, rel=1e-3)
    assert "below which dense" in flips["fabric_bandwidth"]["input"]
    kernel = next(i.value for i in base.inputs if i.key == "kernel_rate")
    assert flips["kernel_rate"]["value"] == pytest.approx(kernel * 1.1, rel=1e-3)


def test_refusals():
    with pytest.raises(ForecastError, match="known: days, cost, step"):
        sensitivity(scenario=DEMO, metric="fun")
    with pytest.raises(ForecastError, match="nope"):
        sensitivity(scenario=DEMO, strategy="nope")


def test_one_strategy_has_no_verdict():
    text = "model: llama2-7b\ncluster: {node: hgx-h100, nodes: 2}\n"
    text += "training: {tokens: 1e10, sequence_length: 4096, global_batch_sequences: 64}\n"
    found = sensitivity(scenario=parse_scenario(text))
    assert found["verdict"] is None
    assert found["flips_at"] == []
