"""Goals, team and programme: what the answer is judged by."""

from typing import Literal

from pydantic import Field

from planner.scenario.base import Block
from planner.scenario.units import Days


class Goals(Block):
    """What the plan must reach."""

    deadline_days: Days | None = Field(default=None, gt=0)
    """Days until the last token."""
    budget_usd: float | None = Field(default=None, gt=0)
    """Money for this run."""
    probability: float = Field(default=0.8, gt=0, lt=1)
    """With which probability the goals must hold."""
    power_kw: float | None = Field(default=None, gt=0)
    """Power the site has."""
    rack_kw: float | None = Field(default=None, gt=0)
    """Power of a rack."""
    max_interruptions: int | None = Field(default=None, ge=0)
    """Interruptions that are tolerable."""
    target_speedup: float | None = Field(default=None, gt=0)
    """Speed-up aimed at."""


class Team(Block):
    """Who does the work."""

    application: int = Field(default=3, ge=0)
    """Application engineers."""
    systems: int = Field(default=1, ge=0)
    """Systems engineers."""
    algorithm: int = Field(default=0, ge=0)
    """Researchers."""
    stage: Literal["early", "growing", "mature"] = "mature"
    """Maturity of the code base."""
    ecosystem: str = "pretrained"
    """Ecosystem that the model lives in."""


class Programme(Block):
    """How often such runs are made."""

    runs_per_year: float = Field(default=1.0, gt=0)
    """Runs of this kind a year."""
    years: float = Field(default=1.0, gt=0)
    """Years the programme lasts."""
    experiment_factor: float = Field(default=1.0, ge=1)
    """All compute over that of final runs (SmolLM3: 1.58)."""
