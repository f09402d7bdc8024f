"""Git is asked, and starts nothing that a repository names: whoever made it may be a stranger."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import cli, committed, git, one_line, shell, write_tree

from migrator import migrate_paths
from migrator.errors import UsageError
from migrator.files import git as asked
from tests.files.trees import GPU, TPU


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Where a program that must not be started leaves a trace."""
    return tmp_path / "ran"


def _program(tmp_path: Path, ran: Path, then: str = "cat") -> str:
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >> {ran}\n{then}\n')
    program.chmod(0o755)
    return str(program)


def _as_hooks(root: Path, program: str) -> None:
    names = (
        "post-index-change", "pre-commit", "fsmonitor-watchman", "reference-transaction",
        "post-checkout", "pre-auto-gc", "query-watchman",
    )  # fmt: skip
    for name in names:
        shutil.copy(program, root / ".git" / "hooks" / name)


def _as_programs(root: Path, program: str) -> None:
    names = (
        "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass",
        "core.gitProxy", "diff.external", "credential.helper", "core.alternateRefsCommand",
        "diff.x.command", "diff.x.textconv", "gpg.program", "uploadpack.packObjectsHook",
        "pager.diff", "pager.ls-files", "alias.diff", "alias.ls-files",
    )  # fmt: skip
    for name in names:
        git(root, "config", name, f"!{program}" if name.startswith("alias") else program)
    (root / ".git" / "info" / "attributes").write_text("* diff=x\n")


def _as_filters(root: Path, program: str) -> None:
    for name in ("x.clean", "x.smudge", "y.process", "a.b.clean"):
        git(root, "config", f"filter.{name}", program)
    (root / ".git" / "info" / "attributes").write_text(
        "*.py filter=x\n*.txt filter=y\n*.md filter=a.b\n"
    )


def _as_filters_of_an_included_file(root: Path, program: str) -> None:
    (root / "more").write_text(f'[filter "x"]\n\tclean = {program}\n\trequired = true\n')
    git(root, "config", "include.path", "../more")
    (root / ".git" / "info" / "attributes").write_text("*.py filter=x\n")


@pytest.mark.parametrize(
    "planted",
    [_as_hooks, _as_programs, _as_filters, _as_filters_of_an_included_file],
    ids=lambda each: each.__name__.removeprefix("_as_"),
)
def test_nothing_that_a_repository_names_is_started(
    tmp_path: Path, ran: Path, planted: Callable[[Path, str], None]
) -> None:
    files = {"a.py": GPU, "b.py": GPU, "c.txt": "x\n", "d.md": "x\n"}
    inner = committed(tmp_path / "p" / "sub", dict(files))
    root = committed(tmp_path / "p", files)
    assert git(root, "ls-files", "-s", "sub").startswith("160000")
    program = _program(tmp_path, ran)
    for each in (inner, root):
        planted(each, program)
        for name in files:  # each looks changed, so that its content has to be read
            os.utime(each / name, (1, 1))
    assert not ran.exists()
    (inner / "b.py").write_text("x = 1\n")
    cli(".", "--target", "torchax", "--check", "--diff-base", "HEAD", cwd=root)
    cli("review", "HEAD", "--target", "torchax", cwd=root)
    assert migrate_paths([root / "a.py"], write=True).exit_code == 0
    (inner / "b.py").write_text(f"{GPU}# mine\n")
    with pytest.raises(UsageError, match="changes that are not staged"):
        migrate_paths([inner / "b.py"], write=True)
    assert (root / "a.py").read_text() == TPU
    assert not ran.exists(), ran.read_text()


