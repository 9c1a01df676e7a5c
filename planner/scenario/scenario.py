"""The scenario: everything that a forecast is made from."""

import hashlib
import json
from functools import cached_property
from typing import Literal

from pydantic import Field

from planner import catalog
from planner.catalog.types import ModelSpec
from planner.scenario.base import Block
from planner.scenario.cluster import Cluster
from planner.scenario.model import InlineModel
from planner.scenario.plans import Goals, Programme, Team
from planner.scenario.pricing import Pricing
from planner.scenario.run import Run
from planner.scenario.strategy import Strategy
from planner.scenario.training import Training

STACK: dict[str, "Strategy | Literal['auto']"] = {"stack": Strategy(preset="stack")}


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
        if self.model.endswith(".json"):
            from planner.catalog.huggingface import model_from_file

            return model_from_file(self.model)
        return catalog.model(self.model)

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        per_node = self.cluster.gpus_per_node_used or catalog.node(self.cluster.node).gpus_per_node
        return self.cluster.nodes * per_node

    def hash(self) -> str:
        """Twelve hex digits over all settings."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def __hash__(self) -> int:
        """So that forecasts can be memoised by scenario."""
        return hash(self.hash())
