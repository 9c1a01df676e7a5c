"""How often such runs are made."""

from pydantic import Field

from planner.scenario.base import Block


class Programme(Block):
    """How often such runs are made."""

    runs_per_year: float = Field(default=1.0, gt=0)
    """Runs of this kind a year."""
    years: float = Field(default=1.0, gt=0)
    """Years the programme lasts."""
    experiment_factor: float = Field(default=1.0, ge=1)
    """All compute over that of final runs (SmolLM3: 1.58)."""
