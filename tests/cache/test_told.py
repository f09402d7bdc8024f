"""A run that only looks is told again as long as all that it looked at is the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import cli, committed, git, write_tree

from migrator.cache import store
from migrator.files import states, witness
from migrator.files.witness import watching

GPU = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
TRAIN = """\
import torch
from lib.model import Model

if __name__ == "__main__":
    model = Model().cuda()
    print(model(torch.ones(2, 2, device="cuda")))
"""
MODEL = "import torch\n\n\nclass Model(torch.nn.Linear):\n    pass\n"
RANKS = """\
import torch.distributed as dist


def lr(base):
    return base * dist.get_world_size() ** 0.5


if __name__ == "__main__":
    dist.init_process_group("nccl")
    print(lr(1.0))
"""
TREE = {
    "train.py": TRAIN, "lib/__init__.py": "", "lib/model.py": MODEL, "tools/other.py": GPU,
    "README.md": "python train.py\n", "requirements.txt": "torch\n", "run.sh": "python train.py\n",
}  # fmt: skip
LOOK = ("--target", "torchax", "--diff", "--verbose")


def look(root: Path, *more: str) -> tuple[int, bytes, bytes]:
    """What a run says, without how long it took."""
    run = cli(".", *LOOK, *more, cwd=root)
    return run.returncode, run.stdout, re.sub(rb"\(\d+\.\d\d s\)", b"(time)", run.stderr)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list that grows with each run that is not just told again."""
    from migrator.runs import run

    runs: list[object] = []
    real = run.migrate_paths

    def counted(*arguments: object, **options: object) -> object:
        runs.append(arguments)
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "migrate_paths", counted)
    return runs


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = committed(tmp_path / "project", TREE)
    aged(root)
    return root


def aged(root: Path) -> None:
    """Wait until no file of a tree is as young as a tick of the file system's clock."""
    files = [*root.rglob("*"), root]
    while max(max(f.stat().st_ctime_ns, f.stat().st_mtime_ns) for f in files) > (
        time.time_ns() - witness._TICK
    ):
        time.sleep(0.1)


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


_AUDITED = """
import json, os, sys
looked = set()
def hear(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        looked.add(os.path.abspath(arguments[0]))
sys.addaudithook(hear)
from migrator.files.witness import Witness
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


# ---- the folder of results -----------------------------------------------------------------------


def entries() -> list[Path]:
    return sorted(store.folder().iterdir())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[:-1],
        lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
        lambda content: b"",
        lambda content: b"cos\nsystem\n(S'touch stolen'\ntR.",
    ],
)
def test_what_is_spoilt_is_ignored(
    spoil: Callable[[bytes], bytes], tree: Path, engine: list[object]
) -> None:
    first = look(tree)
    (entry,) = entries()
    entry.write_bytes(spoil(entry.read_bytes()))
    assert look(tree) == first and len(engine) == 2
    assert look(tree) == first and len(engine) == 2  # it was written anew


def test_an_entry_of_someone_else_runs_nothing(tree: Path, engine: list[object]) -> None:
    first = look(tree)
    (entry,) = entries()
    store.put(entry.name, b"cos\nsystem\n(S'touch stolen'\ntR.")
    assert look(tree) == first and len(engine) == 2
    assert not (tree / "stolen").exists()


def test_what_was_not_used_for_long_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        store.put(f"entry{number}", bytes(1000))
        os.utime(store.folder() / f"entry{number}", (number, number))
    assert store.get("entry0") == bytes(1000)  # used now
    monkeypatch.setattr(store, "MOST", 3 * 1032)
    monkeypatch.setattr(store, "_LARGEST", 3 * 1032)
    store.put("last", bytes(1000))
    assert [entry.name for entry in entries()] == ["entry0", "entry3", "last"]


def test_a_folder_that_can_not_be_written_to_is_no_matter(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: list[object]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TPU_MIGRATE_CACHE", str(tmp_path / "file"))
    assert look(tree) == look(tree) and len(engine) == 2


def test_runs_at_the_same_time_share_it(tree: Path) -> None:
    command = [sys.executable, "-m", "migrator", str(tree), "--target", "torchax", "--diff"]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)
    ]
    printed = {run.communicate()[0] for run in running}
    assert len(printed) == 1 and b"+" in printed.pop()
    assert {run.returncode for run in running} == {1}
    assert len(entries()) == 1


# ---- the tool itself -----------------------------------------------------------------------------


def test_another_tool_or_package_is_another_run(
    tree: Path, tmp_path: Path, engine: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(str(packages))
    look(tree)
    (packages / "libcst-9.dist-info").mkdir()  # as installing another one does
    look(tree)
    assert len(engine) == 2


def test_a_rule_that_was_edited_is_another_run(tmp_path: Path) -> None:
    """In a checkout the version says nothing."""
    from migrator.cache import tool

    write_tree(tmp_path, {"some_rules/__init__.py": "", "some_rules/inner/rule.py": "A = 1\n"})
    sys.path.insert(0, str(tmp_path))
    try:
        before = list(tool._states("some_rules"))
        (tmp_path / "some_rules/inner/rule.py").write_text("A = 2\n")
        assert list(tool._states("some_rules")) != before
    finally:
        sys.path.remove(str(tmp_path))
    assert len(list(tool._states("migrator"))) > 300 and len(list(tool._states(tool._RULES))) > 50


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
