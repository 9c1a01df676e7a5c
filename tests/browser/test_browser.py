"""Journeys of a person through the dashboard in a real browser, and what axe says of every page."""

import re

import pytest
from journeys import settle

from planner.ui import work
from planner.ui.text import t

METRIC = '[data-testid="stMetricValue"]'
PAGES = ("", "compare", "scaling", "search", "size", "timeline", "risk", "sensitivity", "roadmap", "accuracy",
         "calibration", "claims")  # fmt: skip
# Of the frame itself, not of the pages: Streamlit 1.60 leaves these in every app.
FRAME_RULES = (
    "landmark-one-main",
    "region",
    "page-has-heading-one",
    "heading-order",
    "landmark-unique",
    "presentation-role-conflict",
)  # the last: the drop zone of every file uploader


def days(page):
    return page.locator(METRIC).first.inner_text()


def choose(page, name):
    box = page.get_by_role("combobox", name=t("preset", "en"), exact=True)
    box.click()
    page.keyboard.type(name, delay=10)
    page.wait_for_timeout(300)
    page.keyboard.press("Enter")
    settle(page)


def test_a_preset_is_answered(opened):
    page = opened(waits_for=METRIC)
    before = days(page)
    choose(page, "gpt2-124m-8xh100")
    assert days(page) != before
    assert re.search(r"\d", days(page))


def test_more_nodes_end_sooner(opened):
    page = opened(waits_for=METRIC)
    before = float(days(page).split()[0])
    handle = page.get_by_role("slider").first
    handle.focus()
    handle.press("ArrowRight")
    settle(page)
    assert float(days(page).split()[0]) < before


def test_strategies_are_compared(opened):
    page = opened("compare", waits_for="h1")
    page.get_by_text("engineered").first.wait_for()
    assert page.get_by_text("stack").count() > 0


def test_a_cluster_is_sized_for_a_deadline(opened):
    page = opened("size")
    page.get_by_role("button", name=t("do_size", "en")).click()
    page.locator(METRIC).first.wait_for(timeout=180_000)
    assert re.search(r"\d", page.locator(METRIC).first.inner_text())


def test_a_searched_plan_becomes_the_plan(opened):
    page = opened("search")
    page.get_by_role("button", name=t("do_search", "en")).click()
    page.get_by_role("button", name=t("take_plan", "en")).wait_for(timeout=120_000)
    page.get_by_role("button", name=t("take_plan", "en")).click()
    settle(page)
    page.get_by_test_id("stSidebarNavLink").get_by_text(t("page.plan", "en"), exact=True).click()
    page.locator(METRIC).first.wait_for()
    assert "plan=" in page.url


def test_own_runs_are_fitted(opened):
    page = opened("accuracy")
    page.get_by_role("tab", name=t("tab_own", "en")).click()
    runs = {"name": "runs.csv", "mimeType": "text/csv", "buffer": work.runs_template()}
    page.locator('input[type="file"]').first.set_input_files(runs)
    page.get_by_test_id("stMetricLabel").get_by_text(t("site_compute", "en")).first.wait_for(timeout=120_000)


def test_the_language_changes_and_the_plan_stays(opened):
    page = opened(waits_for=METRIC)
    before = page.locator(METRIC).all_inner_texts()
    page.get_by_text("zh", exact=True).click()
    settle(page)
    page.get_by_text(t("page.plan", "zh")).first.wait_for()
    assert [re.sub(r"\D", "", v) for v in page.locator(METRIC).all_inner_texts()][:2] == [
        re.sub(r"\D", "", v) for v in before
    ][:2]


def test_a_shared_address_opens_the_same_plan_and_exports_it(opened):
    page = opened(waits_for=METRIC)
    handle = page.get_by_role("slider").first
    handle.focus()
    handle.press("ArrowLeft")
    settle(page)
    found, link = page.locator(METRIC).all_inner_texts(), page.url.rpartition("/")[2]
    other = opened(link, waits_for=METRIC)
    assert other.locator(METRIC).all_inner_texts() == found
    for label in ("YAML", "CSV", "XLSX", "JSON"):
        with other.expect_download() as sent:
            other.get_by_role("button", name=re.compile(label)).first.click()
        assert sent.value.path().stat().st_size > 100


def test_dark_and_narrow(opened):
    page = opened(waits_for=METRIC, color_scheme="dark", viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    colour = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", colour)[:3])) < 200


def test_two_people_do_not_mix(opened):
    one, two = opened(waits_for=METRIC), opened(waits_for=METRIC)
    choose(one, "gpt2-124m-8xh100")
    settle(two)
    assert one.locator(METRIC).all_inner_texts() != two.locator(METRIC).all_inner_texts()
    assert one.url != two.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("where", PAGES)
def test_axe_finds_no_violation(opened, where, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra `browser`")
    page = opened(where, color_scheme=scheme)
    found = axe.Axe().run(page).response["violations"]
    ours = {v["id"]: [n["html"][:160] for n in v["nodes"][:2]] for v in found if v["id"] not in FRAME_RULES}
    assert not ours
