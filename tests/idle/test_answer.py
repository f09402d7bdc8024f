"""A hook that has nothing to do gets the answer of the full run, without it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import pytest
from helpers import committed, git, write_tree
from unrelated_code import UNRELATED

from migrator import start
from migrator.files import witness
from migrator.files.journal import Journal
from migrator.files.lock import lock_file

GPU = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
TORCHAX = '[tool.tpu-migrate]\ntarget = "torchax"\n'
PLAIN = "import json\nimport os\n\n\ndef f(x):\n    return json.dumps(os.fspath(x))\n"
TREE = {
    "pyproject.toml": TORCHAX, "plain.py": PLAIN, "train.py": GPU, "lib/__init__.py": "",
    "lib/sums.py": "from .more import add\n", "lib/more.py": "def add(a, b):\n    return a + b\n",
    "uses.py": "from lib import sums\nprint(sums)\n", "starts.py": "import train\ntrain.f(1)\n",
}  # fmt: skip


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were just written count as settled: none is written twice in a tick here."""
    monkeypatch.setattr(witness, "_TICK", 0)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return committed(tmp_path / "project", TREE)


class Hook:
    """Runs the command as pre-commit does, in this process; counts the full runs."""

    def __init__(self, cwd: Path) -> None:
        self.cwd, self.runs = cwd, 0

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        from migrator.runs import run

        real = run.migrate_paths

        def counted(*given: object, **options: object) -> object:
            self.runs += 1
            return real(*given, **options)  # type: ignore[arg-type]

        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with (
            contextlib.chdir(self.cwd),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(sys, "argv", ["tpu-migrate", "--hook", *arguments]),
            mock.patch.object(run, "migrate_paths", counted),
            mock.patch.dict(os.environ),
        ):
            os.environ.pop("COLUMNS", None)
            try:
                code = start.run() or 0
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
        texts = []
        for stream in (out, err):
            stream.seek(0)
            text = stream.buffer.read().decode()
            texts.append(re.sub(r"\(\d+\.\d\d s\)", "(time)", text))
        return int(code), texts[0], texts[1]


@pytest.fixture
def hook(tree: Path) -> Hook:
    return Hook(tree)


# ---- what is answered ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", [(), ("--diff",), ("--check",), ("-q",), ("--target=torch_xla",)])
@pytest.mark.parametrize(
    "paths", [("plain.py",), ("plain.py", "lib/sums.py", "lib/more.py"), ("uses.py",)]
)
def test_files_without_gpu_code_are_answered_as_by_the_full_run(
    how: tuple[str, ...], paths: tuple[str, ...], hook: Hook
) -> None:
    if "--target=torch_xla" in how:
        (hook.cwd / "pyproject.toml").unlink()
    first = hook(*how, *paths)
    again = hook(*how, *paths)
    assert first == again and first[0] == 0
    assert hook.runs == 1
    assert ("-q" in how) != ("scanned" in first[1] + first[2])


def test_other_files_of_the_project_are_answered_by_what_is_known(hook: Hook) -> None:
    hook("plain.py")
    write_tree(hook.cwd, {"new.py": "import os\n", "lib/deep/new.py": "from ..more import add\n"})
    code, out, _ = hook("new.py", "lib/deep/new.py")
    assert code == 0 and "2 files scanned, 0 changed" in out and hook.runs == 1


@pytest.mark.parametrize("files", [
    {".gitmodules": '[submodule "knn"]\n\tpath = knn\n'},
    {"kernels/setup.py": "from setuptools import Extension, setup\n"
                         "setup(ext_modules=[Extension('knn', ['a.cu'])])\n"},
    {"lib/csrc/near.cu": ""},
])  # fmt: skip
def test_a_compiled_module_is_reported_each_time(files: Mapping[str, str], hook: Hook) -> None:
    imports = "from .near import f\n" if "lib/csrc/near.cu" in files else "import knn\n"
    write_tree(hook.cwd, {**files, "lib/plain.py": imports, "train.py": f"import lib.plain\n{GPU}"})
    first = hook("--check", "lib/plain.py")
    assert hook("--check", "lib/plain.py") == first and first[0] == 1
    assert "LIB002" in first[1]


