"""Groups of files: whatever is looked at together or apart, the result is the same."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from helpers import REPOSITORY, cli, one_line, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.errors import UsageError
from migrator.files.discover import discover
from migrator.runs import pool
from migrator.runs.divide_files import divide
from migrator.runs.run_report import Report
from migrator.runs.worker import Worker
from migrator.targets import find_target
from tests.engine.test_programs import APART, SHARED

GPU = "import torch\n\n\ndef f(x):\n    return x.cuda()\n"
MAIN = 'if __name__ == "__main__":\n    run()\n'
NOTEBOOK = {
    "cells": [{"cell_type": "code", "source": "from shared import f\n", "metadata": {},
               "outputs": [], "execution_count": None}],
    "metadata": {}, "nbformat": 4, "nbformat_minor": 5,
}  # fmt: skip
# Each line of imports, and a file far from it that it means.
IMPORTS = {
    "import lib.inner.deep\n": "lib/inner/deep.py",
    "from lib.inner import (\n    nothing,  # )\n    deep,\n)\n": "lib/inner/deep.py",
    "from lib \\\n    import inner\n": "lib/inner/__init__.py",
    "x = 1; import os, lib.inner as inner\n": "lib/inner/__init__.py",
    "try: import lib.inner\nexcept ImportError: pass\n": "lib/inner/__init__.py",
    "from .. import beside\n": "beside.py",
    "from ..lib.inner import deep\n": "lib/inner/deep.py",
    "import above\n": "above.py",
    "import hidden\n": "src/hidden/__init__.py",
    "import sys\nsys.path.insert(0, '../far/off')\nimport away\n": "far/off/away.py",
    "def f():\n    from lib.inner.deep import g\n": "lib/inner/deep.py",
}


def worker(root: Path) -> Worker:
    return Worker([root], [find_target("torchax")], Config())


def groups(root: Path) -> list[set[str]]:
    found = divide(discover([root]).files, worker(root))
    return [{path.relative_to(root).as_posix() for path in group.files} for group in found]


# ---- what is together ----------------------------------------------------------------------------


@pytest.mark.parametrize("line", IMPORTS)
def test_what_an_import_means_is_in_its_group(line: str, tmp_path: Path) -> None:
    files = dict.fromkeys(IMPORTS.values(), GPU) | {"lib/__init__.py": "", ".git/HEAD": ""}
    root = write_tree(tmp_path, {**files, "app/main.py": line, "other/alone.py": GPU})
    meant = IMPORTS[line]
    assert root / meant in worker(root).project(root / "app/main.py").imports(root / "app/main.py")
    (group,) = (group for group in groups(root) if "app/main.py" in group)
    assert meant in group
    assert ("other/alone.py" in group) == ("from .." in line)  # of a package that is above, all is


@pytest.mark.parametrize("room", ["reference_apps", "migrator", "benchmarks"])
def test_the_imports_of_real_code_are(room: str) -> None:
    root = REPOSITORY / room
    own = worker(root)
    known = {
        p.resolve(): n for n, g in enumerate(divide(discover([root]).files, own)) for p in g.files
    }
    apart = [
        (path, imported)
        for path in known
        if path.suffix == ".py"
        for imported in own.project(path).imports(path)
        if imported in known and known[imported] != known[path]
    ]
    assert apart == []


def test_a_file_outside_of_the_run_joins_those_that_import_it(tmp_path: Path) -> None:
    files = {"a/a.py": "import shared.one\n", "b/b.py": "import shared.two\n", ".git/HEAD": ""}
    write_tree(
        tmp_path, {**files, "shared/one.py": "from shared import two\n", "shared/two.py": ""}
    )
    found = divide(discover([tmp_path / "a", tmp_path / "b"]).files, worker(tmp_path))
    assert len(found) == 1


def test_notebooks_are_programs_and_settings_are_by_themselves(tmp_path: Path) -> None:
    files = {
        "one/n.ipynb": json.dumps(NOTEBOOK), "shared.py": GPU, "two/c.py": GPU,
        "one/conf.yaml": "device: cuda\n", "two/requirements.txt": "torch\n", ".git/HEAD": "",
    }  # fmt: skip
    assert groups(write_tree(tmp_path, files)) == [
        {"one/conf.yaml", "two/requirements.txt"}, {"one/n.ipynb", "shared.py"}, {"two/c.py"},
    ]  # fmt: skip


# ---- the same result -----------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Programs of which one stays whole, modules, settings; the runtime goes to three places."""
    files = {f"staying/{name}": text for name, text in SHARED.items()}
    for name in ("one", "two", "three"):
        files[f"{name}/train.py"] = f"from part import f as run\nimport torch\n\n{MAIN}"
        files[f"{name}/part.py"] = GPU.replace("x.cuda()", f"torch.ones({len(name)}).cuda()")
        files[f"{name}/conf.yaml"] = "device: cuda\n"
    files |= {"lib/__init__.py": "", "lib/ops.py": GPU, "requirements.txt": "torch\n"}
    files |= {
        "top.py": f"import torch\nfrom lib.ops import f\n\n\ndef run():\n    f(1)\n\n\n{MAIN}"
    }
    return write_tree(tmp_path / "tree", {**files, "words/apart.py": APART, ".git/HEAD": ""})


