"""The HTML report, in a real browser (Chromium; tests/run.py installs one where it can)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from helpers import cli, one_line, write_tree

from tests.report.pages import SCRIPT, TO, part, sections

# ---- the file, and where it is written -----------------------------------------------------------


def test_it_is_one_file_that_loads_nothing(project: Path) -> None:
    text = project.read_text("utf-8")
    assert not re.search(r"<(?:link|img|iframe|script src)", text)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy and "default-src &#39;none&#39;" in policy[1] and "unsafe" not in policy[1]


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": SCRIPT})
    pages = []
    for name in ("one.html", "two.html"):
        cli("a.py", *TO, "--report", name, cwd=tmp_path)
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]


def test_it_comes_with_every_way_to_run(tmp_path: Path) -> None:
    for number, way in enumerate((["--diff"], ["-o", "copy"], ["--check", "--format", "json"])):
        write_tree(tmp_path, {"a.py": SCRIPT})
        name = f"new/folder/{number}.html"
        run = cli("a.py", "--target", "torchax", *way, "--report", name, cwd=tmp_path)
        said = b"" if "json" in way else f"report: {name}".encode()
        assert run.returncode < 2 and said in run.stdout + run.stderr
        assert "Migration for torchax" in (tmp_path / name).read_text("utf-8")
    assert (tmp_path / "copy" / "a.py").exists()
    json.loads(run.stdout)


def test_what_it_would_hide_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": SCRIPT, "mine.html": "<p>mine</p>", "dir.html/x": ""})
    place = ("a.py", "--target", "torchax", "--allow-dirty", "--report")
    for name, word in (
        ("a.py", "ends in .html"), ("mine.html", "not a report"), ("dir.html", "is a folder"),
        ("a.py/b.html", "not a folder"),
    ):  # fmt: skip
        run = cli(*place, name, cwd=tmp_path)
        assert run.returncode == 2
        one_line(run.stderr, "--report", word)
    assert (tmp_path / "a.py").read_text() == SCRIPT
    assert (tmp_path / "mine.html").read_text() == "<p>mine</p>"
    run = cli("-", "--target", "torchax", "--report", "o.html", cwd=tmp_path, stdin=b"")
    one_line(run.stderr, "--report", "standard input")


def test_an_older_report_is_written_over(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": SCRIPT})
    for _ in range(2):
        assert cli("a.py", *TO, "--report", "r.html", cwd=tmp_path).returncode == 1


# ---- what it shows -------------------------------------------------------------------------------


def test_overview_tree_and_files(project: Path, opened: Any) -> None:
    page = opened(project)
    assert page.locator("h1").inner_text().startswith("Migration for torchax")
    assert page.locator(".families rect").count() > 2
    assert page.locator("a.leaf").count() == 4  # clean files are listed, and no links
    assert page.locator("span.leaf").inner_text().endswith("clean.py")
    assert sections(page) == ["app/book.ipynb", "app/train.py", "lib/broken.py", "lib/moves.py"]
    assert "never closed" in part(page, "broken.py").locator(".note.failed").inner_text()
    assert part(page, "book.ipynb").locator("h3").inner_text() == "Cell 2"


def test_each_change_has_its_rule_and_each_finding_its_line(project: Path, opened: Any) -> None:
    page = opened(project)
    train = part(page, "train.py")
    moved = train.locator("tr:has(.text.gone:has-text('ones(2).cuda'))")
    assert moved.locator(".come").inner_text() == 'x = torch.ones(2).to("jax")'
    head = moved.locator("xpath=preceding-sibling::tr[contains(@class, 'hunk')][1]")
    assert head.locator(".code").all_inner_texts() == ["MOV001"]
    assert head.locator(".safety").inner_text() == "safe"
    left = train.locator("tr:has(.note.left:has-text('torch.cuda.Stream'))")
    assert "hours" in left.inner_text()
    above = left.locator("xpath=preceding-sibling::tr[1]")
    assert above.locator(".text").last.inner_text() == "stream = torch.cuda.Stream()"
    assert train.locator(".keyword", has_text="def").count()
    head.locator(".code").click()
    dialog = page.locator("dialog[open]")
    assert "MOV001" in dialog.inner_text() and "ignore[MOV001]" in dialog.inner_text()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_equal_lines_are_folded_and_can_be_shown(project: Path, opened: Any) -> None:
    page = opened(project)
    train = part(page, "train.py")
    assert not page.get_by_text("# five", exact=True).count()
    fold = train.locator(".folded button").first
    fold.focus()
    page.keyboard.press("Enter")
    assert page.get_by_text("# five", exact=True).first.is_visible()
    train.locator(".all").click()
    assert train.locator(".folded").count() == 0
    shown = train.locator(".text.before:not(.none)").all_inner_texts()
    assert [line.rstrip("\n") for line in shown] == SCRIPT.splitlines()
    train.locator(".all").click()
    assert train.locator(".folded").count()


def test_empty_reports_say_so(tmp_path: Path, opened: Any) -> None:
    write_tree(tmp_path, {"clean.py": "x = 1\n", "advice.py": ADVICE})
    for name, text in (("clean", "There is no GPU construct in it."), ("advice", "0 would change")):
        cli(f"{name}.py", *TO, "--report", f"{name}.html", "-q", cwd=tmp_path)
        page = opened(tmp_path / f"{name}.html")
        assert text in page.locator(".overview .lead").inner_text()
        assert len(sections(page)) == (name == "advice")
    assert page.locator(".note.advice").first.is_visible()


ADVICE = """import torch
from torch import nn


class Net(nn.Module):  # on CUDA or not
    @torch.no_grad()
    def generate(self, ids):
        for _ in range(9):
            ids = torch.cat((ids, self(ids)), dim=1)
        return ids
"""
