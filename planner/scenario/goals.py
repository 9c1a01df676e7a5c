"""What the answer is judged by."""

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
