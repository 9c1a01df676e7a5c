"""What a GPU-hour and a person-week cost."""

from typing import Literal

from pydantic import Field

from planner.scenario.base import Block


class Pricing(Block):
    """Rent, energy and labour prices."""

    tenure: Literal["on_demand", "reserved_1y", "reserved_3y", "spot"] = "on_demand"
    """How the GPUs are rented."""
    provider: str | None = None
    """Provider whose price is taken; null = median over the dated rows of the catalogue."""
    usd_per_gpu_hour: float | None = Field(default=None, gt=0)
    """Your own quote; beats the catalogue."""
    quote_date: str | None = None
    """ISO day of your own quote."""
    usd_per_person_week: float = Field(default=5000.0, ge=0)
    """Loaded labour: 133,080 USD median x 1.35 x 1.4 / 48 weeks (BLS 2024 via the labour table)."""
    usd_per_kwh: float = Field(default=0.083, ge=0)
    """Electricity, US industrial 2025; informational under rent, which includes it."""
    pue: float = Field(default=1.25, ge=1)
    """Facility energy over IT energy."""
    grid_g_per_kwh: float = Field(default=380.0, ge=0)
    """Grams of CO2 equivalent per kWh, location based."""
