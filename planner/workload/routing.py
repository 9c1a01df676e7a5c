"""How unevenly tokens fall on expert-parallel ranks when nothing but chance does it."""

import math
from statistics import NormalDist


def busiest_over_mean(*, choices: float, ranks: int) -> float:
    """Expected load of the busiest of `ranks` expert ranks over the mean load, dropless, for a balanced random router.

    `choices` is tokens x top-k of one rank; all ranks' choices fall on the ranks alike, so a load is binomial with mean
    `choices` and variance `choices` (1 - 1/ranks), and the largest of them is read off the normal order statistic
    (Blom 1958). A trained router is rarely better than this and often worse: skew is not assumed.
    """
    if ranks <= 1 or choices <= 0:
        return 1.0
    top = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
    return 1.0 + top * math.sqrt((1.0 - 1.0 / ranks) / choices)
