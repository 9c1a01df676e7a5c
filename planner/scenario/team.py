"""Who does the work."""

from typing import Literal

from pydantic import Field

from planner.scenario.base import Block


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
