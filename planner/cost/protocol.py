"""Protocol steps: what measured collectives cost over the smooth curve, by the bytes of a rank's chunk.

Libraries change protocol and channel count at fixed chunk sizes, so tables of different GPUs and operations bend at the
same places. `data/collective_steps.csv` holds the logarithm of measured over curve on octaves of the chunk, by link,
class (ring, exchange, in-switch) and ranks, fitted by `planner.validate.protocols.fit_steps`.
"""

import csv
import math
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

LOW, HIGH = 6, 30  # octaves of a chunk with a knot
CLASSES = {
    "all_reduce": "ring",
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "all_to_all": "exchange",
    "all_reduce_in_switch": "switch",
}
SWITCH_CHUNKS = 8  # in-switch reduction cuts a message alike for every number of ranks

Steps = Mapping[tuple[str, str, int], tuple[float, ...]]
NO_STEPS: Steps = {}


def steps_of(text: str) -> dict[tuple[str, str, int], tuple[float, ...]]:
    """Steps from the text of a table, by link, class and ranks: one figure an octave from LOW to HIGH."""
    return {
        (r["link"], r["class"], int(r["ranks"])): tuple(float(r[f"f{k}"]) for k in range(LOW, HIGH + 1))
        for r in csv.DictReader(text.splitlines())
    }


@lru_cache(maxsize=1)
def shipped_steps() -> Steps:
    """The packaged steps."""
    return steps_of(files("planner.cost").joinpath("data/collective_steps.csv").read_text("utf-8"))


def chunks(*, kind: str, size: int) -> int:
    """Into how many chunks a message is cut."""
    return SWITCH_CHUNKS if CLASSES.get(kind) == "switch" else size


def logs_of(*, steps: Steps, link: str, kind: str, weights: list[tuple[int, float]]) -> tuple[float, ...] | None:
    """Log factors on the octaves for a mix of measured rank counts; None where nothing is known."""
    found = [(steps.get((link, CLASSES.get(kind, ""), n)), w) for n, w in weights]
    known = [(f, w) for f, w in found if f is not None]
    if len(known) != len(found):
        return None
    return tuple(sum(w * f[k] for f, w in known) for k in range(HIGH - LOW + 1))


def on_octaves(*, knots: tuple[float, ...], chunk: float, smooth_s: float, last_log: float, first_log: float) -> float:
    """Seconds between knots that never fall: linear in logarithms; beyond the ends the smooth curve, scaled."""
    x = math.log2(chunk)
    if x <= LOW:
        return min(knots[0], smooth_s * math.exp(first_log))
    if x >= HIGH:
        return max(knots[-1], smooth_s * math.exp(last_log))
    i = int(x) - LOW
    share = x - int(x)
    return math.exp((1 - share) * math.log(knots[i]) + share * math.log(knots[i + 1]))
