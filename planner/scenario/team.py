"""Who does the work."""

from typing import Literal

from pydantic import Field

from planner.scenario.base import Block


class Team(Block):
    """Who does the work."""

    application: int = Field(default=3, ge=0)
    """Application engineers; half as fast as systems engineers at systems work (assumed)."""
    systems: int = Field(default=1, ge=0)
    """Systems engineers."""
    algorithm: int = Field(default=0, ge=0)
    """Researchers."""
    stage: Literal["early", "growing", "mature"] = "mature"
    """Maturity of the code base: sets the upkeep of engineered strategies where `upkeep_frac_per_year` is null."""
    ecosystem: str = "pretrained"
    """Ecosystem that the model lives in."""
    upkeep_frac_per_year: float | None = Field(default=None, ge=0)
    """Engineering weeks a year to keep a strategy working, over those to build it; null = 0.4 early, 0.3 growing, 0.2
    mature. Assumed."""
    refresh_frac: float = Field(default=0.5, ge=0)
    """Engineering weeks to carry a strategy to a new hardware generation, over those to build it. Assumed."""
