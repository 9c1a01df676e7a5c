"""Site constants from runs: which share of each step is kernels, network and host decides what its error says of them.

Linear in logarithms: log(measured / forecast) = share_compute a + share_network b + share_host c. Ridge by priors on
a, b, c of 12, 50 and 40 % (one rate constant of ten A100 sources spreads by 5 %; fabrics and hosts by far more).
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.profile.site import Site
from planner.simulate.assemble import StepAnswer

PRIOR = np.array([0.12, 0.5, 0.4])
NOISE = 0.08
Vector = np.ndarray[Any, np.dtype[np.float64]]


def shares(answer: StepAnswer) -> Vector:
    """(compute, network, host) shares of a step; they add up to one."""
    parts = dict(answer.breakdown_s)
    network = sum(v for k, v in parts.items() if k.startswith("exposed_"))
    host = parts["launch_gap"]
    return np.array([answer.step_s - network - host, network, host]) / answer.step_s


@dataclass
class _Sums:
    """Normal equations of a set of runs."""

    matrix: Vector = field(default_factory=lambda: np.diag(1.0 / PRIOR**2))
    right: Vector = field(default_factory=lambda: np.zeros(3))
    count: int = 0

    def add(self, *, share: Vector, residual: float, sign: float = 1.0) -> None:
        self.matrix = self.matrix + sign * np.outer(share, share) / NOISE**2
        self.right = self.right + sign * share * residual / NOISE**2
        self.count += round(sign)


class SiteFits:
    """Constants of every (source, gpu) from its own runs, leaving one configuration out at a time."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], _Sums] = defaultdict(_Sums)
        self._own: dict[tuple[str, str, str], list[tuple[Vector, float]]] = defaultdict(list)

    def add(self, *, source: str, gpu: str, config: str, answer: StepAnswer, log_ratio: float) -> None:
        """One run; `log_ratio` is log(measured seconds / forecast seconds), winsorised at a factor of 1.6."""
        residual = max(-0.47, min(0.47, log_ratio))
        share = shares(answer)
        self._all[source, gpu].add(share=share, residual=residual)
        self._own[source, gpu, config].append((share, residual))

    def log_factor(self, *, source: str, gpu: str, config: str, answer: StepAnswer) -> tuple[float, int] | None:
        """(log of seconds over the default forecast, runs used); None without another configuration."""
        known = self._all.get((source, gpu))
        if known is None:
            return None
        sums = _Sums(known.matrix, known.right, known.count)
        for share, residual in self._own.get((source, gpu, config), []):
            sums.add(share=share, residual=residual, sign=-1.0)
        if sums.count < 1:
            return None
        return float(shares(answer) @ np.linalg.solve(sums.matrix, sums.right)), sums.count


def fit_site(*, name: str, runs: Sequence[tuple[StepAnswer, float]], configs: Sequence[str] = ()) -> Site:
    """Constants of one site from (forecast, log(measured seconds / forecast seconds)); `configs` names those runs.

    Raises:
        ValueError: no runs.
    """
    if not runs:
        raise ValueError("no usable runs to fit a site to")
    sums = _Sums()
    for answer, log_ratio in runs:
        sums.add(share=shares(answer), residual=log_ratio)
    constants = np.linalg.solve(sums.matrix, sums.right)
    sigma = np.sqrt(np.diag(np.linalg.inv(sums.matrix)))
    left = [r - float(shares(a) @ constants) for a, r in runs]
    scatter = math.sqrt(sum(x * x for x in left) / max(1, len(left) - 1)) if len(left) > 1 else NOISE
    a, b, c = (float(math.exp(x)) for x in constants)
    return Site(
        name=name,
        runs=len(runs),
        compute_factor=a,
        compute_sigma=float(sigma[0]),
        network_factor=b,
        network_sigma=float(sigma[1]),
        host_factor=c,
        host_sigma=float(sigma[2]),
        residual_sigma=scatter,
        configs=tuple(dict.fromkeys(configs)),
    )
