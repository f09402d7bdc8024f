"""What source and programs print can't command the runner of a workflow, nor a terminal."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import cli, committed, git, write_tree

from migrator.report.terminal import console

# As its documentation has it: blanks in front are passed over; `##[` may be anywhere.
COMMAND = re.compile(r"^\s*::(\S+?)(?: [^:]*)?::|##(?:vso)?\[")
ORDERS = "::add-mask::a\n::set-env name=X::y\n x ##[add-path]/tmp\n##vso[task.setvariable]x\n"
SOURCE = (
    f'"""\n{ORDERS}"""\nimport torch\n\n\ndef f(x):\n    return x.cuda()\n'
    f'\n\n"""\n{ORDERS}"""\n\n\ndef g(x):\n    return torch.cuda.Stream()\n'
)
NAME = "::add-mask::b ##[x].py"


def obeyed(output: str) -> list[str]:
    """The lines that a runner obeys, without those that only show something."""
    found, stopped = [], ""
    for line in output.splitlines():
        match = COMMAND.search(line)
        if match is None:
            continue
        if stopped:
            stopped = "" if match[1] == stopped else stopped
        elif match[1] == "stop-commands":
            stopped = line.rpartition("::")[2]
        elif match[1] not in ("error", "warning", "notice", "group", "endgroup"):
            found.append(line)
    return found


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    tree = committed(tmp_path / "p", {"a.py": SOURCE, NAME: SOURCE})
    cli(".", "--target", "torchax", "--allow-dirty", cwd=tree)
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "migrated")
    git(tree, "checkout", "-q", "HEAD~1", ".")
    return tree


LOOK = (".", "--target", "torchax")


@pytest.mark.parametrize(
    "arguments",
    [
        (*LOOK, "--check"), (*LOOK, "--check", "-v"), (*LOOK, "--diff"),
        (*LOOK, "--diff", "--with-runtime"), ("assess", "."),
        *((*LOOK, "--check", "--format", form)
          for form in ("github", "json", "markdown", "sarif", "gitlab")),
        (*LOOK, "--check", "--diff-base", "HEAD", "--format", "github-review"),
        *(("review", "HEAD~1..HEAD", "--target", "torchax", "-v", "--format", form)
          for form in ("console", "json", "markdown")),
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_line_is_a_command(root: Path, arguments: tuple[str, ...]) -> None:
    found = cli(*arguments, cwd=root)
    assert found.returncode in (0, 1), found.stderr
    for output in (found.stdout, found.stderr):
        assert obeyed(output.decode()) == []
    if "json" in arguments:
        assert NAME in {file["path"] for file in json.loads(found.stdout)["files"]}


def test_a_diff_in_a_file_has_nothing_added(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "migrator", *LOOK, "--diff"]
    with (tmp_path / "x.patch").open("wb") as file:
        subprocess.run(command, cwd=root, stdout=file, stderr=subprocess.DEVNULL)
    assert b"stop-commands" not in (tmp_path / "x.patch").read_bytes()
    piped = subprocess.run(command, cwd=root, capture_output=True).stdout
    assert piped.startswith(b"::stop-commands::")
    git(root, "reset", "-q", "--hard", "HEAD~1")
    git(root, "apply", "-", stdin=piped)  # what is around it is no obstacle
    assert b"to(" in (root / "a.py").read_bytes()


def test_an_annotation_holds_no_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    evil = "\x1b]0;title\x07\x1b[31m\u202e\x9b"
    text = f"import torch\nx = torch.ones(1).cuda()  # {evil}\ntorch.cuda.Stream()  # {evil}\n"
    write_tree(tmp_path, {f"a{evil}.py": text, "b.py": text})
    found = cli(*LOOK, "--check", "--format", "github", cwd=tmp_path).stdout.decode()
    assert "\\x1b" in found
    assert not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", found)


def test_what_a_program_printed_is_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` shows the last lines of its output."""
    from rich.text import Text

    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    out = console()
    out.print(Text(f"first\n{ORDERS}  ::warning::x"))
    out.print(Text("::add"), end="")
    out.print(Text.assemble(("  ", "red"), ("::add-mask::z", "blue")))
    printed = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert not COMMAND.search(printed) and not any(map(COMMAND.search, printed.split("\n")))
    assert "add-mask" in printed
