"""The page of the HTML report: windows, colours, paper, hostile input."""

from __future__ import annotations

import math
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import cli, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.diagnostics import START, Diagnostic, Outcome, Severity
from migrator.pipeline.result import Result
from migrator.report import html
from migrator.report.html.verify_numbers import LayerNumbers, PageNumbers, Row
from migrator.runs.run_report import FileReport, Report
from tests.report.pages import EVIL, SCRIPT, TO, count, sections


def test_narrow_windows_have_one_column(project: Path, opened: Any) -> None:
    page = opened(project, viewport={"width": 420, "height": 800})
    assert page.locator("table.unified").count() and not page.locator("table.split").count()
    assert page.evaluate("document.documentElement.scrollWidth") == 420
    for name in page.locator("tbody .names").all():  # what the letters of a family stand for
        assert name.is_visible() and name.evaluate("e => e.scrollWidth <= e.clientWidth")
    page.click("#show-files")
    page.locator("a.leaf", has_text="moves.py").click()
    assert not page.locator("#files").is_visible()
    page.set_viewport_size({"width": 1300, "height": 800})
    page.wait_for_selector("table.split")


def test_colours_have_contrast_in_both_modes(project: Path, opened: Any) -> None:
    page = opened(project)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) == [], scheme
    backgrounds = set()
    for _ in range(2):
        page.keyboard.press("d")
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2


