"""How wide the P10-P90 band of a step forecast is, by stratum.

One standard deviation of log(predicted / measured), taken from packaged public rows grouped by what drives the error;
each stratum's figure is the scale whose +-1.28 sigma band covers 80 % of the rows of *other* sources (see `fit_band`).
"""

import math

from planner.simulate.assemble import StepAnswer
from planner.validate.setup import Setup

DENSE = 0.10
MOE = 0.20
LAUNCH = 0.10
ASSUMED = 0.06
MEMORY = 0.12


def band_sigma(*, answer: StepAnswer, setup: Setup, metric: str) -> float:
    """Standard deviation of the logarithm of a forecast."""
    if metric == "memory_gb":
        return MEMORY
    base = MOE if setup.model.moe_experts else DENSE
    heavy = {"vpp", "mbs", "recompute", "scaleout", "framework"} & set(setup.assumed)
    return math.sqrt(base**2 + (LAUNCH if answer.launch_frac > 0.25 else 0.0) ** 2 + len(heavy) * ASSUMED**2)
