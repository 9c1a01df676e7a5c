"""Expert all-to-all with one copy a rank or a node: closed form against drawn routings."""

import random

import pytest

from planner.cost.operator import _copies_sent_frac
from planner.cost.types import Group


def drawn_frac(*, places: int, copies: int, draws: int = 20_000) -> float:
    rng = random.Random(places * 100 + copies)
    met = sum(len({rng.randrange(places) for _ in range(copies)}) for _ in range(draws))
    return met / (draws * copies)


@pytest.mark.parametrize(("size", "per_domain", "places"), [(8, 8, 8), (64, 64, 64), (64, 8, 8), (16, 8, 2)])
@pytest.mark.parametrize("copies", [2, 4, 8])
def test_a_place_gets_one_copy_of_a_token(size, per_domain, places, copies):
    frac = _copies_sent_frac(group=Group(size, per_domain), copies=copies)
    # Mean of 20,000 draws of at most 1: a miss of 0.01 is beyond five standard errors.
    assert frac == pytest.approx(drawn_frac(places=places, copies=copies), abs=0.01)


def test_every_copy_travels_without_such_a_dispatcher():
    assert _copies_sent_frac(group=Group(8, 8), copies=0) == 1.0
    assert _copies_sent_frac(group=Group(1, 1), copies=8) == 1.0
