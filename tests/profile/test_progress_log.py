"""The log of a run that is going: what a cell may hold, and every mistake at once."""

import pytest

from planner.profile.progress_log import COLUMNS, ProgressError, parse_progress, template

HEAD = "start,end,steps,step_s,gpus,downtime_h,planned_h,stops_gpu,stops_host,cost_usd\n"


def issues_of(text):
    with pytest.raises(ProgressError) as error:
        parse_progress(text, tokens_per_step=1e6, file="log.csv")
    return error.value.issues


def test_the_template_reads_and_has_every_column():
    periods = parse_progress(template(), tokens_per_step=8192 * 1024)
    assert template().splitlines()[0].split(",") == list(COLUMNS)
    assert [p.hours for p in periods] == [24.0, 24.0]
    assert periods[0].steps == pytest.approx(2.05e10 / 8192 / 1024)
    assert periods[1].stops["planned"] == 1
    assert periods[1].stops["memory"] == 0


def test_blank_is_not_logged_and_zero_is():
    blank, zero = parse_progress(
        HEAD + "2026-03-01,2026-03-02,9,,,,,,,\n2026-03-02,2026-03-03 12:00,9,2 min,8,0,,0,,1e3\n", tokens_per_step=1.0
    )
    assert (blank.stops, blank.downtime_h, blank.step_s, blank.gpus, blank.cost_usd) == (None,) * 5
    assert (zero.stops["gpu"], zero.downtime_h, zero.step_s, zero.gpus, zero.hours) == (0, 0.0, 120.0, 8, 36.0)


def test_tokens_steps_and_the_last_step_count_the_same_progress():
    text = "start,end,tokens,steps,last_step\n"
    text += "2026-03-01,2026-03-02,5e6,,\n2026-03-02,2026-03-03,,7,\n2026-03-03,2026-03-04,,,20\n"
    text += "2026-03-04,2026-03-05,,,18\n"
    assert [p.steps for p in parse_progress(text, tokens_per_step=1e6)] == [5, 7, 8, -2]


def test_every_mistake_at_once_each_with_line_field_and_choice():
    text = HEAD + (
        "03/04/2026,2026-03-02,100,10,256,1,0,1,,\n"  # a date in another order
        "2026-03-02,2026-03-03,100,fast,256,1,0,1.5,,\n"  # no duration, no count
        "2026-03-03,2026-03-04,9900,10,256,1,0,1,,\n"  # more steps than a day holds
        "2026-03-04,2026-03-04,,10,256,1,0,1,,-5\n"  # no progress, no length, money back
        '2026-03-05,2026-03-06,"1,000",10,0,20,9,1,,\n'  # thousands, no GPUs, more stops than hours
        "2026-03-06,2026-03-07,100,10,256,1,0,1,,,9,9\n"  # too many cells
    )
    found = {(i.line, i.path): i for i in issues_of(text)}
    assert set(found) == {
        *((2, "start"), (3, "step_s"), (3, "stops_gpu"), (4, "steps"), (5, "tokens"), (5, "end"), (5, "cost_usd")),
        *((6, "steps"), (6, "gpus"), (6, "downtime_h"), (7, "")),
    }
    assert found[2, "start"].nearest == ("2026-04-03", "2026-03-04")
    assert found[3, "stops_gpu"].nearest == ("1", "2")
    assert found[6, "steps"].nearest == ("1000",)
    assert all(i.file == "log.csv" and i.message for i in found.values())


def test_columns_are_checked_by_name():
    (unknown, *rest) = issues_of("start,finish,tokens,step_time\n2026-03-01,2026-03-02,1,1\n")
    assert {i.path for i in (unknown, *rest)} == {"finish", "step_time", "end"}
    assert next(i for i in rest if i.path == "step_time").nearest[0] == "step_s"
    assert issues_of("start,end\n2026-03-01,2026-03-02\n")[0].nearest == ("tokens", "steps", "last_step")
    assert issues_of("start,start,end,steps\n")[0].code == "duplicate_column"
    assert issues_of("")[0].code == "empty"
    assert issues_of(HEAD)[0].code == "empty"


def test_rows_that_overlap_are_refused_and_gaps_are_not():
    row = "{},{},100,10,256,1,0,1,,\n"
    after = row.format("2026-03-01", "2026-03-02") + row.format("2026-03-01 23:00", "2026-03-03")
    (issue,) = issues_of(HEAD + after)
    assert (issue.code, issue.line, issue.nearest) == ("order", 3, ("2026-03-02 00:00:00",))
    gap = row.format("2026-03-01", "2026-03-02") + row.format("2026-03-05", "2026-03-06")
    assert len(parse_progress(HEAD + gap, tokens_per_step=1.0)) == 2
    mixed = row.format("2026-03-01T00:00Z", "2026-03-02T00:00Z") + row.format("2026-03-02", "2026-03-03")
    assert issues_of(HEAD + mixed)[0].code == "time"
