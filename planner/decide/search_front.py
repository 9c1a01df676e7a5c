"""The front of a search: the fastest plan for every amount of memory left, kept while millions pass by.

Inside one cluster the other aims follow from these two. Days and money grow with the step (the same GPUs, prices and
failures), the risk of missing a goal grows with it, and the risk of running out of memory falls with the memory left;
so a plan that nobody beats in step time and memory is one that nobody beats in time, money, headroom and risk.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from planner.decide.score import Scored

GRAIN_BYTES = 1e9

Plan = TypeVar("Plan")


@dataclass(frozen=True, slots=True)
class OnFront(Generic[Plan]):
    """A plan with its step and bytes."""

    step_s: float
    memory_bytes: float
    plan: Plan


class Front(Generic[Plan]):
    """Fastest plan by memory, in steps of 1 GB."""

    def __init__(self, *, capacity_bytes: float) -> None:
        self._capacity_bytes = capacity_bytes
        bins = int(capacity_bytes / GRAIN_BYTES) + 1
        self._step_s = np.full(bins, np.inf)
        self._found: list[OnFront[Plan] | None] = [None] * bins

    def add(self, scored: Scored, plan_of: Callable[[Any], Plan]) -> None:
        """Take over what is faster than everything that needs as little; `plan_of` makes a plan of an index."""
        fits = scored.memory_bytes <= self._capacity_bytes
        step = np.where(fits, scored.step_s, np.inf).ravel()
        bins = np.minimum(scored.memory_bytes / GRAIN_BYTES, len(self._step_s) - 1).astype(np.intp).ravel()
        better = np.flatnonzero(step < self._step_s[bins])
        for i in better[np.argsort(step[better], kind="stable")]:
            at, seconds = int(bins[i]), float(step[i])
            if seconds < self._step_s[at]:
                index = np.unravel_index(int(i), scored.memory_bytes.shape)
                self._put(OnFront(seconds, float(scored.memory_bytes[index]), plan_of(index)), at)

    def put(self, found: OnFront[Plan]) -> None:
        """Take over a plan of another front if it is faster than everything that needs as little."""
        at = int(min(found.memory_bytes / GRAIN_BYTES, len(self._step_s) - 1))
        if found.step_s < self._step_s[at]:
            self._put(found, at)

    def _put(self, found: OnFront[Plan], at: int) -> None:
        for i in range(at, len(self._step_s)):
            if self._step_s[i] <= found.step_s:
                break
            self._step_s[i], self._found[i] = found.step_s, found

    def plans(self) -> list[OnFront[Plan]]:
        """From the fastest to the one that needs least."""
        out: list[OnFront[Plan]] = []
        for found in reversed(self._found):
            if found is not None and (not out or out[-1] is not found):
                out.append(found)
        return out
