"""A browser, and a report that it opens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers import cli, write_tree

from tests.report.pages import PROJECT, TO, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = chromium()
        if path is None and not Path(playwright.chromium.executable_path).exists():
            pytest.fail("no Chromium: install it (apt-get install chromium), or set CHROMIUM")
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small project with everything in it."""
    root = write_tree(tmp_path_factory.mktemp("project"), PROJECT)
    run = cli(".", *TO, "--report", "out.html", "-q", cwd=root)
    assert run.returncode == 2, run.stderr  # a file of it is broken
    return root / "out.html"


@pytest.fixture
def opened(browser: Browser) -> Iterator[Any]:
    """Open a report; what the page complains of, or asks, fails the test."""
    problems: list[str] = []
    contexts = []

    def open_page(path: Path, place: str = "", **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append("a dialog"), dialog.dismiss()))
        page.on("request", lambda r: r.url.startswith("file:") or problems.append(r.url))
        page.goto(path.as_uri() + place)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_WORKSPACE", "GITHUB_BASE_REF"):
        monkeypatch.delenv(name, raising=False)
