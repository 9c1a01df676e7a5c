"""The scenario: everything that a forecast is made from."""

import hashlib
import json
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from planner import catalog
from planner.catalog.types import ModelSpec
from planner.scenario.base import Block
from planner.scenario.cluster import Cluster
from planner.scenario.goals import Goals
from planner.scenario.model import InlineModel
from planner.scenario.pricing import Pricing
from planner.scenario.programme import Programme
from planner.scenario.run import Run
from planner.scenario.strategy import Strategy
from planner.scenario.team import Team
from planner.scenario.training import Training

STACK: dict[str, "Strategy | Literal['auto']"] = {"stack": Strategy(preset="stack")}


def model_spec(name: str) -> ModelSpec:
    """The shape behind a preset's name or the path of a Hugging Face `config.json`.

    Raises:
        CatalogError: no such preset.
        ValueError: the file does not describe a model that is known.
        OSError: the file cannot be read.
    """
    if not name.endswith(".json"):
        return catalog.model(name)
    from planner.catalog.huggingface import model_from_file

    return model_from_file(name)


class Scenario(Block):
    """A model, a cluster, a workload, and the strategies to compare."""

    name: str = "unnamed"
    """Title."""
    model: str | InlineModel
    """Preset, path of a Hugging Face config.json, or inline shape."""
    cluster: Cluster
    """Machines."""
    training: Training
    """Workload."""
    strategies: dict[str, Strategy | Literal["auto"]] = Field(default_factory=lambda: dict(STACK), min_length=1)
    """Strategies by name; by default the preset stack alone."""
    goals: Goals = Goals()
    """Goals."""
    run: Run = Run()
    """Reliability."""
    pricing: Pricing = Pricing()
    """Prices."""
    team: Team = Team()
    """Team."""
    programme: Programme = Programme()
    """Programme."""

    @cached_property
    def model_spec(self) -> ModelSpec:
        """The model's shape."""
        if isinstance(self.model, InlineModel):
            return self.model.spec()
        return model_spec(self.model)

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        per_node = self.cluster.gpus_per_node_used or catalog.node(self.cluster.node).gpus_per_node
        return (self.cluster.nodes + sum(part.nodes for part in self.cluster.also)) * per_node

    def hash(self) -> str:
        """Twelve hex digits over all settings; a file counts by its content, not by its place."""
        settings = self.model_dump(mode="json")
        if isinstance(self.model, str) and self.model.endswith(".json"):
            settings["model"] = asdict(self.model_spec)
        measured = self.cluster.fabric.measured if self.cluster.fabric is not None else None
        if measured is not None and Path(measured).is_file():
            settings["cluster"]["fabric"]["measured"] = hashlib.sha256(Path(measured).read_bytes()).hexdigest()
        profile = self.cluster.profile
        if profile is not None and Path(profile).is_file():
            settings["cluster"]["profile"] = hashlib.sha256(Path(profile).read_bytes()).hexdigest()
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def __hash__(self) -> int:
        """So that forecasts can be memoised by scenario."""
        return hash(self.hash())
