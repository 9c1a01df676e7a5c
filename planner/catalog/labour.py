"""Wages, staffing ratios and shares of labour from `data/labour.csv`."""

from dataclasses import dataclass
from functools import lru_cache

from planner.catalog.tables import number, rows


@dataclass(frozen=True, slots=True)
class LabourFact:
    """One sourced figure about people."""

    id: str
    role: str
    region: str
    metric: str
    value: float
    unit: str
    low: float | None
    high: float | None
    source: str
    year: int
    provenance: str
    notes: str

    @property
    def cited(self) -> str:
        """Source, year and row in one line."""
        return f"{self.source} ({self.year}, {self.provenance}; {self.id})"


@lru_cache(maxsize=1)
def labour_facts() -> dict[str, LabourFact]:
    """All facts by row id."""
    return {
        r["id"]: LabourFact(
            id=r["id"],
            role=r["role_or_ratio"],
            region=r["region"],
            metric=r["metric"],
            value=number(r, "value"),
            unit=r["unit"],
            low=number(r, "low") if r["low"] else None,
            high=number(r, "high") if r["high"] else None,
            source=r["source"],
            year=int(r["year"]),
            provenance=r["provenance"],
            notes=r["notes"],
        )
        for r in rows("labour.csv")
    }


def labour(row_id: str) -> LabourFact:
    """A fact by row id.

    Raises:
        KeyError: no such row.
    """
    return labour_facts()[row_id]
