"""The documentation as a site: it builds strictly, and reads as it does in the repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from helpers import REPOSITORY
from markdown_it import MarkdownIt

DOCS = REPOSITORY / "docs"
PAGES = [*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")]
MARKDOWN = MarkdownIt("commonmark").enable("table")
COUNTED = ("h1", "h2", "h3", "li", "table", "tr", "pre", "blockquote")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as mkdocs.yml says: strictly, so a link that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "--site-dir", folder],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0 and not result.stdout, result.stdout + result.stderr
    return folder


def built(page: Path) -> str:
    """Where a page of the repository is on the site."""
    inside = page.is_relative_to(DOCS)
    path = page.relative_to(DOCS) if inside else "repository" / page.relative_to(REPOSITORY)
    return path.with_name(path.name.replace("README", "index")).with_suffix(".html").as_posix()


class Article(HTMLParser):
    """The elements of a page's own text, and what the page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.loaded: list[str] = []
        self.drawn: list[str] = []  # by a library that the theme loads from a server
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.inside |= tag == "article"
        if self.inside:
            self.elements[tag] += 1
        if "mermaid" in (values.get("class") or "").split():
            self.drawn.append(tag)
        if tag in ("script", "img", "link", "iframe"):
            self.loaded.append(values.get("src") or values.get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        self.inside &= tag != "article"


def articles(site: Path) -> Iterator[tuple[Path, Article]]:
    for page in PAGES:
        yield page, Article((site / built(page)).read_text("utf-8"))


def test_pages_have_the_structure_that_they_have_in_the_repository(site: Path) -> None:
    """The site's Markdown is another one: a list that is indented less is none there."""
    differ = []
    for page, article in articles(site):
        expected = Counter(re.findall(r"<(\w+)", MARKDOWN.render(page.read_text("utf-8"))))
        if any(article.elements[tag] != expected[tag] for tag in COUNTED):
            differ.append(page.name)
    assert differ == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page, article in articles(site):
        assert [url for url in article.loaded if "//" in url] == [], page
        assert article.drawn == [], page


def test_every_page_is_found_by_its_title(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    assert {entry["location"] for entry in index["docs"]} >= {built(page) for page in PAGES}
