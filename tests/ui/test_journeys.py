"""What people do over several pages: units, their own model, fabric and runs, the report, a stopped answer."""

import json
import time

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("altair")

from pathlib import Path

from streamlit.testing.v1 import AppTest

from planner.ui import frame, jobs, uploads, work
from planner.ui.text import t

ROOT = Path(__file__).resolve().parents[2]
SMALL, LAB = "gpt2-124m-8xh100", "llama2-7b-lab-4x8xa100-ethernet"


def opened(page=None, *, preset=SMALL, **query):
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    at.query_params["plan"] = frame.encode({"preset": preset})
    for key, value in query.items():
        at.query_params[key] = value
    if page:
        at.switch_page(f"planner/ui/pages/{page}.py")
    at.run()
    assert not at.exception
    return at


def press(at, key):
    next(b for b in at.button if key in (b.key, b.label)).click().run()
    assert not at.exception


def goto(at, page):
    at.switch_page("planner/ui/plan.py" if page == "plan" else f"planner/ui/pages/{page}.py").run()
    assert not at.exception


def test_units_follow_the_reader_over_the_pages_and_into_the_address():
    at = opened()
    dollars, length = at.metric[1].value, at.metric[0].value
    assert dollars.startswith("\\$")
    at.segmented_control(key="currency").set_value("EUR")
    at.segmented_control(key="memory").set_value("GiB")
    at.segmented_control(key="time").set_value("days").run()
    assert at.metric[1].value.startswith("€")
    assert at.metric[0].value != length
    assert at.query_params["units"] in ("GiB.days.EUR", ["GiB.days.EUR"])
    assert any("EUR = " in c.value for c in at.caption)
    goto(at, "compare")
    assert any("€" in c.value for c in at.caption)
    again = opened("risk", units="GiB.hours.CNY", lang="zh")
    assert again.metric[0].value.endswith(" h")


def test_every_figure_of_the_plan_says_where_it_comes_from():
    at = opened()
    scenario = work.load_preset(SMALL)
    assert all("source" in m.help for m in at.metric)
    assert len([m for m in at.metric if m.help.startswith("**days.p50** = ")]) == len(scenario.strategies)


def test_an_uploaded_config_becomes_the_model_until_it_is_taken_out(config):
    at = opened()
    before = [m.value for m in at.metric]
    at.file_uploader(key="upload-model").set_value(("config.json", json.dumps(config).encode(), "application/json"))
    at.run()
    assert not at.exception
    assert any("My-Model-1B" in c.value for c in at.caption)
    assert [m.value for m in at.metric] != before
    goto(at, "scaling")
    assert any("My-Model-1B" in c.value for c in at.caption)
    press(at, "forget-model")
    goto(at, "plan")
    assert [m.value for m in at.metric] == before


@pytest.mark.parametrize("raw", [b"", b"[" * 5000, b'{"model_type": "nobody"}', b"\x1f\x8b" + b"\x00" * 99])
def test_a_broken_upload_is_an_error_and_nothing_else(raw):
    at = opened()
    before = [m.value for m in at.metric]
    at.file_uploader(key="upload-model").set_value(("../../etc/passwd.json", raw, "application/json"))
    at.run()
    assert not at.exception
    assert len(at.error) == 1
    assert not frame_files(at)
    at.file_uploader(key="upload-model").set_value(None)
    at.run()
    assert [m.value for m in at.metric] == before


def frame_files(at):
    kept = "files" in at.session_state
    return at.session_state["files"] if kept else {}


def test_a_log_of_nccl_tests_becomes_the_fabric_of_the_plan(log):
    at = opened(preset=LAB)
    before = at.metric[0].value
    goto(at, "calibration")
    at.file_uploader(key="fabric-upload").set_value(("lab.txt", log.encode(), "text/plain"))
    at.run()
    assert not at.exception
    press(at, t("use_fabric", "en"))
    assert set(frame_files(at)) == {"fabric"}
    goto(at, "plan")
    assert at.metric[0].value != before
    assert str(uploads.folder()) not in json.dumps([e.value for e in (*at.caption, *at.markdown, *at.warning)])
    figures = at.dataframe[-1].value
    assert not figures["source"].str.contains(str(uploads.folder()), regex=False).any()


def test_own_runs_are_fitted_and_their_constants_used():
    at = opened("accuracy")
    at.file_uploader(key="own-runs").set_value(("my runs.csv", work.runs_template(), "text/csv"))
    at.run()
    assert not at.exception
    assert not at.error
    labels = {m.label for m in at.metric}
    assert {t("site_compute", "en"), t("runs_used", "en")} <= labels
    press(at, t("use_site", "en"))
    goto(at, "plan")
    assert not at.error
    assert any("my-runs" in c.value for c in at.caption)


def test_the_report_is_written_and_offered():
    at = opened()
    press(at, next(b.key for b in at.button if b.key and b.key.startswith("button-report")))
    assert not at.error
    html = next(v for v in jobs.DESK.answers.values() if isinstance(v, dict) and "report.html" in v)["report.html"]
    assert b"<html" in html
    assert b"/tmp/" not in html
    assert any(t("no_pdf", "en") in c.value for c in at.caption) != work.can_pdf()


def test_a_stopped_answer_says_so_and_is_not_kept():
    desk = jobs.Desk()
    files = {"scenario.yaml": work.load_preset("llama31-405b-16384xh100").model_dump_json().encode()}
    job = desk.start(key="k", command=["search", "scenario.yaml", "--json"], files=files)
    end = time.monotonic() + 60
    while not job.said() and time.monotonic() < end:
        time.sleep(0.05)
    job.stop()
    while job.running and time.monotonic() < end:
        time.sleep(0.05)
    found = desk.finish(job)
    assert found["interrupted"]
    assert not desk.answers
    assert not job.folder.exists()


def test_slots_are_few_and_a_dropped_job_frees_one():
    desk = jobs.Desk()
    started = [desk.start(key=str(i), command=["schema"], files={}) for i in range(jobs.SLOTS)]
    assert all(started)
    assert desk.start(key="more", command=["schema"], files={}) is None
    assert not desk.free()
    desk.drop(started[0])
    assert desk.free()
    desk.close()
    assert not any(j.running for j in started)


def test_a_command_that_fails_says_why():
    desk = jobs.Desk()
    job = desk.start(key="k", command=["run", "scenario.yaml", "--json"], files={"scenario.yaml": b"model: nothing"})
    job.process.wait(60)
    with pytest.raises(jobs.JobError, match="nothing"):
        desk.finish(job)
    assert not job.folder.exists()


def test_two_sessions_do_not_mix(config):
    one, two = opened(), opened(preset=LAB)
    one.file_uploader(key="upload-model").set_value(("config.json", json.dumps(config).encode(), "application/json"))
    one.run()
    two.run()
    assert not frame_files(two)
    assert not any("My-Model-1B" in c.value for c in two.caption)
    assert any("My-Model-1B" in c.value for c in one.caption)
