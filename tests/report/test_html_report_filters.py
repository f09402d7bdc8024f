"""The HTML report: filters, search, keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers import cli, wheel_for, write_tree

from tests.report.pages import TO, count, focused, part, sections


def test_filters_leave_what_was_asked_for(project: Path, opened: Any) -> None:
    page = opened(project)
    page.click("#outcome [value=left]")
    assert sections(page) == ["app/train.py"]
    assert page.locator(".note.left").count() == 2
    assert "CUD002" not in page.locator(".head .code").all_inner_texts()
    assert page.locator("#outcome [value=left]").get_attribute("aria-pressed") == "true"
    page.click("#outcome [value=left]")
    page.click("#rules-menu summary")
    page.check("#rule [value=DEV002]")
    assert sections(page) == ["app/train.py", "lib/moves.py"]
    assert all("DEV002" in head for head in page.locator(".head").all_inner_texts())
    page.keyboard.press("Escape")
    shown = page.locator(".come").count()
    page.get_by_text("change that the filters leave out").first.click()
    assert page.locator(".come").count() > shown
    page.click("#clear")
    page.click("#status [value=failed]")
    assert sections(page) == ["lib/broken.py"]
    page.click("#clear")
    page.fill("#path", "lib/")
    part(page, "train.py").wait_for(state="hidden")
    assert sections(page) == ["lib/broken.py", "lib/moves.py"]
    page.fill("#path", "nowhere")
    page.wait_for_selector("#nothing:visible")
    page.click("#nothing button")
    assert len(sections(page)) == 4


def test_unsafe_edits_can_be_told(tmp_path: Path, opened: Any) -> None:
    write_tree(
        tmp_path, {"a.py": "import torch\n\n\ndef f(model, x):\n    model.half()\n    return x\n"}
    )
    cli("a.py", *TO, "--unsafe", "--report", "r.html", "-q", cwd=tmp_path)
    page = opened(tmp_path / "r.html")
    page.click("#safety [value=unsafe]")
    assert page.locator(".head .safety").all_inner_texts() == ["⚠ unsafe: may change results"]
    assert page.locator(".come").all_inner_texts() == ["    model.bfloat16()"]


def test_unsafe_edits_stand_out_and_their_reason_stands_once(tmp_path: Path, opened: Any) -> None:
    source = "import torch\n\n\ndef f(model, x):\n    model.half()\n"
    source += "    y = 1\n" * 8 + "    model.half()\n    z = 1\n    return x.cuda()\n"
    write_tree(tmp_path, {"a.py": source})
    cli("a.py", *TO, "--unsafe", "--report", "r.html", "-q", cwd=tmp_path)
    page = opened(tmp_path / "r.html")
    heads = page.locator(".head").all_inner_texts()
    assert ["unsafe" in head for head in heads] == [True, True, False]
    first, second = page.locator(".head.unsafe").all()
    said = [text for text in first.inner_text().splitlines() if "bfloat16" in text]
    assert said and not any(text in second.inner_text() for text in said)
    colours = [
        page.locator(f".head{kind}").first.evaluate("e => getComputedStyle(e).backgroundColor")
        for kind in (".unsafe", ":not(.unsafe)")
    ]
    assert colours[0] != colours[1]


STEP = """import torch
from torch import nn

model = nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for epoch in range(5):
    inputs, targets = x.cuda(), y.cuda()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
"""


def test_the_overview_says_what_the_target_and_the_runtime_are(tmp_path: Path, opened: Any) -> None:
    write_tree(tmp_path, {"a.py": STEP + "k = torch.utils.cpp_extension.load('k', ['k.cu'])\n"})
    cli("a.py", *TO, "--report", "r.html", "-q", cwd=tmp_path)
    overview = opened(tmp_path / "r.html").locator(".overview")
    text = overview.inner_text()
    assert "torchax: PyTorch on JAX" in text and "hardest: rewrite" in text
    assert f"{wheel_for('torchax')} is written into the project" in text
    assert overview.get_by_role("link", name="torchax", exact=True).count() == 1


def test_search_finds_names_messages_and_code(project: Path, opened: Any) -> None:
    page = opened(project)
    for words, files in (
        ("moves.PY", ["lib/moves.py"]),
        ("streams", ["app/train.py"]),
        ("torch.zeros(3)", ["lib/moves.py"]),
        ("needle_in", ["app/train.py"]),
    ):
        page.fill("#query", words)
        page.wait_for_function(
            "files => String([...document.querySelectorAll('.file:not([hidden]) h2')]"
            ".map((e) => e.textContent)) === String(files)", arg=files,
        )  # fmt: skip
    assert page.locator("mark").first.inner_text() == "needle_in"
    count(page, "1 line in 1 of 5 files")
    page.fill("#query", "nothing has this")
    count(page, "Nothing in 0 of 5 files")


def test_keys_move_and_help(project: Path, opened: Any) -> None:
    page = opened(project)
    for keys, where in (
        ("j", "head app/book.ipynb"), ("jjj", "note left app/train.py"),
        ("kkk", "head app/book.ipynb"), ("nn", "h2 lib/broken.py"), ("p", "h2 app/train.py"),
    ):  # fmt: skip
        for key in keys:
            page.keyboard.press(key)
        assert focused(page) == where, keys
    assert "train.py" in page.locator('.leaf[aria-current="true"]').inner_text()
    page.keyboard.press("/")
    page.keyboard.type("zeros")
    count(page, "1 change in 1 of 5 files")
    page.keyboard.press("Enter")
    assert focused(page) == "head lib/moves.py"
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    assert page.evaluate("[scrollY, document.activeElement.id]") == [0, "overview-title"]


def test_address_and_reload_keep_place_and_filters(project: Path, opened: Any) -> None:
    page = opened(project, "#file=lib%2Fmoves.py&hunk=1&outcome=rewritten")
    assert part(page, "moves.py").locator(".current .head").count() == 1
    assert page.locator(".current").evaluate("e => e.getBoundingClientRect().top < innerHeight")
    assert page.locator("#outcome [value=rewritten]").get_attribute("aria-pressed") == "true"
    page.keyboard.press("d")
    page.keyboard.press("k")
    before = page.evaluate("location.hash")
    assert "outcome=rewritten" in before and "moves.py" not in before
    page.reload()
    assert page.evaluate("location.hash") == before
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.goto(project.as_uri())
    page.locator(".place", has_text="train.py").first.click()
    assert page.locator(".note.current, .current .note").first.is_visible()
    page.go_back()
    page.wait_for_function("scrollY === 0")


def test_a_link_to_a_file_shows_its_beginning(opened: Any, tmp_path: Path) -> None:
    many = {f"f{n}.py": "import torch\n" + "x = torch.ones(1).cuda()\n\n" * 40 for n in range(12)}
    root = write_tree(tmp_path, many)
    cli(".", *TO, "--check", "--report", "out.html", "-q", cwd=root)
    page = opened(root / "out.html", "#file=f9.py")
    page.wait_for_timeout(800)  # while files above it are drawn
    top = page.evaluate("document.querySelector('.top').getBoundingClientRect().bottom")
    head = page.evaluate("document.querySelector('.current').getBoundingClientRect().top")
    assert top <= head < top + 40
