"""A run that only looks is told again as long as all that it looked at is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import cli, committed, git, write_tree

from migrator.files import states, witness
from migrator.files.witness import watching
from tests.cache.looking import GPU, HEARING, LOOK, MODEL, RANKS, TRAIN, TREE, look

# ---- the same again ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [(), ("--check",), ("--format", "json"), ("--color", "always")])
def test_an_unchanged_tree_is_told_again_byte_for_byte(
    how: tuple[str, ...], tree: Path, engine: list[object]
) -> None:
    how = ("--diff", *how) if "--check" not in how else how
    command = (".", "--target", "torchax", *how)
    first = cli(*command, cwd=tree)
    again = cli(*command, cwd=tree)
    assert len(engine) == 1
    assert (again.returncode, again.stdout, again.stderr) == (
        first.returncode, first.stdout, first.stderr,
    )  # fmt: skip
    assert first.returncode == 1 and b"train.py" in first.stdout


def test_a_file_that_only_looks_changed_is_known_by_its_content(
    tree: Path, engine: list[object]
) -> None:
    first = look(tree)
    content = (tree / "train.py").read_bytes()
    (tree / "train.py").unlink()
    (tree / "train.py").write_bytes(content)
    assert look(tree) == first and len(engine) == 1


def test_a_tree_that_was_just_written_is_told_again(tmp_path: Path, engine: list[object]) -> None:
    root = write_tree(tmp_path, TREE)
    assert look(root) == look(root)
    assert len(engine) == 1


@pytest.mark.parametrize(
    "other", [("--unsafe",), ("--ignore", "MOV"), ("--target", "torch_xla"), ("-q",)]
)
def test_another_command_is_another_run(
    other: tuple[str, ...], tree: Path, engine: list[object]
) -> None:
    look(tree)
    command = [".", *LOOK, *other]
    if "torch_xla" in other:
        command.remove("torchax"), command.remove("--target")
    cli(*command, cwd=tree)
    assert len(engine) == 2


@pytest.mark.parametrize("how", [("--no-cache",), ("--hook",), ("--diff-base", "HEAD")])
def test_what_asks_git_or_wants_no_cache_looks_itself(
    how: tuple[str, ...], tree: Path, engine: list[object]
) -> None:
    command = ("train.py", "--target", "torchax", "--check", *how)
    cli(*command, cwd=tree)
    cli(*command, cwd=tree)
    assert len(engine) == 2


def test_a_run_that_writes_is_never_told_only(tree: Path, engine: list[object]) -> None:
    look(tree)
    assert cli(".", "--target", "torchax", cwd=tree).returncode == 0
    assert b'"jax"' in (tree / "train.py").read_bytes()
    assert len(engine) == 2


def test_a_run_that_failed_is_not_kept(tree: Path, engine: list[object]) -> None:
    (tree / "broken.py").write_text("import torch\nx.cuda(\n")
    assert look(tree)[0] == look(tree)[0] == 2
    assert len(engine) == 2


# ---- no stale result -----------------------------------------------------------------------------


def same_time(root: Path) -> None:
    """As many bytes, and the time of the content put back."""
    file, status = root / "train.py", (root / "train.py").stat()
    file.write_text(TRAIN.replace(".cuda()", ".half()"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_mtime_ns == status.st_mtime_ns
    assert file.stat().st_size == status.st_size


def renamed_over(root: Path) -> None:
    (root / "new").write_text(GPU)
    (root / "new").replace(root / "tools/other.py")
    (root / "tools/other.py").write_text(GPU + "f(1).cuda()\n")


EDITS: dict[str, Callable[[Path], object]] = {
    "a file": lambda r: (r / "train.py").write_text("import torch\nx = torch.ones(1).cuda()\n"),
    "at the same time": same_time,
    "put in its place": renamed_over,
    "what a program imports": lambda r: (r / "lib/model.py").write_text(MODEL + "    bias = 1\n"),
    "now for several ranks": lambda r: (r / "lib/model.py").write_text(RANKS + "Model = None\n"),
    "a new file": lambda r: (r / "lib/new.py").write_text(GPU),
    "a new script without a name": lambda r: (r / "go").write_text("#!/usr/bin/python\n" + GPU),
    "a new folder": lambda r: write_tree(r, {"more/deep/new.py": GPU}),
    "a file is gone": lambda r: (r / "tools/other.py").unlink(),
    "another name": lambda r: (r / "tools/other.py").rename(r / "tools/another.py"),
    "what starts it": lambda r: (r / "README.md").write_text("python -m project.train\n"),
    "a command": lambda r: (r / "run.sh").write_text("CUDA_VISIBLE_DEVICES=0 python train.py\n"),
    "configuration": lambda r: (r / "pyproject.toml").write_text(
        '[tool.tpu-migrate]\nignore = ["MOV"]\n'
    ),
    "an environment": lambda r: (r / "tools/pyvenv.cfg").write_text(""),
    "a program beside": lambda r: (r / "ddp.py").write_text("import lib.model\n" + RANKS),
    "a module of torch's name": lambda r: (r / "torch.py").write_text("cuda = None\n"),
    "not the top of a project": lambda r: (r / ".git").rename(r / "git"),
    "no right to read": lambda r: (r / "train.py").chmod(0),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_whatever_changes_the_result_is_as_a_run_without_a_cache_has_it(
    edit: Callable[[Path], object], tree: Path
) -> None:
    before = look(tree)
    assert look(tree) == before
    edit(tree)
    assert look(tree) == look(tree, "--no-cache")
    assert look(tree) == look(tree, "--no-cache")  # what was found is kept, too


def test_a_link_that_leads_elsewhere(tree: Path) -> None:
    write_tree(tree, {"versions/one.py": GPU, "versions/two.py": GPU.replace("f(x)", "g(x)")})
    link = tree / "tools" / "current.py"
    link.symlink_to("../versions/one.py")
    look(tree)
    link.unlink()
    link.symlink_to("../versions/two.py")
    assert look(tree) == look(tree, "--no-cache")


def test_an_edit_within_one_tick_of_the_clock_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system's clock may stand still between a run and an edit."""
    root = write_tree(tmp_path, {"a.py": GPU})
    now = time.time_ns()
    for module in (witness, states):
        monkeypatch.setattr(module, "of_status", lambda status: (status.st_size, now, now, 1))
    before = look(root)
    (root / "a.py").write_text(GPU.replace(".cuda()", ".half()"))
    assert look(root) != before
    assert look(root) == look(root, "--no-cache")


