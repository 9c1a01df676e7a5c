"""The shipped what-ifs load, and the schema describes them."""

from pathlib import Path

import pytest

from planner.scenario import Scenario, load_scenario

FILES = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_shipped_scenarios(path):
    scenario = load_scenario(path)
    assert {"stack", "engineered"} <= set(scenario.strategies)
    assert path.read_text("utf-8").startswith("# ")
    assert scenario.strategies["engineered"].engineering_weeks > 0
    assert Scenario.model_validate(scenario.model_dump()).hash() == scenario.hash()


def test_there_are_eight():
    assert len(FILES) >= 8


def test_schema_describes_every_key():
    schema = Scenario.model_json_schema()
    assert {"model", "cluster", "training"} == set(schema["required"])
    for block in [schema, *schema["$defs"].values()]:
        assert all("description" in p for p in block.get("properties", {}).values())
        assert block.get("additionalProperties") is False or "properties" not in block
