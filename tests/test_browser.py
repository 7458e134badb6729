"""The live page and the report in a real browser: Debian's chromium, driven by Playwright, over real runs.

Without chromium this is skipped; `.ci/run` installs it and sets OHT_BROWSER=required, so that it is not.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from environments import search_path
from oht.report import html_report, watch
from test_training import tiny

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None and os.environ.get("OHT_BROWSER") != "required":
    pytest.skip("no chromium is installed: apt-get install chromium", allow_module_level=True)

PATIENCE = 60_000  # milliseconds; the machine may be busy
MAIN = "import sys; from oht.cli import main; sys.exit(main())"
TRAINING = [
    *("train", "environments:FollowObservation", "--steps", "1e7", "--start-steps", "30", "--eval-every", "40"),
    *("--eval-episodes", "3", "--batch-size", "8", "--hidden", "8,8", "--replay-size", "100", "--max-episode", "20"),
    *("--tensorboard", "no", "--quiet"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Iterator[Path]:
    """Real runs of three methods, two seeds of one, and one that is training."""
    root = tmp_path_factory.mktemp("browser") / "runs"
    environment = {**os.environ, "PYTHONPATH": search_path(), "PROBE_PAUSE": "0.05"}
    words = [sys.executable, "-c", MAIN, *TRAINING, "--seed", "7", "--out", str(root / "training")]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for name, method, seed in (
            ("static0", "static", 0),
            ("static1", "static", 1),
            ("oht", "oht", 0),
            ("pbt", "pbt", 0),
        ):
            tiny(root / name, method, seed=seed).close()
        deadline = time.monotonic() + 120
        while not (root / "training" / "evals.csv").exists() or not (root / "training" / "evals.csv").stat().st_size:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield root
    finally:
        process.terminate()
        process.communicate(timeout=120)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "OHT_BROWSER=required, but there is no chromium"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser) -> Iterator[Page]:
    """A page that must not report an error."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield page
    context.close()
    assert [error for error in errors if "ERR_CONNECTION_REFUSED" not in error] == []  # a server that has ended


@pytest.fixture(scope="module")
def address(root) -> Iterator[str]:
    with watch.Server(root) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    page.wait_for_selector("body[data-drawn]")
    return page


def row(page: Page, name: str) -> Locator:
    return page.locator("#runs tbody tr", has=page.get_by_role("cell", name=name, exact=True))


def names_in_legend(page: Page, part: str) -> list[str]:
    return page.locator(f"{part} .legendtext").all_text_contents()


def test_the_live_page(page, address):
    opened(page, address)
    # a table of all runs; the one that trains moves while the page is open
    expect(page.locator("#runs tbody tr")).to_have_count(5)
    expect(row(page, "static0")).to_contain_text("done")
    expect(row(page, "training").locator(".state")).to_have_text("running")
    expect(page.locator("#status")).to_contain_text("live: 1 training")
    title = row(page, "training").locator(".progress").get_attribute("title")
    assert title is not None
    page.wait_for_function("before => document.querySelector('tr.focus .progress').title !== before", arg=title)

    # returns: a mean of seeds, each seed, over wall time
    page.wait_for_selector("#returns .scatterlayer .trace", state="attached")
    assert "static, steps 120 (2 seeds)" in names_in_legend(page, "#returns")
    page.get_by_role("button", name="each seed").click()
    page.wait_for_function("() => document.querySelector('#returns').textContent.includes('static, steps 120, seed 1')")
    page.get_by_role("button", name="wall time").click()
    page.wait_for_function("() => document.querySelector('#returns').textContent.includes('wall time (')")

    # filter, sort, select several
    page.get_by_role("searchbox").fill("static s1")
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    page.get_by_role("searchbox").fill("")
    page.locator("#runs th", has_text="best eval.").get_by_role("button").click()
    best = [text.replace(",", "") for text in page.locator("#runs tbody tr td:nth-child(10)").all_text_contents()]
    assert [float(text) for text in best] == sorted(float(text) for text in best)
    page.locator("#all").uncheck()
    expect(page.locator("#returns .empty")).to_have_text("No run is selected.")
    for name in ("oht", "pbt"):
        page.get_by_role("checkbox", name=f"({name})").check()
    page.wait_for_selector("#returns .scatterlayer .trace", state="attached")
    assert sorted(names_in_legend(page, "#returns")) == ["oht", "pbt"]

    # what is tuned: the values of the agents, and who continued from whose weights, said in a sentence
    row(page, "pbt").get_by_role("cell", name="pbt", exact=True).last.click()
    expect(page.locator("#tuning-note")).to_contain_text("pbt tunes")
    card = page.locator("#tuning .card[data-title=Agents]")
    card.scroll_into_view_if_needed()
    card.locator(".scatterlayer .trace").first.wait_for(state="attached")  # a horizontal line is nothing visible
    assert {"champion", "fork", "descent of the champion"} <= set(card.locator(".legendtext").all_text_contents())
    fork = card.locator(".scatterlayer .trace").last.locator("path.point").first
    fork.hover(force=True)
    expect(card.locator(".hoverlayer")).to_contain_text("continued from")

    # the config of a run, and what differs from another
    page.locator("#other").select_option(label=page.locator("#other option", has_text="(static1)").inner_text())
    page.locator("#differences").check()
    expect(page.locator("#config tr.differs td.setting", has_text="method")).to_have_count(1)
    expect(page.locator("#config tr", has_text="batch_size")).to_have_count(0)


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_wide_and_narrow_and_follows_light_and_dark(scheme, width, page, address):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor").removeprefix("rgb(").rstrip(")")
    assert (sum(map(int, background.split(","))) < 384) == (scheme == "dark")
    text = page.locator("#returns .xtitle").evaluate("e => getComputedStyle(e).fill").removeprefix("rgb(").rstrip(")")
    contrast = abs(sum(map(int, text.split(","))) - sum(map(int, background.split(","))))
    assert contrast > 250
    plot = page.locator("#returns .main-svg").first.bounding_box()
    assert plot is not None
    assert 0.75 * width < plot["width"] <= width


def test_the_page_says_when_the_server_has_ended(page, root):
    process = subprocess.Popen([sys.executable, "-c", MAIN, "watch", str(root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    opened(page, process.stdout.readline().split()[0])
    process.terminate()
    process.communicate(timeout=60)
    page.locator("#gone").wait_for()


def test_the_report_needs_no_network(page, root, tmp_path):
    out = html_report.write_report(root, tmp_path / "report.html")
    page.context.set_offline(True)
    opened(page, out.as_uri())
    page.wait_for_selector("#returns .scatterlayer .trace", state="attached")
    assert "static, steps 120 (2 seeds)" in names_in_legend(page, "#returns")
    part = page.locator("details", has_text="pbt, seed 0")
    part.locator("summary").click()
    part.locator(".scatterlayer .trace").first.wait_for(state="attached")
    expect(part.locator("pre")).not_to_be_empty()
    expect(part.locator(".settings")).to_contain_text("population")