def test_what_changes_while_a_run_goes_on_is_not_kept(tmp_path: Path) -> None:
    file = write_tree(tmp_path, {"a.py": "1\n"}) / "a.py"
    from migrator.files.reading import read

    with watching() as seen:
        read(file)
        file.write_text("2\n")
        read(file)
    assert not seen.is_whole


_AUDITED = (
    HEARING
    + """
from migrator.runs import pool
pool._POOL_BYTES = 0
real = Witness.without_what_follows
def keep(witness):
    seen = {os.path.abspath(path) for path in witness.seen}
    seen |= {os.path.abspath(path) for _, path in witness.answers}
    root = os.getcwd()
    inside = {path for path in looked if path.startswith(root) and "/.git" not in path}
    inside.discard(root + "/<unknown>")  # what Python calls a source that it cannot parse
    json.dump([len(inside), sorted(inside - seen)], open(os.environ["HEARD"], "w"))
    return real(witness)
Witness.without_what_follows = keep
from migrator.cli import main
main()
"""
)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_everything_that_python_opens_in_a_project_is_noted(
    jobs: str, tree: Path, tmp_path: Path
) -> None:
    """Python itself tells what is opened and listed: nothing of it may be missing."""
    heard = tmp_path / "heard.json"
    (tree / "bare").write_text("#!/usr/bin/env python\n" + GPU)
    (tree / "settings.yaml").write_text("gpus: 2\ndevice: cuda\n")
    (tree / "setup.py").write_text("from setuptools import setup\nsetup(name='x')\n")
    command = [sys.executable, "-c", _AUDITED, ".", *LOOK, "--jobs", jobs]
    subprocess.run(
        command, cwd=tree, env={**os.environ, "HEARD": str(heard)}, check=False, capture_output=True
    )
    number, missing = json.loads(heard.read_text())
    assert missing == [] and number > len(TREE)


def test_git_is_not_noted(tmp_path: Path, engine: list[object]) -> None:
    """Whether git has a runtime that is there is said, and git is asked each time."""
    root = committed(tmp_path, {"train.py": TRAIN, "lib/__init__.py": "", "lib/model.py": MODEL})
    assert cli(".", "--target", "torchax", cwd=root).returncode == 0
    engine.clear()
    before = look(root)
    git(root, "add", "-A")
    after = look(root)
    assert b"runtime is not in git" in before[2]
    assert b"runtime is not in git" not in after[2] and len(engine) == 2


# ---- what it takes -------------------------------------------------------------------------------


def test_what_is_told_again_needs_none_of_the_tool(tree: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "migrator", ".", *LOOK]
    for _ in range(2):
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "train.py" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert loaded.isdisjoint({"click", "rich", "libcst", "tomllib", "dataclasses", "hashlib"})
    assert {m for m in loaded if m.startswith("migrator.")} - {"migrator.__main__"} == {
        "migrator.start", "migrator.cache", "migrator.cache.again",
        "migrator.cache.entries", "migrator.errors", "migrator.files", "migrator.files.homes",
        "migrator.files.states",
    }  # fmt: skip
