"""A server of the dashboard and a real browser; skipped, with the reason, where there is none."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from journeys import settle

ROOT = Path(__file__).parents[2]
CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


@pytest.fixture(scope="session")
def address():
    if not os.environ.get("PLANNER_BROWSER"):
        pytest.skip("browser journeys run by `make browser`")
    pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        "app.py",
        "--server.headless",
        "true",
        "--server.port",
        str(port),
    ]
    server = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1).read()
                break
            except OSError:
                time.sleep(0.25)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture(scope="session")
def browser(address):
    api = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with api.sync_playwright() as play:
        yield play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture
def opened(browser, address):
    """Opens a page of the dashboard in a fresh browser session and waits for its first figure."""
    sessions = []

    def visit(where="", *, waits_for="h1", **options):
        context = browser.new_context(viewport=options.pop("viewport", {"width": 1280, "height": 1600}), **options)
        sessions.append(context)
        page = context.new_page()
        page.set_default_timeout(90_000)
        page.goto(f"{address}/{where}")
        page.locator(waits_for).first.wait_for()
        settle(page)
        return page

    yield visit
    for context in sessions:
        context.close()
