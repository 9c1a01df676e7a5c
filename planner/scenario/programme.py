"""How often such runs are made, and for how long."""

from pydantic import Field

from planner.scenario.base import Block


class Programme(Block):
    """How often such runs are made, and for how long."""

    runs_per_year: float = Field(default=1.0, gt=0)
    """Runs of this kind a year."""
    years: float = Field(default=1.0, gt=0)
    """Years the programme lasts."""
    experiment_factor: float = Field(default=1.0, ge=1)
    """All compute over that of final runs (SmolLM3: 1.58, row L17; frontier laboratories 4 to 10, rows L15-L16)."""
    refresh_years: float = Field(default=4.0, gt=0)
    """Years between hardware generations; each costs `team.refresh_frac` of the engineering again. Assumed."""
    discount_frac: float = Field(default=0.0, ge=0, le=1)
    """Yearly discount of later costs; 0 = plain sum."""
