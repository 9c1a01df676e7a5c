"""How often nodes and jobs fail: rates fitted from published clusters, shares by cause, repair times, spot markets.

Every figure comes from a row of `data/reliability*.csv`. No rate is taken from the Llama 3 report, so its published
interruption count stays a test of the fit; only the *shares* by cause are (Table 5, the one public count by cause).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from planner.catalog.tables import number, rows

FAILURE_CAUSES = ("gpu", "memory", "network", "host", "software")
CAUSES = (*FAILURE_CAUSES, "planned")
# Spread of a rate known from fewer than three clusters: what the two published per-job rates span as P10-P90.
JOB_SIGMA = 1.71


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate of a cluster that nobody has seen yet: log-normal between clusters.

    Attributes:
        per_day: median over clusters, events a day (of one node, or of the job).
        sigma: standard deviation of the logarithm between clusters, widened by what few rows leave unknown.
        label: provenance label of contract 4.
        sources: the rows it was fitted on.
    """

    per_day: float
    sigma: float
    label: str
    sources: tuple[str, ...]

    def quantile_per_day(self, z: float) -> float:
        """The rate `z` standard deviations above the median."""
        return self.per_day * math.exp(z * self.sigma)


@dataclass(frozen=True, slots=True)
class RateRow:
    """One published rate; `part` is per_node (events a node-day) or per_job (events a day)."""

    id: str
    part: str
    per_day: float
    nodes: float
    weight: float
    source: str
    provenance: str


@dataclass(frozen=True, slots=True)
class SpotMarket:
    """Gang statistics of published spot traces, geometric means over markets."""

    availability_frac: float
    gang_spell_s: float
    losses_per_event: float
    source: str


@lru_cache(maxsize=1)
def rate_rows() -> tuple[RateRow, ...]:
    """The rows behind the fits."""
    out = []
    for r in rows("reliability_rates.csv"):
        events, days = number(r, "events"), number(r, "days")
        if r["unit"] == "count":
            per_day = events / days / (number(r, "nodes") if r["part"] == "per_node" else 1.0)
        else:
            per_day = number(r, "value") / (1000.0 if r["part"] == "per_node" else 1.0)
        out.append(
            RateRow(r["id"], r["part"], per_day, number(r, "nodes"), number(r, "weight"), r["source"], r["provenance"])
        )
    return tuple(out)


@lru_cache(maxsize=64)
def fitted_rate(part: str, without_sources: tuple[str, ...] = ()) -> Rate:
    """Weighted log-normal over published clusters: rate(job) = per_job + nodes x per_node.

    The median is the weighted mean of logarithms. The spread is that of *another* cluster: the weighted standard
    deviation between clusters times sqrt(1 + 1/n) (prediction interval of a normal mean, Student's t for n - 1
    degrees of freedom at P90 expressed as an equivalent normal sigma). With fewer than three clusters the spread is
    JOB_SIGMA.

    Args:
        part: per_node or per_job.
        without_sources: sources left out, to judge a row of theirs.

    Raises:
        ValueError: no row is left.
    """
    kept = [r for r in rate_rows() if r.part == part and r.source not in without_sources]
    if not kept:
        raise ValueError(f"no {part} rate is left without {', '.join(without_sources)}")
    weight = sum(r.weight for r in kept)
    mean = sum(r.weight * math.log(r.per_day) for r in kept) / weight
    sigma = JOB_SIGMA
    if len(kept) >= 3:
        square = sum(r.weight * (math.log(r.per_day) - mean) ** 2 for r in kept) / weight
        n = len(kept)
        between = math.sqrt(square * n / (n - 1))
        sigma = between * math.sqrt(1 + 1 / n) * _t_over_z(n - 1)
    return Rate(math.exp(mean), sigma, "published", tuple(r.source for r in kept))


def _t_over_z(freedom: int) -> float:
    """Student's t over the normal at P90 (tables; 1.2816 is the normal)."""
    t90 = {1: 3.078, 2: 1.886, 3: 1.638, 4: 1.533, 5: 1.476, 6: 1.440, 7: 1.415, 8: 1.397, 9: 1.383}
    return t90.get(freedom, 1.37) / 1.2816


@lru_cache(maxsize=1)
def cause_shares() -> dict[str, float]:
    """Share of failures by cause, adding up to one (Llama 3 Table 5 by counts)."""
    counts = {r["cause"]: number(r, "events") for r in rows("reliability_causes.csv")}
    total = sum(counts.values())
    return {cause: counts[cause] / total for cause in FAILURE_CAUSES}


@lru_cache(maxsize=1)
def spot_market() -> SpotMarket:
    """The gang statistics a spot scenario starts from: losses cluster, so the gang's own spell counts."""
    table = rows("reliability_spot.csv")
    spell = math.exp(sum(math.log(number(r, "gang_spell_h")) for r in table) / len(table))
    available = sum(number(r, "availability_frac") for r in table) / len(table)
    clustering = [number(r, "instances") * number(r, "gang_spell_h") / number(r, "instance_mtbp_h") for r in table]
    return SpotMarket(available, spell * 3600, sum(clustering) / len(clustering), table[0]["source"])
