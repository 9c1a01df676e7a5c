import re

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("altair")

from pathlib import Path

from streamlit.testing.v1 import AppTest

from planner.scenario import parse_scenario
from planner.ui import charts, work
from planner.ui.text import FLIPS, LANGUAGES, TEXT, flip_text, t

APP = Path(__file__).resolve().parents[2] / "app.py"
FIRST = "llama3-70b-256xh100"


def open_page(*, preset=None, lang=None):
    at = AppTest.from_file(str(APP), default_timeout=60)
    if lang:
        at.query_params["lang"] = lang
    at.run()
    if preset and preset != FIRST:
        at.selectbox(key="preset").select(preset).run()
    return at


@pytest.mark.parametrize(("preset", "lang"), [*((p, "en") for p in work.preset_names()), ("llama2-13b-spot", "zh")])
def test_every_preset_gives_an_answer_without_error(preset, lang):
    at = open_page(preset=preset, lang=lang)
    assert not at.exception
    assert not at.error
    scenario = work.load_preset(preset)
    assert len(at.metric) == 4 * len(scenario.strategies)
    assert at.title[0].value == t("title", lang)
    assert len(at.success) == 1
    assert len(at.dataframe) == 1


def test_nodes_move_the_days():
    at = open_page()
    before = [m.value for m in at.metric]
    at.select_slider(key=f"nodes-{FIRST}").set_value(64).run()
    assert not at.exception
    after = [m.value for m in at.metric]
    assert float(after[0].split()[0]) < 0.6 * float(before[0].split()[0])


def test_layout_moves_only_the_edited_strategy():
    at = open_page()
    before = [m.value for m in at.metric]
    at.selectbox(key=f"recompute-{FIRST}").select("full").run()
    after = [m.value for m in at.metric]
    assert not at.exception
    assert after[:4] == before[:4]
    assert float(after[4].split()[0]) > float(before[4].split()[0])


def test_a_layout_over_memory_says_by_how_much():
    at = open_page()
    at.select_slider(key=f"tp-{FIRST}").set_value(1)
    at.select_slider(key=f"pp-{FIRST}").set_value(1)
    at.selectbox(key=f"recompute-{FIRST}").select("none").run()
    assert not at.exception
    assert len(at.error) == 1
    assert re.search(r"engineered.* does not fit: [\d.,]+ GB over the 85\.0 GB", at.error[0].value)
    assert [m.value for m in at.metric][4:7] == ["—"] * 3


def test_a_batch_that_does_not_divide_is_an_error_with_its_reason():
    at = open_page()
    at.number_input(key=f"batch-{FIRST}").set_value(1000).run()
    assert not at.exception
    assert any("1000 sequences does not divide over 256" in e.value for e in at.error)


def test_nothing_placed_still_no_traceback():
    at = open_page()
    at.number_input(key=f"batch-{FIRST}").set_value(1001).run()
    assert not at.exception
    assert len(at.error) == 2
    assert not at.metric


def test_presets_with_a_fixed_dp_follow_the_nodes():
    preset = "gpt3-175b-1024xa100"
    at = open_page(preset=preset)
    at.select_slider(key=f"nodes-{preset}").set_value(64).run()
    assert not at.exception
    assert not at.error


def test_language_switch_keeps_the_settings():
    at = open_page()
    at.select_slider(key=f"nodes-{FIRST}").set_value(64).run()
    days = at.metric[0].value
    at.segmented_control(key="lang").set_value("zh").run()
    assert not at.exception
    assert at.query_params["lang"] in ("zh", ["zh"])
    assert at.title[0].value == t("title", "zh")
    assert at.select_slider(key=f"nodes-{FIRST}").value == 64
    assert at.metric[0].value == days


def test_an_unknown_language_falls_back():
    at = open_page(lang="xx")
    assert not at.exception
    assert at.title[0].value == t("title", "en")


def test_catalogue_is_complete():
    for key, words in TEXT.items():
        assert set(words) == set(LANGUAGES), key
        assert all(w.strip() for w in words.values()), key
        holes = {lang: sorted(re.findall(r"{(\w+)}", w)) for lang, w in words.items()}
        assert holes["en"] == holes["zh"], key


def test_every_key_used_exists():
    folder = Path(work.__file__).parent
    used = {k for f in folder.rglob("*.py") for k in re.findall(r"\bt\(\s*\"([\w.]+)\"", f.read_text("utf-8"))}
    assert used <= set(TEXT)
    assert {f"time.{p}" for p, _, _ in charts.TIME_PARTS} | {f"memory.{p}" for p, _ in charts.MEMORY_PARTS} <= set(TEXT)


@pytest.mark.parametrize("preset", work.preset_names())
def test_flips_are_worded_and_breakdown_parts_are_all_shown(preset):
    scenario = work.load_preset(preset)
    document = work.comparison(scenario.model_dump_json())
    for flip in document["flips_at"]:
        assert any(p.fullmatch(flip["input"]) for p, _, _ in FLIPS)
        assert flip_text(flip=flip, lang="zh") != flip_text(flip=flip, lang="en")
    docs = document["strategies"]
    for name, doc in docs.items():
        shown = sum(r["value"] for r in charts.time_rows(documents={name: doc}, lang="en"))
        assert shown == pytest.approx(doc["step_s"]["p50"], rel=2e-3)
    for chart in (
        charts.breakdown_chart(documents=docs, lang="zh"),
        charts.memory_chart(documents=docs, lang="zh"),
        charts.scaling_chart(points=work.scaling_points(scenario.model_dump_json()), names=list(docs), lang="zh"),
    ):
        assert chart.to_dict()


@pytest.mark.parametrize("preset", work.preset_names())
def test_the_yaml_download_reads_back_as_the_same_scenario(preset):
    scenario = work.load_preset(preset)
    assert parse_scenario(work.to_yaml(scenario)).hash() == scenario.hash()


def test_only_shipped_names_are_opened():
    with pytest.raises(KeyError):
        work.load_preset("../../etc/passwd")


def test_vpp_follows_the_stages():
    assert work.fitting_vpp(layers=80, pp=4, wanted=5) == 5
    assert work.fitting_vpp(layers=80, pp=8, wanted=5) == 5
    assert work.fitting_vpp(layers=80, pp=16, wanted=4) == 1
    assert work.fitting_vpp(layers=80, pp=1, wanted=5) == 1


def _over_memory():
    from planner.ui import answer
    from planner.ui.units import of_code

    change = {"constraint": "recompute", "by": "full", "result": "fits, frees 9 GB", "why": "keeps less", "fits": True}
    doc = {"fits": False, "memory_over_gb": 8.0, "memory_gb": {"capacity": 80.0}, "relax": [change]}
    answer.over_memory(docs={"a": doc, "b": doc | {"relax": []}}, lang="en", shown=of_code("GiB.auto.USD"))


def test_what_to_relax_is_listed_where_the_answer_says_it():
    at = AppTest.from_function(_over_memory).run()
    assert not at.exception
    first, second = (e.value for e in at.error)
    assert "7.5 GiB over the 74.5 GiB" in first
    assert first.endswith("- recompute to full: fits, frees 9 GB (keeps less)")
    assert "relax" not in second
    assert "\n" not in second
