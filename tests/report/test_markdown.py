"""Reports in Markdown, and places in what was written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers import cli, committed
from markdown_it import MarkdownIt

from migrator.report.markup import LIMIT, code, escape_markup, fenced, prose
from tests.report.printed import CODE, HOSTILE, STEP, TO, printed


def html(text: str) -> str:
    """As GitHub renders it, but that HTML stays HTML: what breaks out shows."""
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(text)


def test_a_comment_shows_the_riskiest_edits_first(tmp_path: Path) -> None:
    source = CODE + "m = x.half()\n" + "with torch.cuda.amp.autocast():\n    z = x + 1\n"
    root = committed(tmp_path, {"a.py": source, "b.py": CODE})
    page = printed(root, "markdown")
    first, others = page.split("<details>", 1)
    assert "autocast" in first and "float16 becomes bfloat16" in first
    assert '+x = torch.ones(2).to("jax")' in others
    assert re.search(r"\* `a.py:4` CUD003 \*\*hours\*\* `torch.cuda.Stream`: streams", page)
    assert "| **all 2** |" in page
    assert "x.cuda() becomes x.to(device)" in html(printed(root, "markdown", "--select=MOV"))


def test_nothing_breaks_out_of_a_comment(tmp_path: Path) -> None:
    name = "a`|<img src=x onerror=y>@you #1\n.py"
    root = committed(tmp_path, {name: HOSTILE, "b.py": CODE})
    page = printed(root, "markdown")
    rendered = html(page)
    assert "<script" not in rendered and "<img" not in rendered and "<b>" not in rendered
    assert rendered.count("<details>") == rendered.count("</details>") == 1
    outside_of_code = re.sub(r"<(code|pre)\b.*?</\1>", "", rendered, flags=re.S)
    assert "@you" not in outside_of_code and "@everyone" not in outside_of_code
    rows = re.findall(r"<tr>(.*?)</tr>", rendered, re.S)
    assert {row.count("<td") + row.count("<th") for row in rows} == {5}


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "`",
        "``",
        "a`b``c",
        "|",
        "a|b`|",
        " x ",
        "<b>",
        "@you",
        "a\nb",
        "[x](y)",
        "\\",
        "\\|",
    ],
)
def test_spans_of_code_hold_any_text(text: str) -> None:
    expected = text.replace("\n", " ").replace("&", "&amp;").replace("<", "&lt;")
    shown = html(f"| a | b |\n|---|---|\n| {code(text)} | x |\n")
    cells = re.findall(r"<td>(.*?)</td>", shown, re.S)
    assert len(cells) == 2
    assert cells[0] == f"<code>{expected.replace('>', '&gt;')}</code>"


@pytest.mark.parametrize(
    "text", ["*a*", "<b>", "@you", "#1", "[x](y)", "a_b_c", "GH-1", "&amp;", "~x~"]
)
def test_text_has_no_markup(text: str) -> None:
    shown = (
        html(escape_markup(text)).removeprefix("<p>").removesuffix("</p>\n").replace("\u200b", "")
    )
    assert shown == text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert not re.search(r"[@#]\w|GH-\d", escape_markup(text))


def test_messages_keep_their_code() -> None:
    assert html(prose("becomes `x<y`, @you")) == "<p>becomes <code>x&lt;y</code>, @\u200byou</p>\n"


def test_a_fence_is_longer_than_what_it_holds() -> None:
    block = fenced(["```", "</details>", "`````"], "diff")
    assert html(f"{block}\n").count("<pre>") == 1
    assert html(f"{block}\n\n*after*").endswith("<p><em>after</em></p>\n")


def test_a_comment_is_never_too_long(tmp_path: Path) -> None:
    lines = "".join(f"x{n} = torch.ones({n}, device='cuda:0')\ny{n} = {n}\n" for n in range(300))
    lines += "".join(f"s{n} = torch.cuda.Stream({n})\n" for n in range(300))
    root = committed(tmp_path, {f"f{n:02}.py": f"import torch\n{lines}" for n in range(3)})
    page = printed(root, "markdown", "--unsafe")
    assert LIMIT // 2 < len(page.encode()) <= LIMIT
    assert re.search(r"… and \d+ more", page)
    assert html(page).rstrip().endswith("</details>")


# ---- places in what was written ------------------------------------------------------------------


@pytest.mark.parametrize("output", [None, "../copy"])
def test_what_is_left_is_named_where_it_now_stands(tmp_path: Path, output: str | None) -> None:
    root = committed(tmp_path / "p", {"a.py": STEP})
    there = Path(output or ".", "a.py")
    how = ["-o", output] if output else []
    run = cli(".", *TO, *how, "--format", "json=../run.json", cwd=root)
    lines = (root / there).read_text().splitlines()
    assert lines != STEP.splitlines()
    left = re.findall(r"^(\S+):(\d+):(\d+)  CUD", run.stdout.decode(), re.MULTILINE)
    assert [name for name, *_ in left] == [str(there)] * 2
    texts = [lines[int(line) - 1][int(column) - 1 :] for _, line, column in left]
    assert texts[0].startswith("torch.cuda.Stream")
    assert texts[1].startswith("torch.cuda.get_device_capability")

    (file,) = json.loads((tmp_path / "run.json").read_text())["files"]
    assert (file["path"], file["written"]) == ("a.py", str(there))
    for d in [d for d in file["diagnostics"] if d["outcome"] == "reported"]:
        for place, text in ((d["start"], STEP.splitlines()), (d["now"], lines)):
            assert text[place["line"] - 1][place["column"] - 1 :].startswith(d["construct"])


def test_two_of_one_line_have_two_columns(tmp_path: Path) -> None:
    asked = "torch.cuda.get_device_capability"
    root = committed(tmp_path, {"a.py": f"import torch\nx = y.cuda(), {asked}(), {asked}(0)\n"})
    run = cli(".", *TO, "--format", "json=run.json", cwd=root)
    line = (root / "a.py").read_text().splitlines()[-1]
    assert run.returncode == 0
    (file,) = json.loads((root / "run.json").read_text())["files"]
    places = [d["now"]["column"] - 1 for d in file["diagnostics"] if d["outcome"] == "reported"]
    assert places == [match.start() for match in re.finditer(asked, line)]


def test_what_is_not_written_stands_where_it_stood(tmp_path: Path) -> None:
    root = committed(tmp_path, {"a.py": STEP})
    run = cli(".", *TO, "--check", "--format", "json", cwd=root)
    (file,) = json.loads(run.stdout)["files"]
    assert "written" not in file and all("now" not in d for d in file["diagnostics"])
    assert "a.py:12:14  CUD005" in cli(".", *TO, "--check", cwd=root).stdout.decode()


def test_lines_in_messages_are_those_of_the_written_file(tmp_path: Path) -> None:
    source = "import torch\nmodel = torch.nn.DataParallel(net)\n"
    source += "copies(torch.cuda.device_count() * 2)\n"
    root = committed(tmp_path, {"a.py": source})
    before, after = (
        cli(".", *TO, *how, cwd=root).stdout.decode() for how in (["--check", "-v"], ["-v"])
    )
    told = [[int(n) for n in re.findall(r"\bline (\d+)", said)] for said in (before, after)]
    old, new = source.splitlines(), (root / "a.py").read_text().splitlines()
    assert told[0] != told[1]
    assert all(old[n - 1].startswith("copies(") for n in told[0])
    assert all(new[n - 1].startswith("copies(") for n in told[1])
