"""Colours, widths and characters: on terminals of any width, in pipes, and without UTF-8."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers import cli, committed, one_line

from migrator.registry import registry
from migrator.report import diff

ESCAPE = "\x1b["
LONG = "g(an_argument_with_a_long_name=1, and_another_argument_with_a_long_name=2, and_one_more=3)"
SOURCE = f"""\
import torch


def f(x):
    s = torch.cuda.Stream()
    y = {LONG}
    return x.cuda()
"""
FOLDER = "a_folder_with_quite_a_long_name/another_folder_with_quite_a_long_name"
TO = ("--target", "torchax")
on_terminals = pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals there")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return committed(tmp_path / "project", {f"{FOLDER}/module.py": SOURCE})


def settings(more: Mapping[str, str]) -> dict[str, str]:
    dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "PYTHONIOENCODING", "PYTHONUTF8")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "TERM": "xterm-256color", **more}


def piped(
    cwd: Path, *arguments: str, encoding: str = "utf-8", **more: str
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with pipes."""
    return subprocess.run(
        [sys.executable, "-m", "migrator", *arguments],
        cwd=cwd,
        env=settings({"PYTHONIOENCODING": encoding, **more}),
        capture_output=True,
        encoding=encoding,
        check=False,
    )


def written(
    cwd: Path, monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], *arguments: str
) -> str:
    """What goes to standard output where that is no terminal, with only these settings."""
    with monkeypatch.context() as here:
        for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
            here.delenv(name, raising=False)
        for name, value in environment.items():
            here.setenv(name, value)
        return cli(*arguments, cwd=cwd).stdout.decode()


def shown(cwd: Path, *arguments: str, columns: int = 80, **more: str) -> str:
    """What the command writes to a terminal of that width."""
    import fcntl
    import pty
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-m", "migrator", *arguments]
    child = subprocess.Popen(
        command, cwd=cwd, env=settings(more), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 65536):
            text += part
    except OSError:  # so Linux says that the other end is closed
        pass
    child.wait()
    os.close(ours)
    return text.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


# ---- pipes ---------------------------------------------------------------------------------------


def test_in_pipes_each_message_is_one_line_without_colours(project: Path) -> None:
    run = piped(project, ".", *TO, "--check", "--statistics")
    assert run.returncode == 1 and ESCAPE not in run.stdout
    (line,) = [x for x in run.stdout.splitlines() if x.startswith(f"{FOLDER}/module.py:5:9  ")]
    assert line.endswith("take them out, XLA overlaps the work itself")
    assert f"\n{FOLDER}/module.py takes hours: 1 of 2 constructs, CUD003\n" in run.stdout
    assert max(map(len, run.stdout.splitlines())) < 300  # nothing is filled up


def test_in_pipes_a_rule_is_one_line_and_its_explanation_is_markdown(tmp_path: Path) -> None:
    lines = piped(tmp_path, "rules").stdout.splitlines()
    assert len(lines) == len(registry().rules) + 1
    text = cli("explain", "MOV001", cwd=tmp_path).stdout.decode()
    assert text.startswith("# MOV001 ") and "```diff\n-model = Net().cuda()\n" in text
    assert ESCAPE not in text


@on_terminals
def test_on_terminals_each_part_of_a_diff_names_its_rules(tmp_path: Path) -> None:
    source = "import torch\nx = torch.ones(2).cuda()\n" + "y = 1\n" * 9 + "torch.ones(2).half()\n"
    cell = {"cell_type": "code", "source": source.splitlines(keepends=True)}
    book = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}, indent=1)
    root = committed(tmp_path, {"a.py": source, "b.ipynb": book})
    for name in ("a.py", "b.ipynb"):
        headers = re.findall("^(@@.*)", plain(shown(root, name, *TO, "--diff", "--unsafe")), re.M)
        said = [header.rpartition("@@ ")[2] for header in headers]
        assert "MOV001" in said[0] and said[1] == "PRE005 (unsafe)"
    assert not re.search("^@@.*MOV", piped(root, "a.py", *TO, "--diff").stdout, re.M)


