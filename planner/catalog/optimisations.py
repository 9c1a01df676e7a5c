"""Optimisations from `data/optimisations.csv`: what each changes, needs, excludes, costs and risks."""

from dataclasses import dataclass
from functools import lru_cache

from planner.catalog.errors import CatalogError
from planner.catalog.tables import rows

CLASSES = ("kernel", "glue", "parallelism", "precision", "memory", "algorithm")
AXES = ("operators", "launches", "bytes", "wire", "streams", "schedule", "stalls", "memory", "tokens", "steps")
MODELLED_BY = ("layout", "software", "model", "machine", "share", "run", "data", "pilot")


@dataclass(frozen=True, slots=True)
class Optimisation:
    """One change of a training stack.

    Attributes:
        cls: kernel, glue, parallelism, precision, memory or algorithm.
        side: operator (one kernel gets faster), glue (the work between kernels) or other.
        cut: A incremental, B structural.
        modelled_by: layout, software, model or machine (simulated from changed shapes), share (its rule applied to a
            forecast share), run (goodput), data (depends on the data set), pilot (only a pilot run tells).
        mechanism: (axis, sign): what it does to operators, launches, bytes, wire, streams, schedule, stalls, memory,
            tokens or steps to target; `-` less, `+` more, `=` the same.
        requires: conditions (`axis:value`, `degree>n`) that must hold before it.
        conflicts: keys that cannot be combined with it.
        factor_best: time after over time before, most favourable published case; `factor_typical` and `factor_worst`
            alike.
        p_success: chance of more than 1 % net where its conditions hold.
        risk_scope: local (one module) or global (whole run).
        basis: measured, theory or judged.
    """

    key: str
    name: str
    cls: str
    side: str
    cut: str
    modelled_by: str
    mechanism: tuple[tuple[str, str], ...]
    requires: tuple[str, ...]
    conflicts: frozenset[str]
    factor_best: float
    factor_typical: float
    factor_worst: float
    effort_weeks: tuple[float, float]
    upkeep_weeks_per_year: tuple[float, float]
    p_success: float
    risk: str
    risk_scope: str
    lock_in: str
    reversibility: str
    quality_may_change: bool
    basis: str
    source: str
    date: str
    provenance: str

    @property
    def effort_mid_weeks(self) -> float:
        """Geometric middle of the effort range."""
        return float((self.effort_weeks[0] * self.effort_weeks[1]) ** 0.5)

    @property
    def upkeep_mid_weeks_per_year(self) -> float:
        """Middle of the upkeep range."""
        return sum(self.upkeep_weeks_per_year) / 2


def _split(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split("|") if part)


@lru_cache(maxsize=1)
def optimisations() -> dict[str, Optimisation]:
    """All optimisations by key, in the order of the table."""
    out = {}
    for r in rows("optimisations.csv"):
        mechanism = tuple((part.split(":")[0], part.split(":")[1]) for part in _split(r["mechanism"]))
        out[r["key"]] = Optimisation(
            key=r["key"],
            name=r["name"],
            cls=r["class"],
            side=r["side"],
            cut=r["cut"],
            modelled_by=r["modelled_by"],
            mechanism=mechanism,
            requires=_split(r["requires"]),
            conflicts=frozenset(_split(r["conflicts"])),
            factor_best=float(r["factor_best"]),
            factor_typical=float(r["factor_typical"]),
            factor_worst=float(r["factor_worst"]),
            effort_weeks=(float(r["effort_weeks_low"]), float(r["effort_weeks_high"])),
            upkeep_weeks_per_year=(float(r["upkeep_weeks_per_year_low"]), float(r["upkeep_weeks_per_year_high"])),
            p_success=float(r["p_success"]),
            risk=r["risk"],
            risk_scope=r["risk_scope"],
            lock_in=r["lock_in"],
            reversibility=r["reversibility"],
            quality_may_change=r["quality_may_change"] == "yes",
            basis=r["basis"],
            source=r["source"],
            date=r["date"],
            provenance=r["provenance"],
        )
    return out


def optimisation(key: str) -> Optimisation:
    """One optimisation.

    Raises:
        CatalogError: an unknown key, with the nearest ones.
    """
    found = optimisations().get(key)
    if found is None:
        raise CatalogError(kind="optimisation", name=key, known=optimisations())
    return found


def conflict(a: str, b: str) -> bool:
    """Whether two optimisations exclude each other; either side may state it."""
    return b in optimisation(a).conflicts or a in optimisation(b).conflicts
