"""Power, electricity, carbon and cooling facts from `data/facility.csv`; exchange rates from `data/currencies.csv`."""

from dataclasses import dataclass
from functools import lru_cache

from planner.catalog.errors import CatalogError
from planner.catalog.tables import number, rows

EUROPE = frozenset(
    ("Belgium", "Iceland", "Italy", "Netherlands", "Norway", "Poland", "Spain", "Switzerland", "United Kingdom")
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One sourced figure.

    Attributes:
        region: a cloud region (`gcp:us-central1`), a country or a market; empty where the fact has none.
        country: country of a cloud region.
        low: lower end of the source's range, None where it prints none.
        carbon_free_frac: share of hourly energy that the operator calls carbon-free, None = not published.
        provenance: primary-read, secondary-read, computed, measured, hearsay or recalled.
    """

    id: str
    category: str
    item: str
    region: str
    country: str
    value: float | None
    unit: str
    low: float | None
    high: float | None
    carbon_free_frac: float | None
    source: str
    year: int
    provenance: str
    notes: str

    @property
    def known(self) -> float:
        """The value.

        Raises:
            ValueError: the row holds words only.
        """
        if self.value is None:
            raise ValueError(f"fact {self.id} ({self.item}) has no value")
        return self.value

    @property
    def cited(self) -> str:
        """Source, year and row in one line."""
        return f"{self.source} ({self.year}, {self.provenance}; {self.id})"


@lru_cache(maxsize=1)
def facts() -> dict[str, Fact]:
    """All facts by row id."""
    return {
        r["id"]: Fact(
            id=r["id"],
            category=r["category"],
            item=r["item"],
            region=r["region"],
            country=r["country"],
            value=number(r, "value") if r["value"] else None,
            unit=r["unit"],
            low=number(r, "low") if r["low"] else None,
            high=number(r, "high") if r["high"] else None,
            carbon_free_frac=number(r, "carbon_free_frac") if r["carbon_free_frac"] else None,
            source=r["source"],
            year=int(r["year"]),
            provenance=r["provenance"],
            notes=r["notes"],
        )
        for r in rows("facility.csv")
    }


def fact(row_id: str) -> Fact:
    """A fact by row id.

    Raises:
        KeyError: no such row.
    """
    return facts()[row_id]


@lru_cache(maxsize=1)
def _regions() -> dict[str, Fact]:
    out: dict[str, Fact] = {}
    for f in facts().values():
        if f.category == "carbon_intensity" and f.region:
            out[f.region.lower()] = f
    return out


@lru_cache(maxsize=256)
def carbon_intensity(region: str | None) -> Fact:
    """Grid intensity of a cloud region (`gcp:us-central1`, `aws:us-east-1`) or a country; null = United States average.

    Raises:
        CatalogError: an unknown region, with the nearest names.
    """
    found = _regions().get((region or "United States").strip().lower())
    if found is None:
        raise CatalogError(kind="region", name=str(region), known=[f.region for f in _regions().values()])
    return found


@lru_cache(maxsize=256)
def electricity_price(region: str | None) -> Fact:
    """Price of a kWh to industry in the region's country, in the row's own currency.

    United States rows are the newest year of the series. A European country without a row gets the average of the
    European Union, any other the world's business average.

    Raises:
        CatalogError: an unknown region.
    """
    country = carbon_intensity(region).country
    found = [f for f in facts().values() if f.category == "electricity" and f.country == country and f.value]
    # The dollar series of the United States is longer and newer than the euro table's single row.
    dollars = [f for f in found if f.unit == "USD/kWh"]
    if dollars or found:
        return max(dollars or found, key=lambda f: f.year)
    return fact("F064" if country in EUROPE else "F067")


@dataclass(frozen=True, slots=True)
class Rate:
    """Dollars per unit of a currency on a day."""

    currency: str
    usd_per_unit: float
    date: str | None
    source: str


@lru_cache(maxsize=32)
def exchange_rate(currency: str) -> Rate:
    """The newest packaged rate of a currency.

    Raises:
        CatalogError: no rate of it is packaged.
    """
    found = [r for r in rows("currencies.csv") if r["currency"] == currency.upper()]
    if not found:
        raise CatalogError(
            kind="currency", name=currency, known=sorted({r["currency"] for r in rows("currencies.csv")})
        )
    newest = max(found, key=lambda r: r["date"])
    return Rate(newest["currency"], number(newest, "usd_per_unit"), newest["date"] or None, newest["source"])
