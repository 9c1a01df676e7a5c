"""How published runs ended, against the forecast's band."""

import csv
from importlib.resources import files

import pytest

from planner.catalog.reliability import cause_shares, fitted_rate, rate_rows, spot_market
from planner.validate.command import validate_kind
from planner.validate.outcomes import MODELS, inside, packaged_rows, validate_outcomes


@pytest.fixture(scope="module")
def answers():
    return validate_outcomes()


def test_every_row_is_answered_once_in_order(answers):
    rows = packaged_rows()
    assert [a["id"] for a in answers] == [r["id"] for r in rows]
    for answer in answers:
        assert (answer["skipped"] is None) == (answer["zero_shot"] is not None)
        if answer["zero_shot"]:
            band = answer["zero_shot"]
            assert 0 < band["p10"] <= band["predicted"] <= band["p90"]


def test_three_quarters_of_judgeable_outcomes_lie_inside():
    document = validate_kind(kind="outcomes", path=None, engine="fast", group=None)
    scores = document["summary"]["outcomes"]
    assert scores["judged"]["forecast"] >= 18
    assert scores["judged"]["inside_frac"] >= 0.75
    assert scores["method"]["forecast"] >= 25  # counted apart from measured outcomes


def test_419_interruptions_without_any_row_of_theirs(answers):
    row = next(a for a in answers if a["id"] == "O002")
    assert row["measured"] == 419
    assert inside(answer=row)
    assert not any("Llama" in r.source for r in rate_rows())
    assert row["zero_shot"]["p90"] / row["zero_shot"]["p10"] < 10  # a band that says something


def test_the_rows_own_source_is_left_out():
    everything, without = (
        fitted_rate("per_node"),
        fitted_rate("per_node", ("OPT-175B chronicles, facebookresearch/metaseq @f7ffa5f",)),
    )
    assert without.per_day < everything.per_day  # OPT's cluster failed most
    with pytest.raises(ValueError, match="left without"):
        fitted_rate("per_job", tuple(r.source for r in rate_rows()))


def test_a_bound_is_judged_on_its_side():
    band = {"p10": 0.7, "p90": 0.92, "predicted": 0.85}
    for bound, value, expected in (("ge", 0.9, True), ("ge", 0.95, False), ("le", 0.6, False), ("eq", 0.6, False)):
        assert inside(answer={"zero_shot": band, "measured": value, "flags": [f"bound:{bound}"]}) is expected


def test_rows_of_a_file_and_what_they_lack(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(
        "id,source,quantity,value,bound,judge,what,cfg_nodes,cfg_days,cfg_params\n"
        "a,mine,interruptions,12,eq,yes,unexpected,32,60,\n"
        "b,mine,interruptions,12,eq,yes,unexpected,32,,\n"
        "c,mine,moon_phase,1,eq,yes,x,,,\n"
        "d,mine,gpu_hours,,eq,yes,x,,,7e9\n"
    )
    document = validate_kind(kind="outcomes", path=path, engine="fast", group=None)
    skipped = [r["skipped"] for r in document["rows"]]
    assert skipped[0] is None
    assert "cfg_days" in skipped[1]
    assert "moon_phase" in skipped[2]
    assert "no observed" in skipped[3]


def test_more_nodes_fail_more_often_and_last_shorter():
    row = {"source": "mine", "cfg_days": "30", "what": ""}
    small, large = ({**row, "cfg_nodes": str(n)} for n in (16, 1024))
    assert MODELS["interruptions"](large).p50 > MODELS["interruptions"](small).p50
    assert MODELS["mttf_h"](large).p50 < MODELS["mttf_h"](small).p50
    assert MODELS["effective_time_frac"](large).p50 < MODELS["effective_time_frac"](small).p50


def test_reliability_data_is_whole():
    assert sum(cause_shares().values()) == pytest.approx(1.0)
    assert 0 < spot_market().availability_frac < 1
    for name in ("reliability", "reliability_rates", "reliability_causes", "reliability_spot"):
        table = list(csv.DictReader(files("planner.catalog").joinpath(f"data/{name}.csv").read_text().splitlines()))
        assert table
        for row in table:
            assert all(row[column] for column in ("source", "year", "provenance")), (name, row["id"])
    assert len({r.id for r in rate_rows()}) == len(rate_rows())
