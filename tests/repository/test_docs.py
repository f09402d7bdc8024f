"""README and docs: every block does what its page says, every link leads somewhere.

What a block is tested by is its language. Commands (`sh`) run in a folder with small files, and
`text` or `diff` below them is what the last one printed, where `…` stands for anything. Below a
line such as "`train.py`:" a block is that file; other Python is run; TOML, YAML and JSON parse.
Above a block, `<!-- not run: why -->` says why it cannot be run here; at the top of a page,
`<!-- tested by tests/test_x.py -->` says that another test does.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import tomllib
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
import yaml
from helpers import REPOSITORY, cli, committed, git, shell
from markdown_it import MarkdownIt
from markdown_it.token import Token
from packaging.utils import canonicalize_name
from rich.console import Console

from migrator.codes import FORMER
from migrator.report.explain import every_code, explain, markdown, pages

DOCS = REPOSITORY / "docs"
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
WRITTEN = [page for page in PAGES if page.parent.name != "rules"]  # the others are generated
MARKDOWN = MarkdownIt("commonmark").enable("table")
SCRIPT = "import torch\n\nx = torch.ones(2).cuda()\nprint(x.sum().item())\n"
SAMPLES = {
    "train.py": SCRIPT,
    "src/train.py": SCRIPT,
    "src/model.py": "def moved(model):\n    return model.cuda()\n",
    "train.ipynb": json.dumps({
        "cells": [{
            "cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [],
            "source": ["!nvidia-smi\n", *SCRIPT.splitlines(keepends=True)],
        }],
        "metadata": {"accelerator": "GPU"}, "nbformat": 4, "nbformat_minor": 5,
    }),
}  # fmt: skip


def name(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


# ---- the pages of codes --------------------------------------------------------------------------


def test_the_pages_of_codes_are_what_the_rules_say() -> None:
    found = {page.name: page.read_text("utf-8") for page in (DOCS / "rules").iterdir()}
    assert found == pages(), "stale: run python docs/generate.py"
    assert set(found) == {"README.md", *(f"{code}.md" for code in every_code())}


def test_every_code_that_a_user_can_see_is_explained(tmp_path: Path) -> None:
    sources = [*(REPOSITORY / "rules").glob("*.py"), *(REPOSITORY / "migrator").glob("**/*.py")]
    named = {c for p in sources for c in re.findall(r'"([A-Z]{3}\d{3})"', p.read_text("utf-8"))}
    assert named - set(FORMER) == set(every_code())
    for code in ("ERR004", "gen001", "MOV001"):
        result = cli("explain", code, cwd=tmp_path)
        assert result.returncode == 0
        assert code.upper() in result.stdout.decode()
    assert "UPG001" in cli("explain", "LIB010", cwd=tmp_path).stdout.decode()
    assert cli("explain", "ABC123", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("entry", every_code().values(), ids=lambda entry: entry.code)
def test_an_explanation_is_plain_text_with_whole_lines_of_code(entry) -> None:  # type: ignore[no-untyped-def]
    tokens = MARKDOWN.parse(markdown(entry))
    inner = [token.type for outer in tokens for token in outer.children or ()]
    assert not {"html_inline", "strong_open", "em_open"} & set(inner)  # `__init__` is code
    console = Console(width=50, file=StringIO())
    explain(entry, console)
    printed = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    code = [line for token in tokens if token.type == "fence" for line in token.content.split("\n")]
    assert set(code) <= set(printed)


# ---- blocks --------------------------------------------------------------------------------------


@dataclass
class Folder:
    """Where the blocks of a page run."""

    root: Path
    printed: str = ""  # by the last command

    def run(self, block: Token, file: str) -> None:
        language, text = block.info, block.content
        if file:
            path = self.root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            git(self.root, "add", "-A")
        if language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                self.command(line)
        elif language in ("text", "diff") and not file:
            shown = [re.escape(part) for part in text.strip("\n").split("…")]
            assert re.search(".*".join(shown), self.printed, re.DOTALL), self.printed
        elif language == "python" and not file:
            with contextlib.chdir(self.root), contextlib.redirect_stdout(StringIO()) as out:
                exec(compile(text, "<block>", "exec"), {"__name__": "block"})
            self.printed = out.getvalue()
        elif language in PARSERS:
            PARSERS[language](text)
        else:
            assert file, f"what is a block of {language!r} tested by?"

    def command(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        if not words:
            return
        if words[0] == "tpu-migrate" and not set(words) & {"|", ">", "<", "&&", "||", ";"}:
            result = cli(*words[1:], cwd=self.root)
        else:
            result = shell(line, cwd=self.root)
        printed = (result.stdout + result.stderr).decode()
        finds = {"--diff", "--check"} & set(words)
        assert result.returncode in ((0, 1) if finds else (0,)), f"{line}\n{printed}"
        self.printed = re.sub(r"^(?:---|\+\+\+|@@) .*\n", "", printed, flags=re.MULTILINE)


PARSERS = {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}
COMMENT = re.compile(r"\s*<!-- (not run|tested by):? (.+?) -->\s*")


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_blocks(page: Path, tmp_path: Path) -> None:
    tokens = MARKDOWN.parse(page.read_text("utf-8"))
    folder = Folder(committed(tmp_path, SAMPLES))
    ran, marked = [], 0
    for number, token in enumerate(tokens):
        mark = COMMENT.fullmatch(tokens[number - 1].content) if number else None
        if token.type == "html_block":
            kind, why = COMMENT.fullmatch(token.content).groups()  # type: ignore[union-attr]
            if kind == "tested by":
                assert page.name in (REPOSITORY / why).read_text("utf-8")
                return
            assert tokens[number + 1].type == "fence", why
        marked += mark is not None
        if token.type != "fence" or mark:
            continue
        above = tokens[number - 2].content if tokens[number - 1].type == "paragraph_close" else ""
        file = re.search(r"`([\w./-]+\.\w+)`:$", above)
        folder.run(token, file[1] if file else "")
        ran.append(f"{token.info} {file[1] if file else ''}, line {token.map[0] + 1}")  # type: ignore[index]
    print("ran:", *ran, sep="\n")
    assert len(ran) + marked == sum(token.type == "fence" for token in tokens)


# ---- links ---------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Names of the headings, as GitHub makes them."""
    tokens = MARKDOWN.parse(page.read_text("utf-8"))
    titles = [tokens[n + 1].content for n, t in enumerate(tokens) if t.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> list[str]:
    inner = [t for outer in MARKDOWN.parse(page.read_text("utf-8")) for t in outer.children or ()]
    return [str(t.attrGet("href")) for t in inner if t.type == "link_open"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "README.md")}
    assert listed >= {page for page in DOCS.glob("*.md") if page.name != "README.md"}