def test_a_filter_of_the_users_own_is_started(
    tmp_path: Path, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As git-lfs: without it, every file that it holds would seem to have changed."""
    program = _program(tmp_path, ran, "sed s/plain/kept/")
    (tmp_path / "own").write_text(f'[filter "x"]\n\tclean = {program}\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "own"))
    root = committed(
        tmp_path / "p", {"a.py": f"{GPU}# plain\n", ".gitattributes": "*.py filter=x\n"}
    )
    assert git(root, "show", "HEAD:a.py").endswith("# kept\n")
    assert migrate_paths([root], write=True).exit_code == 0
    assert (root / "a.py").read_text() == f"{TPU}# plain\n"
    git(root, "checkout", "-q", "a.py")
    git(root, "config", "filter.x.clean", f"{program} of a stranger")
    (root / "a.py").write_text(f"{GPU}# plain\n")
    with pytest.raises(UsageError, match=r"unless filter\.x made them"):
        migrate_paths([root], write=True)
    assert "stranger" not in ran.read_text()


def test_nothing_is_fetched(tmp_path: Path, ran: Path) -> None:
    """A partial clone has git fetch what is missing, by a program that its configuration names."""
    origin = committed(tmp_path / "origin", {"a.py": "old\n", "b.ipynb": "{}"})
    git(origin, "config", "uploadpack.allowFilter", "true")
    (origin / "a.py").write_text("new\n")
    git(origin, "commit", "-qam", "new")
    git(tmp_path, "clone", "-q", "--no-local", "--filter=blob:none", str(origin), "p")
    root = tmp_path / "p"
    program = _program(tmp_path, ran, "exit 1")
    git(root, "config", "core.sshCommand", program)
    git(root, "config", "remote.origin.url", "ssh://nowhere/x")
    git(root, "config", "remote.origin.uploadpack", program)
    (root / "a.py").write_text(GPU)
    found = cli("a.py", "--target", "torchax", "--check", "--diff-base", "HEAD~1", cwd=root)
    more = cli("review", "HEAD~1", "--target", "torchax", cwd=root)
    assert not ran.exists(), ran.read_text()
    assert (found.returncode, more.returncode) == (2, 2)
    one_line(found.stderr, "--diff-base HEAD~1", "partial clone", "git fetch --refetch")
    one_line(more.stderr, "partial clone", "git fetch --refetch --no-filter")
    git(root, "config", "--unset", "remote.origin.uploadpack")
    git(root, "config", "remote.origin.url", str(origin))
    git(root, "fetch", "-q", "--refetch", "--no-filter")
    assert migrate_paths([root], diff_base="HEAD~1").changed


def test_git_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a repository may be a pipe, from which git reads for ever."""
    root = committed(tmp_path, {"a.py": GPU})
    monkeypatch.setattr(asked, "_LONGEST", 0.5)
    blob = git(root, "rev-parse", "HEAD:a.py").strip()
    (root / ".git" / "index").unlink()
    os.mkfifo(root / ".git" / "index")
    started = time.monotonic()
    with pytest.raises(UsageError, match=r"git ls-files takes longer than"):
        migrate_paths([root], write=True)
    stored = root / ".git" / "objects" / blob[:2] / blob[2:]
    stored.unlink()
    os.mkfifo(stored)
    blobs = asked.Blobs(root)
    with pytest.raises(asked.GitError, match="partial clone"):
        blobs.read(blob)
    blobs.close()
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("how", ["in place", "since a revision"])
def test_an_edit_that_leaves_size_and_time_is_no_less_an_edit(tmp_path: Path, how: str) -> None:
    """The content decides: with core.checkStat=minimal, git takes such a file for unchanged."""
    root = write_tree(tmp_path, {"a.py": f"{GPU}# one\n"})
    git(root, "init", "-q")
    git(root, "config", "core.checkStat", "minimal")
    git(root, "config", "core.trustCtime", "false")
    os.utime(root / "a.py", (1, 1))
    git(root, "add", "-A")
    git(root, "commit", "-qm", "all")
    if how == "since a revision":
        time.sleep(1.1)  # git counts in seconds when a file last changed
    (root / "a.py").write_text(f"{GPU}# two\n")
    os.utime(root / "a.py", (1, 1))
    assert git(root, "status", "--porcelain") == ""
    if how == "in place":
        with pytest.raises(UsageError, match=r"a\.py has changes that are not staged"):
            migrate_paths([root], write=True)
        assert (root / "a.py").read_text() == f"{GPU}# two\n"
    else:
        assert [file.path.name for file in migrate_paths([root], diff_base="HEAD").files] == [
            "a.py"
        ]


def test_many_files_with_other_line_ends_take_one_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{i}.py": GPU for i in range(5)} | {".gitattributes": "*.py text eol=crlf\n"}
    root = committed(tmp_path, files)
    for name in files:
        (root / name).unlink()
    git(root, "checkout", "-q", ".")
    (root / "0.py").write_bytes(f"{GPU}# mine\n".replace("\n", "\r\n").encode())
    questions = []
    really = asked.run

    def counted(at: Path, *arguments: str) -> bytes:
        questions.append(arguments[0])
        return really(at, *arguments)

    monkeypatch.setattr(asked, "run", counted)
    with pytest.raises(UsageError, match=r"0\.py has changes that are not staged; nothing was"):
        migrate_paths([root], write=True)
    assert questions.count("hash-object") == 1


def test_what_git_still_holds_of_an_undone_run_is_said_with_the_command(tmp_path: Path) -> None:
    """After `git add`, an undone run left `AD vendor/….whl` in git's index, and no word of it."""
    root = committed(tmp_path, {"train.py": f"{GPU}\n\nprint(f(torch.ones(2)))\n"})
    cli(".", "--target", "torchax", cwd=root)
    git(root, "add", "vendor", "train.py")
    held = cli("--undo", ".", cwd=root).stdout.decode().splitlines()[-1]
    assert held.startswith(
        "git still has what was taken back: git add train.py vendor/tpu_runtime-"
    )
    assert shell(held.partition(": ")[2], root).returncode == 0
    assert git(root, "status", "--porcelain") == ""
    cli(".", "--target", "torchax", cwd=root)
    assert "git" not in cli("--undo", ".", cwd=root).stdout.decode()
