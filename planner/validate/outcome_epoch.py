"""Cost estimates of Epoch's kind, by their method: a check of the method, reported apart from measured outcomes."""

import csv
import itertools
import re
from datetime import date, timedelta
from functools import lru_cache
from importlib.resources import files

from planner import catalog
from planner.catalog.facility import facts
from planner.money.epoch import EpochCost, epoch_cost
from planner.validate.outcome_models import Band, Row, need
from planner.validate.setup import SkipRowError

# Their table is in dollars of this month.
DOLLARS_OF = "2024-12"
DELIVERY = timedelta(days=90)
BEFORE_PUBLICATION = timedelta(days=60)
# Nothing in a row says who ran it: 1.1 at hyperscalers, 1.25 elsewhere; energy is 2-20 % of the total.
PUE = 1.175


@lru_cache(maxsize=1)
def parts() -> dict[tuple[str, str], dict[str, str]]:
    """Server prices, releases and price index of their method, by (kind, key)."""
    text = files("planner.validate").joinpath("data/epoch_parts.csv").read_text(encoding="utf-8")
    return {(r["kind"], r["key"]): r for r in csv.DictReader(text.splitlines())}


def price_index(month: str) -> float:
    """Producer price index of a month, between the known months linearly."""
    known = sorted((_months(k), float(r["value"])) for (kind, k), r in parts().items() if kind == "index")
    wanted = _months(month)
    if wanted <= known[0][0]:
        return known[0][1]
    for (a, low), (b, high) in itertools.pairwise(known):
        if wanted <= b:
            return low + (high - low) * (wanted - a) / (b - a)
    return known[-1][1]


def _months(month: str) -> int:
    return int(month[:4]) * 12 + int(month[5:7])


def cost(row: Row) -> tuple[EpochCost, float]:
    """Their costs of a row's run in dollars of its day, and the factor to dollars of their table.

    Raises:
        SkipRowError: a part or a date that the method needs is missing.
    """
    gpu = row.get("cfg_gpu") or ""
    found = re.search(r"published=(\d{4}-\d{2}-\d{2})", row.get("config") or "")
    release, server = parts().get(("release", gpu)), parts().get(("server", gpu[:4]))
    if release is None or server is None:
        raise SkipRowError("gpu", f"{gpu or 'no part'}: not among the parts of their method")
    if found is None:
        raise SkipRowError("setting_missing", "no day of publication")
    chips, run_days, hours = need(row, "gpus", "days", "gpu_hours")
    published = date.fromisoformat(found[1])
    electricity = {f.year: f.value for f in facts().values() if f.item == "industrial average" and f.value}
    year = min(max(published.year, min(electricity)), max(electricity))
    answer = epoch_cost(
        server_usd_per_chip=float(server["value"]),
        chips=round(chips),
        chip_hours=hours,
        available=max(date.fromisoformat(server["date"]), date.fromisoformat(release["date"]) + DELIVERY),
        start=published - timedelta(days=run_days) - BEFORE_PUBLICATION,
        gpu=gpu,
        tdp_w=catalog.gpu(gpu).tdp_w,
        pue=PUE,
        usd_per_kwh=electricity[year],
    )
    return answer, price_index(DOLLARS_OF) / price_index(f"{published:%Y-%m}")


def acquisition_usd(row: Row) -> Band:
    """Cluster price."""
    found, dollars = cost(row)
    return Band.lognormal(found.acquisition_usd * dollars, 0.05)


def amortised_usd(row: Row) -> Band:
    """Capital charged to the run with energy."""
    found, dollars = cost(row)
    return Band.lognormal(found.amortised_usd * dollars, 0.1)
