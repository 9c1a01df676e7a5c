"""Every page behind the plan, in both languages, with the figures of the command line, and with what goes wrong."""

import base64
import json
import zlib

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("altair")

from pathlib import Path

from streamlit.testing.v1 import AppTest

from planner.decide.compare import compare
from planner.decide.run import run_document
from planner.report.units import days, seconds
from planner.scenario import Strategy
from planner.scenario.issues import ScenarioError
from planner.ui import frame, uploads, work
from planner.ui.text import LANGUAGES, t
from planner.ui.words import WORDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(p.stem for p in (ROOT / "planner/ui/pages").glob("*.py") if p.stem != "__init__")
SMALL = "gpt2-124m-8xh100"


def frame_base(kept):
    scenario = work.load_preset(kept["preset"])
    taken = Strategy.model_validate(kept["strategy"])
    return scenario.model_copy(update={"strategies": {**scenario.strategies, work.editable(scenario): taken}})


def open_page(name, *, lang="en", plan=None):
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    at.query_params["lang"] = lang
    if plan is not None:
        at.query_params["plan"] = plan if isinstance(plan, str) else frame.encode(plan)
    at.switch_page(f"planner/ui/pages/{name}.py")
    return at.run()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_page_opens_in_both_languages(name, lang):
    at = open_page(name, lang=lang, plan={"preset": SMALL})
    assert not at.exception
    assert not at.error
    assert at.title[0].value == t(f"page.{name}", lang)


def test_every_page_has_its_words():
    assert {f"page.{name}" for name in PAGES} < set(WORDS)


def test_compare_shows_the_command_lines_table():
    at = open_page("compare", plan={"preset": SMALL})
    document = compare(scenario=work.load_preset(SMALL), engine="fast").document
    shown = at.dataframe[0].value
    assert list(shown["criterion"]) == [r["text"] for r in document["decision_table"]]
    assert document["verdict"]["choice"] in at.success[0].value
    figures = at.dataframe[-1].value
    lines = [line for doc in document["strategies"].values() for line in doc["provenance"]]
    assert list(figures["id"]) == [line["id"] for line in lines]
    assert list(figures["value"]) == pytest.approx([line["value"] for line in lines])


def test_risk_shows_the_command_lines_days():
    at = open_page("risk", plan={"preset": SMALL})
    scenario = work.load_preset(SMALL)
    name = list(scenario.strategies)[-1]
    document = run_document(scenario=scenario, name=name, replications=300)
    assert at.metric[0].value == days(document["days"]["p50"])


@pytest.mark.parametrize(("name", "button"), [("search", "search"), ("claims", "claims"), ("accuracy", "accuracy")])
def test_long_work_waits_for_its_button(name, button):
    at = open_page(name, plan={"preset": SMALL})
    assert len([b for b in at.button if b.key.startswith(f"button-{button}")]) == 1
    assert not at.dataframe


def test_a_search_result_becomes_the_plan():
    at = open_page("search", plan={"preset": SMALL})
    next(b for b in at.button if b.key.startswith("button-search")).click().run()
    assert not at.exception
    take = [b for b in at.button if b.key.startswith("take-")]
    assert take
    assert len(at.dataframe[0].value) == 10
    best = at.metric[0].value
    take[0].click().run()
    assert not at.exception
    assert at.session_state["plan"]["preset"] == SMALL
    asked = at.query_params["plan"]
    kept = frame.decode(asked[0] if isinstance(asked, list) else asked)
    assert kept["strategy"]["framework"]["mode"] in {"graph", "compile", "regional", "eager"}
    at.switch_page("planner/ui/plan.py").run()
    assert not at.exception
    assert not at.error
    name = work.editable(work.load_preset(SMALL))
    document = work.comparison(frame.edited(scenario=frame_base(kept), plan=kept).model_dump_json())
    assert seconds(document["strategies"][name]["step_s"]["p50"])[:3] == best[:3]


def test_an_edit_on_the_plan_reaches_the_other_pages_and_the_address():
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120).run()
    at.select_slider(key=f"nodes-{frame.FIRST}").set_value(64).run()
    found = at.query_params["plan"]
    kept = frame.decode(found[0] if isinstance(found, list) else found)
    assert kept["nodes"] == 64
    other = open_page("scaling", plan=kept, lang="zh")
    assert not other.exception
    assert any("512 GPU" in c.value for c in other.caption)


def test_undo_takes_the_last_change_back():
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120).run()
    before = [m.value for m in at.metric]
    at.select_slider(key=f"nodes-{frame.FIRST}").set_value(64).run()
    assert [m.value for m in at.metric] != before
    at.button[0].click().run()
    assert not at.exception
    assert [m.value for m in at.metric] == before


def _packed(data):
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(data).encode())).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "x" * 5000,
        "%%%",
        "AAAA",
        _packed([1]),
        _packed({"preset": 3}),
        _packed({"preset": SMALL, "nodes": "64"}),
        _packed({"preset": SMALL, "nodes": -1}),
        _packed({"preset": SMALL, "micro": True}),
        _packed({"preset": SMALL, "recompute": "rm -rf"}),
        _packed({"preset": SMALL, "path": "/etc/passwd"}),
        _packed({"preset": "a" * 100_000}),
        _packed({"preset": SMALL, "strategy": {"tp": 8, "path": "/etc/passwd"}}),
        _packed({"preset": SMALL, "strategy": ["tp"]}),
        _packed({"preset": SMALL, "recompute": ["none"]}),
    ],
)
def test_addresses_that_are_not_ours_are_refused(text):
    assert frame.decode(text) is None
    at = open_page("compare", plan=text)
    assert not at.exception


def test_an_unknown_preset_in_an_address_falls_back():
    at = open_page("compare", plan={"preset": "../../etc/passwd"})
    assert not at.exception
    assert at.session_state["plan"]["preset"] == frame.FIRST


def test_addresses_round_trip():
    plan = {"preset": SMALL, "nodes": 2, "batch": 64, "micro": "auto", "recompute": "none"}
    assert frame.decode(frame.encode(plan)) == plan


GOOD = b"""model: llama3-8b
cluster: {node: hgx-h100, nodes: 2}
training: {tokens: 1T, sequence_length: 8192, global_batch_sequences: 128}
strategies: {stack: {preset: stack}}
"""


def test_an_upload_is_read_like_a_file():
    assert uploads.scenario_of(GOOD).gpus == 16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((b"llama3-8b", b"/etc/passwd"), "names a model"),
        ((b"nodes: 2", b"nodes: 2, site: /etc/passwd"), "names no file"),
        ((b"nodes: 2", b"nodes: 2, profile: /etc/passwd"), "one of"),
        ((b"nodes: 2", b"nodes: 2, fabric: /etc/passwd"), "names a kind"),
        ((b"nodes: 2", b"nodes: 2, fabric: {measured: /etc/passwd}"), "names no file"),
        ((b"nodes: 2", b"nodes: 2, fabric: {measured: [/etc/passwd]}"), "names no file"),
        ((b"nodes: 2", b"nodes: 2, profile: [x]"), "one of"),
    ],
)
def test_an_upload_names_no_file_of_this_machine(change, words):
    with pytest.raises(ValueError, match=words):
        uploads.scenario_of(GOOD.replace(*change))


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00", b"a: &x [*x]", b"[" * 5000, b"model: [", b"- 1", b"\x00" * 100])
def test_hostile_uploads_are_refused(raw):
    with pytest.raises((ScenarioError, ValueError)):
        uploads.scenario_of(raw)