def test_tests_that_are_named_are_there() -> None:
    text, file = (DOCS / "testing.md").read_text("utf-8"), Path()
    named = re.findall(r"`(tests/[\w/]+\.py)?(?:::(test_\w+))?`", text)
    assert len(named) > 40
    for path, test in named:
        file = REPOSITORY / path if path else file
        assert not test or f"def {test}(" in file.read_text("utf-8"), (path, test)


def test_files_of_the_tool_that_are_named_are_there() -> None:
    texts = [page.read_text("utf-8") for page in (REPOSITORY / "README.md", *DOCS.glob("*.md"))]
    named = {path for text in texts for path in re.findall(r"`(migrator/[\w/]+\.py)`", text)}
    assert len(named) > 4
    assert [path for path in sorted(named) if not (REPOSITORY / path).is_file()] == []
    stages = (DOCS / "how-a-file-is-migrated.md").read_text("utf-8")
    rooms = ("", "migrator", "migrator/pipeline", "migrator/runs")
    homes = [REPOSITORY / room for room in rooms]
    for path in re.findall(r"\(`((?:[a-z_]+/)*[a-z_]+\.py)`", stages):
        assert any((home / path).is_file() for home in homes), path


def test_extras_are_written_as_the_metadata_has_them() -> None:
    """Releases of pip before 23.3 do not find `torch_xla`."""
    table = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    there = {canonicalize_name(extra) for extra in table["optional-dependencies"]}
    texts = [page.read_text("utf-8") for page in WRITTEN]
    named = [
        extra for text in texts for extra in re.findall(r"'(?:\.|tpu-migrate)\[([^\]]+)\]'", text)
    ]
    assert {"torch-xla", "torchax", "watch"} <= {*named} <= there