# ---- colours -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "environment", "coloured"),
    [
        ("always", {}, True),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
        ("auto", {"FORCE_COLOR": ""}, False),
    ],
)
def test_colours_in_pipes(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    environment: dict[str, str],
    coloured: bool,
) -> None:
    expected = written(project, monkeypatch, {}, ".", *TO, "--check")
    text = written(project, monkeypatch, environment, ".", *TO, "--check", "--color", option)
    assert (ESCAPE in text) == coloured
    time = re.compile(r"\(\d.*s\)")
    assert time.sub("", plain(text)) == time.sub("", expected)


def test_a_coloured_diff_is_the_diff(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = written(project, monkeypatch, {}, ".", *TO, "--diff", "--color", "always")
    wanted = written(project, monkeypatch, {}, ".", *TO, "--diff")
    without_rules = re.sub(r"^(@@ .* @@) .*", r"\1", plain(text), flags=re.MULTILINE)
    assert ESCAPE in text and without_rules.rstrip() == wanted.rstrip()


@pytest.mark.parametrize("command", [["rules"], ["explain", "MOV001"], ["doctor"]])
def test_every_command_has_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    forced = {"FORCE_COLOR": "1"}
    assert ESCAPE in written(tmp_path, monkeypatch, {}, *command, "--color", "always")
    assert ESCAPE not in written(tmp_path, monkeypatch, forced, *command, "--color", "never")


@on_terminals
@pytest.mark.parametrize(
    ("option", "environment", "coloured"),
    [
        ("auto", {}, True),
        ("never", {}, False),
        ("auto", {"NO_COLOR": "1"}, False),
        ("auto", {"TERM": "dumb"}, False),
        ("always", {"NO_COLOR": "1"}, True),
    ],
)
def test_colours_on_terminals(
    project: Path, option: str, environment: dict[str, str], coloured: bool
) -> None:
    text = shown(project, ".", *TO, "--check", "--color", option, **environment)
    assert "CUD003" in text and (ESCAPE in text) == coloured


# ---- narrow terminals ----------------------------------------------------------------------------


@on_terminals
def test_a_narrow_terminal_breaks_no_code(project: Path) -> None:
    text = plain(shown(project, ".", *TO, "--diff", columns=60))
    assert f"     y = {LONG}\n" in text
    assert '+    return x.to("jax")\n' in text
    place = f"\n{FOLDER}/module.py:5:9\n    CUD003  torch.cuda.Stream\n"
    assert f"{place}    streams have no counterpart; " in text
    said = text.partition("Reported")[2].splitlines()
    assert max(map(len, said[2:])) <= 60


@on_terminals
def test_tables_fit_into_narrow_terminals(project: Path) -> None:
    for command in (["rules"], ["doctor"]):
        text = plain(shown(project, *command, columns=60)).partition("\nProblems")[0]
        lines = [line for line in text.splitlines() if not line.startswith("[1] ")]
        assert max(map(len, lines)) <= 60, command
    assert len(max(re.findall(r"\S+", text), key=len)) < 60


@on_terminals
def test_an_explanation_on_a_narrow_terminal(project: Path) -> None:
    text = plain(shown(project, "explain", "TRN001", columns=40))
    code = [line for e in registry().rules["TRN001"].examples for line in e.before.splitlines()]
    longest = max(code, key=len)
    assert len(longest) > 38 and longest in text
    prose = text.partition("torch_tpu:")[0].splitlines()
    assert max(map(len, prose)) <= 40


# ---- characters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "cp437"])
@pytest.mark.parametrize(
    "arguments",
    [["--check", "--statistics", "--verbose"], ["--diff"], ["--check", "--format", "json"]],
)
def test_every_character_can_be_written(
    tmp_path: Path, encoding: str, arguments: list[str]
) -> None:
    text = "import torch\n\n\ndef größe(x):  # → ∞\n    return x.cuda(), x.cuda()\n"
    root = committed(tmp_path, {"größe_→.py": text})
    run = cli(".", *TO, *arguments, cwd=root, encoding=encoding)
    assert run.returncode == 1 and b"Traceback" not in run.stderr
    if arguments == ["--diff"]:
        assert text.splitlines()[3].encode() in run.stdout  # the file's own bytes


def test_characters_that_a_terminal_lacks_are_spelled_out(project: Path) -> None:
    text = "import torch\n\n\ndef f(x):\n    return x.cuda(), x.cuda()\n"
    (project / "größe.py").write_text(text, encoding="utf-8")
    wide = piped(project, "größe.py", *TO, "--check", encoding="cp1252").stdout
    assert "größe.py  MOV001 ×2" in wide
    narrow = piped(project, "größe.py", *TO, "--check", encoding="ascii").stdout
    assert "gr\\xf6\\xdfe.py  MOV001 x2" in narrow


def test_an_error_is_one_line_in_any_encoding(tmp_path: Path) -> None:
    run = cli("größe_→", *TO, cwd=tmp_path, encoding="cp1252")
    assert run.returncode == 2
    one_line(run.stderr.decode("cp1252").encode(), "größe_->", "no such file or folder")


# ---- other systems -------------------------------------------------------------------------------


def test_a_diff_of_files_on_another_drive(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_drive(*_: object) -> str:
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    path = project / FOLDER / "module.py"
    monkeypatch.setattr(diff.os.path, "relpath", other_drive)
    assert diff._name(path, project) == os.fsencode(path.resolve().as_posix())


@pytest.mark.skipif(sys.platform == "win32", reason="no such names there")
def test_names_give_no_commands(tmp_path: Path) -> None:
    name = "a\n::error::x \x1b[31m##[group].py"
    source = "import torch\ns = torch.cuda.Stream(x='\x1b[31m')\nx = torch.ones(2).cuda()\n"
    root = committed(tmp_path, {name: source, "::b.py": source, "c\n::d.py": "x = = cuda\n"})
    for options in (["-v"], ["--statistics"]):
        run = cli(".", *TO, "--check", *options, cwd=root)
        told = run.stdout.decode() + run.stderr.decode()
        assert "Stream" in told and "##[" not in told and "\x1b" not in told
        assert not any(line.lstrip().startswith("::") for line in told.splitlines())
    (root / name).write_text(source + "\n")
    one_line(cli(name, *TO, cwd=root).stderr, r"a\n::error", r"\x1b")  # not staged
    one_line(cli("no\n::error::x", *TO, cwd=root).stderr, r"no\n::error")


@pytest.mark.skipif(sys.platform == "win32", reason="no such names there")
@pytest.mark.parametrize("name", ["::error::x\x1b[31m.py", "a\n::b##[c].py"])
def test_names_in_a_review_give_no_commands(tmp_path: Path, name: str) -> None:
    source = "import torch\nx = torch.ones(2).cuda()  # \x1b[31m\n"
    root = committed(tmp_path, {name: source, "other\x1b.bin": "x\n"})
    (root / name).write_text(source + "print(x)  # \x1b[32m\n")
    (root / "other\x1b.bin").write_text("y\n")
    run = cli("review", "HEAD", *TO, cwd=root)
    told = run.stdout.decode() + run.stderr.decode()
    assert "print(x)" in told and "##[" not in told and "\x1b" not in told
    assert not any(line.lstrip().startswith("::") for line in told.splitlines())


def test_what_others_wrote_gives_no_commands_in_any_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Here, values of variables; colours are this program's own."""
    monkeypatch.setenv("XLA_FLAGS", "--a=\x1b[5m\x9b5m\u202e")
    told = cli("doctor", "--color", "always", cwd=tmp_path).stdout.decode()
    assert "\x1b[36m" in told and r"\x1b[5m\x9b5m\u202e" in re.sub(r"\s", "", told)
    assert "\x1b[5m" not in told and "\x9b" not in told and "\u202e" not in told
