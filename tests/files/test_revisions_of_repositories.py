"""Revisions of submodules and worktrees, the default branch, and what git cannot answer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from helpers import cli, committed, git, one_line, read_tree, write_tree

from migrator import migrate_paths
from migrator.errors import UsageError
from tests.files.revisions import CHECK, NEW, OLD, STREAM, append, commit, found, since


def test_submodules_are_compared_with_the_commit_that_the_base_has(tmp_path: Path) -> None:
    library = committed(tmp_path / "library", {"l.py": OLD})
    root = committed(tmp_path / "root", {"a.py": OLD})
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")
    assert found(since(root), root) == ["lib/l.py:5:14 rewritten"]  # all of it is new
    commit(root)
    assert since(root).check_code() == 0
    append(root / "lib/l.py", NEW)
    assert found(since(root), root) == ["lib/l.py:9:14 rewritten"]
    commit(root / "lib")
    commit(root)
    assert since(root).check_code() == 0
    assert found(since(root, "HEAD~1"), root) == ["lib/l.py:9:14 rewritten"]


def test_a_worktree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = committed(tmp_path / "root", {"a.py": OLD})
    git(root, "worktree", "add", "-q", "../other", "-b", "other")
    append(tmp_path / "other/a.py", NEW)
    assert found(since(tmp_path / "other"), tmp_path / "other") == ["a.py:9:14 rewritten"]
    # what git tells a hook of one repository is not true of another
    monkeypatch.setenv("GIT_DIR", str(root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(root / ".git/index"))
    assert found(since(tmp_path / "other"), tmp_path / "other") == ["a.py:9:14 rewritten"]


def test_two_repositories(tmp_path: Path) -> None:
    roots = [committed(tmp_path / name, {"a.py": OLD}) for name in ("one", "two")]
    append(roots[1] / "a.py", NEW)
    report = migrate_paths(roots, diff_base="HEAD")
    assert found(report, tmp_path) == ["two/a.py:9:14 rewritten"]


# ---- the default branch --------------------------------------------------------------------------


@pytest.mark.parametrize("branch", ["main", "master", "trunk"])
def test_without_a_revision_it_is_the_default_branch(tmp_path: Path, branch: str) -> None:
    origin = committed(tmp_path / "origin", {"a.py": OLD})
    git(origin, "branch", "-M", branch)
    git(tmp_path, "clone", "-q", "origin", "clone")  # origin/HEAD says which
    root = tmp_path / "clone"
    git(root, "checkout", "-qb", "feature")
    append(root / "a.py", NEW)
    commit(root)
    run = cli(".", *CHECK, cwd=root)
    assert run.returncode == 1
    told = [line.split() for line in run.stdout.decode().splitlines()]
    assert told[:2] == [["a.py", "MOV001"], ["9:14", "MOV001", "rewritten", "safe", "x.cuda"]]
    git(root, "remote", "remove", "origin")
    git(root, "branch", "-m", "feature", "topic")
    without = cli(".", *CHECK, cwd=root)
    if branch == "trunk":  # the clone's own branch is still there, but has no usual name
        assert without.returncode == 2
        one_line(without.stderr, "no default branch", "origin/HEAD", "--diff-base REV")
    else:
        assert without.returncode == 1


def test_a_run_of_a_forge_says_what_the_change_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = committed(tmp_path / "origin", {"a.py": OLD})
    git(origin, "branch", "-M", "main")
    git(origin, "branch", "release")
    append(origin / "a.py", NEW)
    commit(origin)
    git(tmp_path, "clone", "-q", "origin", "clone")
    root = tmp_path / "clone"
    assert cli(".", *CHECK, cwd=root).returncode == 0
    monkeypatch.setenv("GITHUB_BASE_REF", "release")
    assert cli(".", *CHECK, cwd=root).returncode == 1
    monkeypatch.delenv("GITHUB_BASE_REF")
    before = git(root, "rev-parse", "HEAD~1").strip()
    monkeypatch.setenv("CI_MERGE_REQUEST_DIFF_BASE_SHA", before)
    assert cli(".", *CHECK, cwd=root).returncode == 1


# ---- what cannot be answered --------------------------------------------------------------------


def test_a_shallow_clone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = committed(tmp_path / "origin", {"a.py": OLD})
    git(origin, "branch", "-M", "main")
    append(origin / "a.py", NEW)
    commit(origin)
    git(origin, "checkout", "-qb", "feature")
    append(origin / "a.py", STREAM)
    commit(origin)
    url = origin.as_uri()
    git(tmp_path, "clone", "-q", "--depth=1", "--branch=feature", url, "clone")
    root = tmp_path / "clone"
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    run = cli(".", *CHECK, cwd=root)
    assert run.returncode == 2
    one_line(run.stderr, "origin/main", "shallow", "fetch-depth: 0")
    git(root, "fetch", "-q", "--depth=1", "origin", "main:refs/remotes/origin/main")
    run = cli(".", *CHECK, cwd=root)
    assert run.returncode == 2
    one_line(run.stderr, "no commit in common", "fetch-depth: 0")


def test_no_git(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": OLD})
    run = cli(".", *CHECK, "HEAD", cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, "a.py", "not under version control")


def test_git_that_can_not_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = committed(tmp_path, {"a.py": OLD})

    def missing(*arguments: object, **options: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(subprocess, "run", missing)
    with pytest.raises(UsageError, match="--diff-base HEAD: "):
        since(root)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*CHECK, "nope"), ("nope", "no such revision")),
        ((*CHECK, ""), ("empty",)),
        (("--target", "torchax", "--diff-base", "HEAD"), ("--check", "--diff")),
        (("--target", "torchax", "-o", "out", "--diff-base", "HEAD"), ("--check", "--diff")),
        (("--strip-todo", "--check", "--diff-base", "HEAD"), ("--strip-todo",)),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    root = committed(tmp_path, {"a.py": OLD})
    run = cli(".", *arguments, cwd=root)
    assert run.returncode == 2 and run.stdout == b""
    one_line(run.stderr, "--diff-base", *words)
    assert read_tree(root) == {"a.py": OLD.encode()}


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": OLD})
    git(tmp_path, "init", "-q")
    run = cli(".", *CHECK, cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, "no default branch")


def test_standard_input_has_no_revision(tmp_path: Path) -> None:
    run = cli("-", *CHECK, "HEAD", cwd=tmp_path, stdin=b"")
    assert run.returncode == 2
    one_line(run.stderr, "--diff-base", "standard input")


def test_a_path_behind_it_is_a_revision(tmp_path: Path) -> None:
    run = cli(*CHECK, "src/", cwd=tmp_path)
    assert run.returncode == 2
    one_line(run.stderr, "no PATH", "src/", "--diff-base")
