"""The judge and the fit of collectives: reproducible, held out by table, robust to odd rows, faults flagged."""

import re

import pytest

from planner.cost.collective import curves_of
from planner.validate.collective_fit import fit_collectives, fit_fabrics, shipped_fabric_table, shipped_table
from planner.validate.collective_rows import packaged_rows
from planner.validate.collectives import cross_validate, median_of_tables, validate_collectives

KEYS = {
    "row", "id", "source", "config", "group", "metric", "unit", "measured", "skipped", "zero_shot", "site", "baseline",
    "fits", "memory_over_gb", "assumed", "flags",
}  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    return packaged_rows()


@pytest.fixture(scope="module")
def answers(rows):
    return validate_collectives(rows)


def _close(ours: str, shipped: str, keys: int, figures: int) -> None:
    a, b = ours.splitlines(), shipped.splitlines()
    assert [x.split(",")[:keys] for x in a] == [x.split(",")[:keys] for x in b]
    for x, y in zip(a[1:], b[1:], strict=True):
        for p, q in zip(x.split(",")[keys : keys + figures], y.split(",")[keys : keys + figures], strict=True):
            assert float(p) == pytest.approx(float(q), rel=0.02)


def test_the_shipped_tables_are_what_the_fit_gives(rows):
    curves = fit_collectives(rows)
    _close(curves, shipped_table(), 3, 3)
    _close(fit_fabrics(rows=rows, curves=curves_of(curves)), shipped_fabric_table(), 1, 3)


def test_tables_left_out_are_met(rows):
    """The bars of the issue are 6 and 20 %; asserted is what is reached (see docs/network.md) plus a margin."""
    errors = cross_validate(rows=rows, folds=10)
    assert len(errors["in_node"]) >= 60
    assert len(errors["across_nodes"]) >= 8
    assert median_of_tables(errors["in_node"]) <= 5.5
    assert median_of_tables(errors["across_nodes"]) <= 12.0


def test_faulty_tables_are_flagged_and_healthy_ones_are_not(rows, answers):
    flagged: dict[str, dict[str, bool]] = {"yes": {}, "no": {}}
    for row, answer in zip(rows, answers, strict=True):
        flagged[row["healthy"]][row["table_id"]] = bool(answer["flags"])
        assert all(re.fullmatch(r"slower_than_fabric: factor \d+\.\d\d", f) for f in answer["flags"])
    assert sum(flagged["no"].values()) >= 0.8 * len(flagged["no"])
    assert sum(flagged["yes"].values()) <= 0.1 * len(flagged["yes"])


def test_answers_have_the_contract_form(rows, answers):
    assert len(answers) == len(rows)
    for index, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        assert set(answer) == KEYS
        assert (answer["row"], answer["metric"], answer["unit"]) == (index, "time_s", "s")
        assert answer["group"] == row["table_id"]
        assert (answer["skipped"] is None) != (answer["zero_shot"] is None)
        if answer["zero_shot"]:
            assert answer["zero_shot"]["p10"] < answer["zero_shot"]["predicted"] < answer["zero_shot"]["p90"]
    skipped = [a for a in answers if a["skipped"]]
    assert skipped
    assert all(a["skipped"].startswith("setting_missing: ") for a in skipped)


def test_time_is_derived_from_bandwidth(rows):
    row = next(r for r in rows if r["healthy"] == "yes" and float(r["bytes"] or 0) > 1e8 and r["time_us"])
    (answer,) = validate_collectives([row | {"time_us": ""}])
    assert answer["measured"] == pytest.approx(float(row["time_us"]) * 1e-6, rel=0.03)


@pytest.mark.parametrize(
    "change",
    [
        {"hardware": "No Such Card"},
        {"hardware": "No Such Card", "link": "", "n_nodes": "", "gpus_per_node": ""},
        {"bytes": "n/a", "time_us": "", "algbw_gbs": ""},
        {"collective": "gather"},
        {"scope": "", "link": "Slingshot 4x200G", "n_nodes": "3"},
        {"table_id": "", "id": "", "healthy": "", "time_us": "nan"},
    ],
)
def test_odd_rows_never_fail(rows, change):
    (answer,) = validate_collectives([rows[-100] | change])
    assert (answer["skipped"] is None) != (answer["zero_shot"] is None)
    assert validate_collectives([{}])[0]["skipped"].startswith("setting_missing: ")
