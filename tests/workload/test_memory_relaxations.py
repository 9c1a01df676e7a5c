"""An infeasible plan: what is over, by how much, and changes that help, the cheapest first."""

from dataclasses import replace

import pytest

from planner import catalog
from planner.workload.layout import Layout
from planner.workload.memory import worst_rank
from planner.workload.relaxations import relaxations, shortage

FLASH = frozenset({"norm", "activation", "residual", "rope", "cross_entropy", "flash"})
MODEL = catalog.model("llama3-70b")
PLAN = Layout(tp=8, pp=4, dp=2, micro_batch=2, global_batch=64, sequence=8192, zero_stage=1)


def need(layout: Layout) -> float:
    rank = worst_rank(model=MODEL, layout=layout, fusions=FLASH)
    return rank.peak_bytes + rank.reserved_bytes


def test_a_plan_that_fits_has_no_shortage():
    assert shortage(model=MODEL, layout=PLAN, fusions=FLASH, capacity_bytes=1e15) is None


def test_shortage_is_the_need_less_the_capacity_and_its_parts_add_up():
    found = shortage(model=MODEL, layout=PLAN, fusions=FLASH, capacity_bytes=50e9)
    assert found is not None
    assert found.over_bytes == pytest.approx(need(PLAN) - 50e9)
    assert sum(v for _, v in found.parts_bytes) == pytest.approx(need(PLAN))
    assert [v for _, v in found.parts_bytes] == sorted((v for _, v in found.parts_bytes), reverse=True)


def test_each_change_saves_what_it_says():
    options = relaxations(model=MODEL, layout=PLAN, fusions=FLASH, capacity_bytes=50e9)
    by_name = {(o.setting, o.value): o for o in options}
    changed = replace(PLAN, sequence_parallel=True)
    assert by_name["sequence_parallel", "true"].saves_bytes == pytest.approx(need(PLAN) - need(changed))
    half = by_name["micro_batch_sequences", "1"]
    assert half.saves_bytes == pytest.approx(need(PLAN) - need(replace(PLAN, micro_batch=1)))


def test_changes_that_fit_come_first_and_cheap_before_dear():
    capacity = need(replace(PLAN, micro_batch=1)) + 1e6
    options = relaxations(model=MODEL, layout=PLAN, fusions=FLASH, capacity_bytes=capacity)
    assert [not o.fits for o in options] == sorted(not o.fits for o in options)
    fitting = [o.cost_rank for o in options if o.fits]
    assert fitting
    assert fitting == sorted(fitting)
    assert all(o.saves_bytes > 0 for o in options)


def test_a_chain_ends_in_a_plan_that_fits():
    tight = replace(PLAN, tp=4, pp=1, dp=16, micro_batch=4, zero_stage=0)
    found = shortage(model=MODEL, layout=tight, fusions=FLASH, capacity_bytes=80e9)
    assert found is not None
    assert not any(o.fits for o in found.relaxations)
    assert len(found.together) > 1
    assert found.together[-1].fits
    assert sum(o.saves_bytes for o in found.together) >= found.over_bytes