def content(report: Report) -> dict[str, Any]:
    files = {str(f.path): (f.result.source, f.result.diagnostics, f.unsafe) for f in report.files}
    said = (report.notes, report.errors, report.lacks_program, report.exit_code)
    return {**files, "runtime": [*report.companions.items()], "said": said}


def test_one_process_several_and_those_of_another_agree(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = content(migrate_paths([tree], config=Config(jobs=1)))
    assert whole["runtime"] and any(diagnostics for _, diagnostics, _ in list(whole.values())[:-2])
    monkeypatch.setattr(pool, "_POOL_BYTES", 0)
    monkeypatch.setattr(
        pool, "as_completed", lambda futures: reversed([*futures])
    )  # the last first
    for most in (0, 3_000_000):  # each group by itself, and all at once
        monkeypatch.setattr(pool, "_MOST_AT_ONCE", most)
        for jobs in (1, 2):
            assert content(migrate_paths([tree], config=Config(jobs=jobs))) == whole
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        assert content(migrate_paths([tree], executor=executor)) == whole


def test_paths_are_told_as_they_were_given(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    whole = migrate_paths(["."])
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        there = migrate_paths(["."], executor=executor)
    assert content(there) == content(whole)
    assert not any(
        path.is_absolute() for path in [*there.companions, *(f.path for f in there.files)]
    )


def test_what_is_left_is_told_to_the_end(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_POOL_BYTES", 0)
    for jobs in (1, 2):
        ticks: list[int] = []
        report = migrate_paths(
            [tree], config=Config(jobs=jobs), progress=lambda done, _, to=ticks: to.append(done)
        )
        assert ticks[-1] == len(report.files) and ticks == sorted(ticks)


# ---- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 20])
def test_all_parts_are_the_whole(count: int, tree: Path) -> None:
    whole = migrate_paths([tree])
    parts = [migrate_paths([tree], part=(number, count)) for number in range(1, count + 1)]
    found = [file for part in parts for file in part.files]
    assert sorted((f.path, f.result, f.unsafe) for f in found) == [
        (f.path, f.result, f.unsafe) for f in whole.files
    ]
    assert max(part.check_code() for part in parts) == whole.check_code()
    for together in groups(tree):
        paths = {tree / name for name in together}
        assert any(paths <= {f.path for f in part.files} for part in parts)


def test_parts_are_about_as_much_work_each(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {f"f{n}/m.py": GPU * (1 + n % 3) for n in range(30)})
    sizes = [
        sum(len(f.result.original) for f in migrate_paths([root], part=(number, 3)).files)
        for number in (1, 2, 3)
    ]
    assert max(sizes) < 1.2 * min(sizes)


def test_a_part_is_only_looked_at(tree: Path) -> None:
    for how in ({"write": True}, {"output": tree.parent / "out"}):
        with pytest.raises(UsageError, match="--part only shows"):
            migrate_paths([tree], part=(1, 2), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["0/3", "4/3", "2", "1/0", "a/b"])
def test_parts_that_there_are_not(wrong: str, tree: Path) -> None:
    run = cli(".", "--target", "torchax", "--check", "--part", wrong, cwd=tree)
    assert run.returncode == 2
    one_line(run.stderr, "--part", wrong, "1/N to N/N")


# ---- elsewhere -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "said"),
    [("slurm://x", "dask://HOST:PORT"), ("dask://127.0.0.1:9", "no scheduler answers")],
)
def test_nobody_there_is_one_line(address: str, said: str, tree: Path) -> None:
    run = cli(".", "--target", "torchax", "--check", "--executor", address, cwd=tree)
    assert run.returncode == 2
    one_line(run.stderr, "--executor", said)


def test_without_dask_the_line_says_what_to_install(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    run = cli(".", "--target", "torchax", "--check", "--executor", "dask://x:1", cwd=tree)
    assert run.returncode == 2
    one_line(run.stderr, "dask is not installed", "pip install '.[dask]' in a clone")
