from pathlib import Path
from xml.etree import ElementTree

import pytest

from planner.decide.sweep import Point, default_sizes, knee_of, sizes, sweep, sweep_document
from planner.forecast import ForecastError
from planner.report.sweep import sweep_svg
from planner.scenario import load_scenario

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_every_shipped_scenario_scales(path: Path) -> None:
    scenario = load_scenario(path)
    name = next(n for n, s in scenario.strategies.items() if not isinstance(s, str))
    document = sweep_document(scenario=scenario, name=name, gpus=default_sizes(scenario))
    for key in ("points", "weak"):
        points = [p for p in document[key] if p["fits"]]
        if points:
            assert points[0]["scaling_efficiency"] == pytest.approx(1.0)
            assert all(0 < p["scaling_efficiency"] < 1.6 for p in points)
        gpus = [p["gpus"] for p in document[key]]
        assert gpus == sorted(gpus)


def test_strong_scaling_of_a_large_model_ends_in_a_knee_with_a_cause() -> None:
    scenario = load_scenario(next(p for p in SCENARIOS if "175b" in p.stem))
    document = sweep_document(scenario=scenario, name=list(scenario.strategies)[-1], gpus=[64 * 2**i for i in range(9)])
    knee = document["knee"]
    assert knee is not None
    assert knee["cause"] in {"bubble", "exposed DP", "batch limit", "exposed PP"}
    weak = [p["scaling_efficiency"] for p in document["weak"] if p["fits"]]
    strong = [p["scaling_efficiency"] for p in document["points"] if p["fits"]]
    assert min(weak) > min(strong)


def test_sizes_are_doublings_in_whole_nodes() -> None:
    assert sizes(first=2, last=64, per_node=8) == [2, 4, 8, 16, 32, 64]
    assert sizes(first=3, last=50, per_node=8) == [3, 6, 24, 48]


def test_the_knee_is_the_last_size_above_the_threshold() -> None:
    def point(gpus: int, efficiency: float) -> Point:
        return Point(gpus, 1.0, 1.0, efficiency, "bubble", fits=True)

    assert knee_of([point(8, 1.0), point(16, 0.95)]) is None
    assert knee_of([point(8, 1.0), point(16, 0.9), point(32, 0.6)]) == {
        "gpus": 16,
        "efficiency": 0.8,
        "cause": "bubble",
    }


def test_a_strategy_that_divides_no_size_says_so() -> None:
    scenario = load_scenario(next(p for p in SCENARIOS if "175b" in p.stem))
    with pytest.raises(ForecastError, match="none of 3"):
        sweep(scenario=scenario, strategy=list(scenario.strategies.values())[-1], gpus=[3])  # type: ignore[arg-type]
    with pytest.raises(ForecastError, match="known: "):
        sweep_document(scenario=scenario, name="nobody", gpus=[64])


def test_the_picture_is_well_formed_and_names_every_point() -> None:
    scenario = load_scenario(next(p for p in SCENARIOS if "gpt2" in p.stem))
    document = sweep_document(scenario=scenario, name=next(iter(scenario.strategies)), gpus=[1, 2, 4, 8])
    root = ElementTree.fromstring(sweep_svg(document=document, title="a < b & c"))
    circles = root.findall(".//{http://www.w3.org/2000/svg}circle")
    assert len(circles) == sum(p["fits"] for key in ("points", "weak") for p in document[key])