@pytest.mark.parametrize("source", UNRELATED)
def test_unrelated_code_gets_one_answer(source: str, hook: Hook) -> None:
    hook("plain.py")
    write_tree(hook.cwd, {"any.py": source})
    light = hook("any.py")
    (hook.cwd / "tpu-migrate.toml").write_text('target = "torchax"\n')  # nothing is known of that
    assert hook("any.py") == light


def test_the_full_run_is_not_even_loaded(tree: Path) -> None:
    """Nor click, rich and LibCST, nor what of Python takes long."""
    command = [sys.executable, "-X", "importtime", "-m", "migrator", "--hook", "plain.py"]
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR")}
    # git touches its folder when it commits; what a run notes has to be older than a tick
    os.utime(tree / "pyproject.toml", ns=(0, 0))
    for _ in range(30):
        run = subprocess.run(
            command, cwd=tree, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert "1 file scanned, 0 changed" in run.stdout
        loaded = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
        if "migrator.cli" not in loaded:
            break
    assert "migrator.idle.answer" in loaded
    assert loaded.isdisjoint({"click", "rich", "libcst", "tomllib", "dataclasses"})
    assert {m for m in loaded if m.startswith("migrator.")} <= {
        "migrator.__main__", "migrator.start", "migrator.cache", "migrator.cache.entries",
        "migrator.errors", "migrator.files", "migrator.files.homes",
        "migrator.files.states", "migrator.idle", "migrator.idle.answer", "migrator.idle.asked",
        "migrator.idle.imported", "migrator.idle.summary",
    }  # fmt: skip


# ---- what is left to the full run ----------------------------------------------------------------

LEFT: dict[str, tuple[Mapping[str, str | bytes], tuple[str, ...]]] = {
    "GPU code": ({}, ("train.py",)),
    "a script that starts GPU code": ({}, ("starts.py",)),
    "through a package": (
        {"lib/more.py": "import train\n", "main.py": "from lib import sums\nsums.add(1, 2)\n"},
        ("main.py",),
    ),
    "in brackets": (
        {
            "main.py": "from lib import (  # (all)\n    sums,\n    gpu)\ngpu.f(1)\n",
            "lib/gpu.py": GPU,
        },
        ("main.py",),
    ),
    "behind a backslash": (
        {"main.py": "from lib \\\n  import \\\n  gpu\ngpu.f(1)\n", "lib/gpu.py": GPU}, ("main.py",),
    ),
    "from a folder that it adds": (
        {"main.py": "import sys\nsys.path.append('x')\nimport gpu\ngpu.f(1)\n", "x/gpu.py": GPU},
        ("main.py",),
    ),
    "another framework": ({"a.py": "import tensorflow as tf\nprint(tf)\n"}, ("a.py",)),
    "code for another target": ({"a.py": "import torch_xla\n"}, ("a.py",)),
    "migrated code": ({"a.py": "import tpu_runtime\ntpu_runtime.setup()\n"}, ("a.py",)),
    "a comment of an earlier run": ({"a.py": "# TPU-TODO[MOV001]: it\nx = 1\n"}, ("a.py",)),
    "no text": ({"a.py": b"x = '\xff'\n"}, ("a.py",)),
    "nulls": ({"a.py": b"x = 1\0\n"}, ("a.py",)),
    "a notebook": ({"a.ipynb": "{}"}, ("a.ipynb",)),
    "requirements": ({"requirements.txt": "numpy\n"}, ("requirements.txt",)),
    "a Dockerfile named .py": ({"Dockerfile.py": "RUN nothing\n"}, ("Dockerfile.py",)),
    "the same file twice": ({}, ("plain.py", "./plain.py")),
    "an environment": ({".venv/a.py": "x = 1\n"}, (".venv/a.py",)),
    "marked as one": ({"e/pyvenv.cfg": "", "e/a.py": "x = 1\n"}, ("e/a.py",)),
    "a project in the project": (
        {"sub/pyproject.toml": TORCHAX + 'exclude = ["a.py"]\n', "sub/a.py": "x = 1\n"},
        ("sub/a.py",),
    ),
    "excluded": ({"pyproject.toml": TORCHAX + 'exclude = ["p*"]\n'}, ("plain.py",)),
    "replaced": (
        {"pyproject.toml": TORCHAX + '[tool.tpu-migrate.replace]\n"my.on" = "my.off"\n',
         "a.py": "import my\nmy.on()\n"},
        ("a.py",),
    ),
    "no such file": ({}, ("missing.py",)),
    "a file and no such option": ({}, ("--exclude", "x", "plain.py")),
    "two options": ({}, ("--diff", "--check", "plain.py")),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT)
def test_anything_else_is_left_to_the_full_run(case: str, tmp_path: Path) -> None:
    files, arguments = LEFT[case]
    root = committed(tmp_path / "project", {**TREE, **files})
    hook = Hook(root)
    hook("plain.py")  # so that the premises are there, as they are for most commits
    before = hook.runs
    first = hook("--diff", *arguments)
    assert hook("--diff", *arguments) == first
    refused = first[0] == 2 and first[2].startswith("tpu-migrate: ")
    assert refused or hook.runs == before + 2


def test_links_are_left_to_the_full_run(hook: Hook, tmp_path: Path) -> None:
    write_tree(tmp_path / "elsewhere", {"a.py": "x = 1\n"})
    (hook.cwd / "out").symlink_to(tmp_path / "elsewhere")
    (hook.cwd / "link.py").symlink_to("plain.py")
    hook("plain.py")
    before = hook.runs
    assert hook("link.py") == hook("link.py") and hook.runs == before + 2
    assert hook("out/a.py")[0] == 2  # another configuration is for it, which there is not


@pytest.mark.parametrize("name", ["tpu-migrate.toml", "pyproject.toml"])
def test_a_changed_configuration_is_read(name: str, hook: Hook) -> None:
    hook("plain.py")
    (hook.cwd / name).write_text("nothing = that\n is = TOML")
    code, _, err = hook("plain.py")
    assert code == 2 and "not valid TOML" in err


def test_a_file_that_is_imported_and_changes_is_looked_into(hook: Hook) -> None:
    code, out, _ = hook("uses.py")
    assert (code, hook.runs) == (0, 1) and "0 changed" in out
    write_tree(hook.cwd, {"lib/more.py": f"{GPU}\n\nadd = f(1)\n"})
    code, out, _ = hook("--allow-dirty", "uses.py")
    assert code == 1 and hook.runs == 2


def test_a_run_that_writes_or_was_cut_off_is_seen(hook: Hook) -> None:
    hook("plain.py")
    for file in (lock_file(hook.cwd), Journal(hook.cwd).unfinished):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
        before = hook.runs
        with contextlib.suppress(Exception):  # it is no archive
            hook("plain.py")
        file.unlink(missing_ok=True)
        assert hook.runs == before + 1 or "unfinished" in file.name


def test_without_a_repository_nothing_is_noted(tmp_path: Path) -> None:
    hook = Hook(write_tree(tmp_path, {"plain.py": PLAIN}))
    assert hook("--target=torchax", "plain.py") == hook("--target=torchax", "plain.py")
    assert hook.runs == 2


def test_a_damaged_entry_is_as_good_as_none(hook: Hook) -> None:
    from migrator.cache import store

    first = hook("plain.py")
    (entry,) = store.folder().glob("hook-*")
    whole = entry.read_bytes()
    for damaged in (b"", whole[:40], whole[:-9], whole[:100] + b"\xff" + whole[101:]):
        entry.write_bytes(damaged)
        before = hook.runs
        assert hook("plain.py") == first and hook.runs == before + 1


def test_the_state_of_git_is_no_matter(hook: Hook) -> None:
    hook("plain.py")
    write_tree(hook.cwd, {"plain.py": PLAIN + "# more\n"})
    git(hook.cwd, "commit", "-qam", "more")
    hook("plain.py")
    assert hook.runs == 1
