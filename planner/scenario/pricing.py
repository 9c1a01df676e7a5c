"""What machines, energy, storage and people cost, and by which convention energy and carbon are reported."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from planner.catalog.errors import CatalogError
from planner.catalog.facility import carbon_intensity, exchange_rate
from planner.catalog.prices import providers
from planner.scenario.base import Block

Tenure = Literal["on_demand", "reserved_1y", "reserved_3y", "spot", "own"]


class Own(Block):
    """What a bought cluster costs; acts with `tenure: own` and in the rent-or-buy comparison."""

    server_usd_per_gpu: float | None = Field(default=None, gt=0)
    """A GPU's share of its server; null = median of the catalogue's server prices of the newest two years."""
    purchase_date: str | None = None
    """ISO day of that price."""
    switch_ports: int = Field(default=64, ge=4)
    """Ports of a switch (64 x 400G: row PP080)."""
    switch_usd: float = Field(default=36_000.0, ge=0)
    """A switch (third-party 64 x 400G, Aug-2024, row PP080; NVIDIA's about 50,000, row PP081)."""
    cable_usd: float = Field(default=1280.0, ge=0)
    """One link with its optics (row PP084: 2,621,440 USD over 2,048 links)."""
    network_planes: int = Field(default=1, ge=1)
    """Separate networks, one a rail; 1 = rails share the spine."""
    storage_frac: float = Field(default=0.07, ge=0)
    """Storage and front-end network over servers. Assumed: all-in less bare less fabric (PP092, PP091, PP084) is 0.137
    of the server, split between this, racks and installation."""
    rack_usd: float = Field(default=10_000.0, ge=0)
    """A rack with its power distribution. Assumed, see storage_frac."""
    installation_frac: float = Field(default=0.04, ge=0)
    """Installation over servers. Assumed, see storage_frac."""
    spares_frac: float = Field(default=0.05, ge=0, le=1)
    """Spare servers bought (5 % on Delta, 5-20 % elsewhere)."""
    tax_frac: float = Field(default=0.0, ge=0)
    """Tax and duty on hardware."""
    interest_frac: float = Field(default=0.08, ge=0, le=1)
    """Yearly cost of capital."""
    life_years: float = Field(default=5.0, gt=0, le=20)
    """Years until the servers are sold (5: Epoch from 2023 on; 4 to 6 in filings)."""
    residual_frac: float | None = Field(default=None, ge=0, le=1)
    """Resale value over price at the end; null = resale curve of rows PP111-PP115 (hearsay), 0.125 after 5 years."""
    maintenance_frac: float = Field(default=0.05, ge=0)
    """Maintenance a year over the purchase (3-8 %, planning rule)."""
    software_usd_per_gpu_year: float = Field(default=0.0, ge=0)
    """Licences (list price of NVIDIA AI Enterprise 4,500: row PP098)."""
    utilization_frac: float = Field(default=0.9, gt=0, le=1)
    """Share of all hours in which the cluster is used."""
    site: Literal["colocation", "build"] = "colocation"
    """Rent the hall by the contracted kW, or build it."""
    usd_per_kw_month: float | None = Field(default=None, ge=0)
    """Colocation without electricity; null = 184.06 (CBRE, US primary markets, H2-2024)."""
    construction_usd_per_w: float = Field(default=11.5, ge=0)
    """Shell, power and cooling of a watt of IT (8-15: row F080, hearsay)."""
    building_years: float = Field(default=15.0, gt=0)
    """Life of the building (10-20: row F084)."""


class Pricing(Block):
    """Rent or own, energy, storage, carbon and labour prices."""

    tenure: Tenure = "on_demand"
    """How the GPUs are held."""
    provider: str | None = None
    """Provider whose price is taken; null = median over the dated rows of the catalogue."""
    region: str | None = None
    """Cloud region (`gcp:europe-west3`, `aws:us-east-1`) or country: electricity, carbon, rent where a row names it."""
    currency: str = "USD"
    """Currency of `quote_per_gpu_hour` and of the total printed beside dollars."""
    usd_per_currency: float | None = Field(default=None, gt=0)
    """Dollars per unit of it; null = newest packaged rate (EUR, CNY)."""
    currency_date: str | None = None
    """ISO day of your own rate."""
    usd_per_gpu_hour: float | None = Field(default=None, gt=0)
    """Your own quote in dollars; beats the catalogue."""
    quote_per_gpu_hour: float | None = Field(default=None, gt=0)
    """Your own quote in `currency`."""
    quote_date: str | None = None
    """ISO day of your own quote."""
    commitment_used_frac: float = Field(default=1.0, gt=0, le=1)
    """Share of the committed hours that do work; reserved tenures pay for the rest too."""
    price_change_frac_per_year: float = Field(default=0.0, gt=-1)
    """Change of the rent from year to year of the programme (hardware per performance: -0.28, row PP104)."""
    operations: Literal["included", "self_run", "managed"] | None = None
    """Who runs the machines; null = self_run when owned, else included in the rent."""
    managed_premium_frac: float = Field(default=0.05, ge=0)
    """What a managed service adds to the machines' cost (3-10 %, row L20)."""
    operations_fte_per_1000_gpus: float = Field(default=1.5, ge=0)
    """Operators, full-time, per 1000 GPUs when self-run (0.5-4: planning rule, row L19)."""
    usd_per_operator_year: float | None = Field(default=None, ge=0)
    """Loaded; null = HPC cluster engineer x 1.35 (rows L09, L13): 208,575."""
    usd_per_person_week: float = Field(default=5000.0, ge=0)
    """Loaded engineering week. Assumed, between an HPC cluster engineer (154,500 x 1.35 / 46 weeks = 4,534; row L09)
    and a senior AI infrastructure engineer (217,500: 6,383; row L07)."""
    storage_usd_per_gb_month: float | None = Field(default=None, ge=0)
    """Rented storage; null = parallel file system, row F203. Owned storage is in own.storage_frac."""
    checkpoints_kept: float = Field(default=3.0, ge=0)
    """Full checkpoints on that storage. Assumed."""
    dataset_bytes_per_token: float = Field(default=4.0, ge=0)
    """Bytes stored for a token of the dataset (32-bit ids)."""
    usd_per_kwh: float | None = Field(default=None, ge=0)
    """Electricity; null = industry in the region's country (US 2025: 0.0826). Rent includes it."""
    pue: float | None = Field(default=None, ge=1)
    """Facility energy over IT energy; null = 1.25 air-cooled, 1.1 liquid-cooled (rows F036, F038)."""
    cooling: Literal["air", "liquid"] | None = None
    """Null = liquid for nodes above 50 kW, else air."""
    watts_per_gpu: float | None = Field(default=None, gt=0)
    """Your own meter: mean IT watts per GPU of the node in training; beats the load model."""
    energy_convention: Literal["modelled", "gpu_tdp", "gpu_tdp_pue", "server_factor"] = "modelled"
    """How energy is reported: modelled draw x PUE; TDP x hours (BLOOM, Llama); that x PUE; Epoch's server factor."""
    grid_g_per_kwh: float | None = Field(default=None, ge=0)
    """Grams of CO2 equivalent per kWh; null = region, else United States average (369)."""
    carbon_basis: Literal["location", "market"] = "location"
    """Grid average, or less the operator's carbon-free share."""
    carbon_free_frac: float | None = Field(default=None, ge=0, le=1)
    """Share of energy bought carbon-free; null = the region's published score, else 0. Acts on the market basis."""
    embodied_g_per_gpu_hour: float = Field(default=0.0, ge=0)
    """Carbon of making the servers, per GPU-hour (BLOOM: 10.3, row F202); 0 = operation only."""
    own: Own = Own()
    """A bought cluster."""

    @field_validator("region")
    @classmethod
    def _known_region(cls, value: str | None) -> str | None:
        if value is not None:
            carbon_intensity(value)
        return value

    @field_validator("provider")
    @classmethod
    def _known_provider(cls, value: str | None) -> str | None:
        if value is not None and value.lower() not in {p.lower() for p in providers()}:
            raise CatalogError(kind="provider", name=value, known=providers())
        return value

    @model_validator(mode="after")
    def _one_quote_and_a_rate(self) -> Self:
        if self.usd_per_gpu_hour is not None and self.quote_per_gpu_hour is not None:
            raise ValueError("give usd_per_gpu_hour or quote_per_gpu_hour, not both")
        if self.usd_per_currency is None:
            try:
                exchange_rate(self.currency)
            except CatalogError as problem:
                raise ValueError(f"{problem}; or give usd_per_currency") from problem
        return self
