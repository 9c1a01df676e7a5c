"""The catalogue of optimisations holds together."""

import pytest

from planner.catalog.errors import CatalogError
from planner.catalog.optimisations import AXES, CLASSES, MODELLED_BY, conflict, optimisation, optimisations
from planner.catalog.tables import rows


def test_every_row_is_whole():
    entries = optimisations()
    assert len(entries) == len(rows("optimisations.csv")) >= 56
    for key, e in entries.items():
        assert e.cls in CLASSES, key
        assert e.side in {"operator", "glue", "other"}, key
        assert e.cut in {"A", "B"}, key
        assert e.modelled_by in MODELLED_BY, key
        assert e.mechanism, key
        assert all(axis in AXES and sign in {"-", "+", "="} for axis, sign in e.mechanism), key
        assert 0 < e.factor_best <= e.factor_typical <= e.factor_worst, key
        assert 0 < e.effort_weeks[0] < e.effort_weeks[1], key
        assert 0 <= e.upkeep_weeks_per_year[0] <= e.upkeep_weeks_per_year[1], key
        assert 0 < e.p_success < 1, key
        assert e.risk in {"low", "medium", "high"}, key
        assert e.risk_scope in {"local", "global"}, key
        assert e.reversibility in {"flag", "config", "module", "restart", "rewrite"}, key
        assert e.basis in {"measured", "theory", "judged"}, key
        assert e.source, key
        assert e.date, key
        assert e.provenance, key
        assert e.conflicts <= set(entries), key


def test_pilots_are_structural_and_may_change_quality():
    for key, e in optimisations().items():
        if e.modelled_by == "pilot":
            assert e.cut == "B", key
        if e.cut == "B":
            assert e.quality_may_change, key


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("cuda_graphs", "offload"),
        ("ep_overlap", "full_ac"),
        ("zero_bubble", "torch_compile"),
        ("grad_compression", "zero_stage"),
        ("new_optimizer", "zero_stage"),
    ],
)
def test_hard_conflicts_hold_both_ways(a, b):
    assert conflict(a, b)
    assert conflict(b, a)


def test_unknown_key_names_the_nearest():
    with pytest.raises(CatalogError) as error:
        optimisation("torch_compil")
    assert "torch_compile" in error.value.nearest


def test_speedrun_history_is_dated_and_sourced():
    table = rows("speedrun_records.csv")
    assert sum(r["is_retiming"] == "0" for r in table) == 89
    assert sum(r["is_retiming"] == "1" for r in table) == 2
    assert all(float(r["time_s"]) > 0 for r in table)
    assert all(r["source"] and r["provenance"] and r["retrieved"] for r in table)
    assert [r["date"] for r in table] == sorted(r["date"] for r in table)