# Texts whose contrast with what is behind them is below AA's 4.5 (WCAG 2, 1.4.3).
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) =>
      v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const [a, b] = [rgba(style.color).slice(0, 3), behind(element)].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${walker.currentNode.data} ${element.className} ${ratio}`);
  }
  return poor;
}"""


def test_everything_has_a_name_and_the_keyboard_reaches_it(project: Path, opened: Any) -> None:
    page = opened(project)
    tree = page.locator("body").aria_snapshot()
    assert not re.search(r"- (?:button|link|searchbox|checkbox|dialog|region|navigation)$", tree)
    for landmark in ("banner", "main", "navigation", "search"):
        assert f"- {landmark}" in tree
    ids = page.eval_on_selector_all("[id]", "all => all.map((e) => e.id)")
    assert len(ids) == len(set(ids))
    references = page.eval_on_selector_all(
        "[aria-controls], [aria-labelledby]",
        "all => all.flatMap((e) => [e.getAttribute('aria-controls'),"
        " e.getAttribute('aria-labelledby')]).filter(Boolean)",
    )
    assert set(references) - {"rule-title"} <= set(ids)  # which is in a dialog when it is open
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("#count").get_attribute("aria-live") == "polite"
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate(FOCUSED))
    assert not [name for name in seen if name.endswith("hidden")]
    assert {"query", "layout", "theme", "show-help", "path"} <= seen


FOCUSED = """() => {
  const element = document.activeElement;
  const { outlineStyle } = getComputedStyle(element);
  const seen = element === document.body || outlineStyle !== 'none';
  return (element.id || element.className || element.nodeName) + (seen ? '' : ' hidden');
}"""


def test_paper_has_all_of_it(tmp_path: Path, opened: Any) -> None:
    files = {f"m{n}.py": f"import torch\nx{n} = torch.ones({n}).cuda()\n" for n in range(40)}
    write_tree(tmp_path / "src", files)
    cli("src", *TO, "--report", "r.html", "-q", cwd=tmp_path)
    page = opened(tmp_path / "r.html")
    assert (
        page.locator(".come", has_text="jax").count() < 40
    )  # files far below are not rendered yet
    page.evaluate(
        "addEventListener('beforeprint', () => { window.printed = [...document.querySelectorAll("
        "'.unified .come')].filter((e) => e.checkVisibility() && e.textContent.includes('jax'))"
        ".length })"
    )
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) > 3
    assert page.evaluate("window.printed") == 40
    page.emulate_media(media="print")
    assert not page.locator(".top, .files").filter(visible=True).count()


# ---- hostile input, and much of it ---------------------------------------------------------------


def test_numbers_of_a_script_stand_above_its_changes(tmp_path: Path, opened: Any) -> None:
    write_tree(tmp_path, {"train.py": SCRIPT})
    report = migrate_paths([tmp_path], target="torchax", config=Config())
    row = Row("losses", "step by step", "4", "1.2e-07", "0.5 %", "pass", "pass", True)
    losses = [(2.0, 2.0), (1.5, math.nan), (1.0, 1.25)]
    parting, notes = ["first difference: x"], ["one note"]
    numbers = PageNumbers(f"FAIL: {EVIL}", False, [row], losses, parting, notes, "allowed: a bit")
    html.write(report, tmp_path / "r.html", written=False, numbers=numbers)
    page = opened(tmp_path / "r.html")
    section = page.locator(".measured")
    assert section.locator(".verdict").inner_text() == f"FAIL: {EVIL}"
    assert section.locator("tbody tr").inner_text().split() == row_words(row)
    assert section.locator(".about").inner_text() == "allowed: a bit"
    assert "at most 0.25" in section.locator("figcaption").inner_text()
    lines = [line.get_attribute("points") for line in section.locator("polyline").all()]
    assert lines == ["0.0,0.0 360.0,90.0 720.0,180.0", "0.0,0.0 720.0,135.0", "0.0,60.0 720.0,0.0"]
    assert section.locator(".parting, .note").all_inner_texts() == [
        "first difference: x", "Note: one note",
    ]  # fmt: skip


def test_layers_are_a_tree_that_is_open_where_one_fails(tmp_path: Path, opened: Any) -> None:
    write_tree(tmp_path, {"train.py": SCRIPT})
    fine = [("output", "1%", True), ("gradient", "2%", True)]
    fails = [("output", "1%", True), ("gradient", "300 x", False)]
    block = LayerNumbers(
        EVIL, fails, "the first beyond its bound: gradient", [LayerNumbers("up", fine, "", [])]
    )
    other = LayerNumbers("other", fine, "", [LayerNumbers("hidden", fine, "", [])])
    model = LayerNumbers("Net", [], "", [block, other])
    numbers = PageNumbers("FAIL", False, [], [], [], [], "", [model])
    report = migrate_paths([tmp_path], target="torchax", config=Config())
    html.write(report, tmp_path / "r.html", written=False, numbers=numbers)
    tree = opened(tmp_path / "r.html").locator(".layers")
    shown = tree.locator("li b")
    assert [each.inner_text() for each in shown.all() if each.is_visible()] == [
        "Net", EVIL, "up", "other",
    ]  # fmt: skip
    assert tree.locator(".bad").all_inner_texts() == [
        "gradient 300 x", "← the first beyond its bound: gradient",
    ]  # fmt: skip


@pytest.mark.parametrize(("width", "rows"), [(1200, [5]), (1000, [3, 2])])
def test_no_card_has_a_row_of_its_own(
    width: int, rows: list[int], tmp_path: Path, opened: Any
) -> None:
    write_tree(tmp_path, {"train.py": SCRIPT})
    html.write(migrate_paths([tmp_path], config=Config()), tmp_path / "r.html", written=False)
    page = opened(tmp_path / "r.html")
    page.set_viewport_size({"width": width - 15, "height": 800})  # a scroll bar takes 15
    cards = page.locator(".cards > div")
    tops = [card.bounding_box()["y"] for card in cards.all()]
    assert [tops.count(top) for top in sorted(set(tops))] == rows


def row_words(row: Row) -> list[str]:
    values = (row.what, row.run, row.number, row.largest, row.share)
    return " ".join((*values, row.state)).split()


def test_nothing_in_the_source_is_run(tmp_path: Path, opened: Any) -> None:
    source = (
        "import torch\n"
        f"a = '</script><script>alert(1)</script><!-- {EVIL}'; b = x.cuda()\n"
        "c = '\u2028\u2029\u202e evil \u2066'; d = x.cuda()\n"
        f"s = torch.cuda.Stream()  # </style>{EVIL}\n"
        "e = '&lt;b&gt;'; torch.cuda.Stream()\n"
    )
    name = f"{EVIL.replace('/', '')}\u202e.py"
    write_tree(tmp_path / "src", {name: source, "javascript:alert(1).py": source})
    evil = Diagnostic(START, "ERR003", Severity.ERROR, f"</script>{EVIL}`{EVIL}`", None, EVIL)
    report = migrate_paths([tmp_path / "src"], config=Config())
    report.files.append(FileReport(Path(f"z/{EVIL}"), Result(b"", b"", (evil,))))
    report.files.append(FileReport(Path(os.fsdecode(b"z/\xff.py")), report.files[0].result))
    report.errors.append(EVIL)
    html.write(report, tmp_path / "r.html", written=False)
    page = opened(tmp_path / "r.html")
    page.fill("#query", "<img src=x")
    page.wait_for_selector("mark")
    assert f"z/{EVIL}" in sections(page)
    page.fill("#query", "")
    page.keyboard.press("n")
    page.keyboard.press("e")
    assert page.locator("img, iframe, main script").count() == 0
    text = page.locator("#changes").inner_text()
    assert "</script><script>alert(1)</script><!--" in text and "&lt;b&gt;" in text
    assert "⟨U+2028⟩⟨U+2029⟩⟨U+202E⟩ evil ⟨U+2066⟩" in text
    assert "\u202e" not in page.locator("body").inner_text()


def test_a_thousand_files_open_and_filter_fast(tmp_path: Path, opened: Any) -> None:
    lines = "".join(f"# line {n}\n" for n in range(150))
    before = f"import torch\n{lines}x = y.cuda()\n".encode()
    result = migrate_paths([write_tree(tmp_path, {"a.py": before}) / "a.py"]).files[0].result
    left = Diagnostic(START, "CUD003", Severity.WARNING, "no streams", Outcome.REPORTED, "s")
    other = Result(before, before, (left,))
    files = [
        FileReport(Path(f"src/p{n % 20}/m{n}.py"), result if n % 3 else other) for n in range(1000)
    ]
    html.write(Report("torchax", files), tmp_path / "r.html", written=False)
    assert (tmp_path / "r.html").stat().st_size < 8 * 2**20
    started = time.perf_counter()
    page = opened(tmp_path / "r.html")
    page.wait_for_selector("#changes .diff")
    assert time.perf_counter() - started < 10  # under a second on a machine that does nothing else
    assert page.locator(".diff").count() < 50
    clicked = "() => { const t = performance.now(); document.querySelector('#outcome [value=left]')"
    assert page.evaluate(f"{clicked}.click(); return performance.now() - t }}") < 3000
    count(page, "334 findings in 334 of 1,000 files")
    page.keyboard.press("n")
    assert page.locator(".file:visible").count() == 334
