"""Files that are named one by one stand for their programs."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers import cli, committed, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.runs.run_report import Report

TRAIN = """\
import torch
from helper import batch

model = torch.nn.Linear(4, 2).cuda()
print(model(batch()).sum())
"""
HELPER = """\
import torch


def batch():
    return torch.ones(3, 4).cuda()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of two files, and another one."""
    root = committed(tmp_path, {"train.py": TRAIN, "helper.py": HELPER, "other.py": HELPER})
    monkeypatch.chdir(root)
    return root


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run_cli(*arguments: str) -> Done:
    found = cli(*arguments, cwd=Path.cwd())
    return Done(
        found.returncode, *(" ".join(x.decode().split()) for x in (found.stdout, found.stderr))
    )


def _names(report: Report) -> list[str]:
    return [file.path.name for file in report.changed]


def test_what_a_named_file_imports_is_migrated_with_it(project: Path) -> None:
    done = run_cli("train.py", "--target", "torchax")
    assert done.returncode == 0
    said = "train.py: migrated with what it imports, starts or reads: helper.py (--only-named"
    assert said in done.stdout
    assert "100% automatic" in done.stdout
    assert ".cuda()" not in Path("helper.py").read_text(encoding="utf-8")
    assert Path("other.py").read_text(encoding="utf-8") == HELPER


@pytest.mark.parametrize(
    "named",
    [
        'importlib.import_module("parts.helper")',
        'importlib.import_module(".helper", "parts")',
        '__import__("parts.helper")',
        'importlib.import_module(f"parts.{sys.argv[1]}")',
        'importlib.import_module("parts." + sys.argv[1])',
        'importlib.import_module("parts.%s" % sys.argv[1])',
        'importlib.import_module("parts.{}".format(sys.argv[1]))',
        'parser.add_argument("--model", default="parts.helper")\n'
        "importlib.import_module(parser.parse_args().model)",
        'name = "parts.helper"\nimportlib.import_module(name)',
        'importlib.util.spec_from_file_location("helper", "./parts/helper.py")',
        'SourceFileLoader("helper", os.path.join(os.getcwd(), "parts/helper.py")).load_module()',
        'exec(open("parts/helper.py").read())',
    ],
)
def test_what_is_imported_by_a_string_belongs_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    train = f"""\
import argparse
import importlib
import sys
import torch

parser = argparse.ArgumentParser()
{named}
x = torch.ones(3).cuda()
"""
    files = {"train.py": train, "parts/__init__.py": "", "parts/helper.py": HELPER}
    monkeypatch.chdir(committed(tmp_path, files | {"other.py": HELPER}))
    assert _names(migrate_paths([Path("train.py")], "torchax", write=False)) == [
        "helper.py", "train.py"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("importlib.import_module(sys.argv[1])", "train.py:4 computes the name of a module"),
        (
            "importlib.util.spec_from_file_location('x', sys.argv[1])",
            "train.py:4 computes the name of a module",
        ),
        ("import hydra", "train.py reads settings by Hydra"),
    ],
)
def test_a_program_that_may_have_more_files_is_not_done(
    project: Path, lines: str, said: str
) -> None:
    train = f"import importlib\nimport sys\nimport torch\n{lines}\nx = torch.ones(3).cuda()\n"
    Path("train.py").write_text(train, encoding="utf-8")
    done = run_cli("train.py", "--target", "torchax", "--allow-dirty")
    assert done.returncode == 1
    assert f"train.py: may import more of the project, as {said}" in done.stdout
    assert "100% automatic, of the files that were looked at" in done.stdout
    assert run_cli(".", "--target", "torchax", "--allow-dirty").returncode == 0


def test_a_name_that_nobody_knows_is_of_a_library_where_no_other_file_uses_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = "import importlib, sys\nimport torch\nimportlib.import_module(sys.argv[1])\n"
    files = {"train.py": f"{train}x = torch.ones(3).cuda()\n", "other.py": "x = 1\n"}
    monkeypatch.chdir(committed(tmp_path, files))
    assert run_cli("train.py", "--target", "torchax").returncode == 0


def test_only_named_says_what_is_left_and_is_not_done(project: Path) -> None:
    done = run_cli("train.py", "--only-named", "--target", "torchax")
    assert done.returncode == 1
    assert "left behind, and needed by what was named: helper.py" in done.stdout
    assert "50% automatic" in done.stdout
    assert Path("helper.py").read_text(encoding="utf-8") == HELPER
    assert ".cuda()" not in Path("train.py").read_text(encoding="utf-8")


def test_a_file_that_cannot_be_read_is_not_counted(project: Path) -> None:
    Path("helper.py").write_text("import torch\nx.cuda(\n", encoding="utf-8")
    done = run_cli("train.py", "--check", "--target", "torchax")
    assert done.returncode == 2
    assert "% automatic, of the files that could be read" in done.stdout


def test_only_named_is_enough_where_nothing_else_would_change(project: Path) -> None:
    done = run_cli("helper.py", "--only-named", "--target", "torchax")
    assert (done.returncode, "left behind" in done.stdout) == (0, False)


def test_a_hook_writes_no_other_file_and_names_the_command(project: Path) -> None:
    done = run_cli("--hook", "--target", "torchax", "train.py")
    assert done.returncode == 1 and "no GPU code" not in done.stdout
    done = run_cli("--hook", "--target", "torchax", "train.py", "other.py")
    assert done.returncode == 1
    assert (
        "train.py: left as it is, since its program would change in helper.py, too" in done.stdout
    )
    assert "tpu-migrate train.py --target torchax" in done.stdout
    assert Path("train.py").read_text(encoding="utf-8") == TRAIN
    assert Path("helper.py").read_text(encoding="utf-8") == HELPER
    assert ".cuda()" not in Path("other.py").read_text(encoding="utf-8")  # a program of its own


def test_a_hook_takes_the_program_that_is_named_whole(project: Path) -> None:
    run_cli("--hook", "--target", "torchax", "train.py", "helper.py")
    for name in ("train.py", "helper.py"):
        assert ".cuda()" not in Path(name).read_text(encoding="utf-8")


def test_a_program_with_a_changed_file_is_refused(project: Path) -> None:
    Path("helper.py").write_text(HELPER + "\n\nx = 1\n", encoding="utf-8")
    done = run_cli("train.py", "--target", "torchax")
    assert done.returncode == 2
    assert "helper.py" in done.stderr
    assert Path("train.py").read_text(encoding="utf-8") == TRAIN


@pytest.mark.parametrize("path", ["train.py", "."])
def test_a_program_with_an_excluded_file_stays_whole(project: Path, path: str) -> None:
    report = migrate_paths([path], "torchax", config=Config(exclude=("helper.py",)))
    assert "train.py" not in _names(report)
    file = next(file for file in report.files if file.path.name == "train.py")
    [found] = file.result.diagnostics
    assert "imports helper.py, and a program stays whole" in found.message
    assert "the configuration excludes it, and it has GPU code" in found.message


@pytest.mark.parametrize("path", ["train.py", "."])
def test_a_program_with_an_ignored_file_stays_whole(project: Path, path: str) -> None:
    Path("helper.py").write_text(f"# tpu-migrate: ignore-file\n{HELPER}", encoding="utf-8")
    report = migrate_paths([path], "torchax")
    assert "train.py" not in _names(report)
    file = next(file for file in report.files if file.path.name == "train.py")
    [found] = file.result.diagnostics
    assert "imports helper.py, and a program stays whole: a comment keeps it" in found.message


def test_an_excluded_file_without_gpu_code_keeps_nothing(project: Path) -> None:
    Path("helper.py").write_text("def batch():\n    return [1]\n", encoding="utf-8")
    report = migrate_paths(["train.py"], "torchax", config=Config(exclude=("helper.py",)))
    assert _names(report) == ["train.py"]


def test_a_copy_has_the_whole_program(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.mktemp("copies") / "out"
    migrate_paths(["train.py"], "torchax", output=out)
    assert {path.name for path in out.iterdir()} == {"train.py", "helper.py", "vendor"}


def test_a_copy_of_a_program_that_lies_elsewhere_is_refused(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    Path("tools").mkdir()
    text = "import sys\nsys.path.append('..')\n" + TRAIN
    Path("tools/run.py").write_text(text, encoding="utf-8")
    out = tmp_path_factory.mktemp("copies") / "out"
    done = run_cli("tools/run.py", "--target", "torchax", "-o", str(out))
    if "helper.py" not in done.stdout + done.stderr:
        pytest.fail(done.stdout + done.stderr)
    assert done.returncode == 2
    assert "belongs to the program of tools/run.py, but lies elsewhere" in done.stderr
    assert not out.exists()


def test_a_pattern_that_fits_the_projects_own_folder_excludes_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = committed(tmp_path / "build", {"train.py": TRAIN, "helper.py": HELPER})
    monkeypatch.chdir(root)
    report = migrate_paths(["train.py"], "torchax", config=Config(exclude=("build",)))
    assert _names(report) == ["helper.py", "train.py"]
    report = migrate_paths(["."], "torchax", config=Config(exclude=("build",)))
    assert _names(report) == ["helper.py", "train.py"]


@pytest.mark.parametrize(
    "start",
    [
        'subprocess.run([sys.executable, "helper.py", "--lr", "0.1"], check=True)',
        'os.system(f"python helper.py --lr {sys.argv[1]}")',
        'command = [sys.executable, "-m", "helper"]\nsubprocess.Popen(command)',
        'runpy.run_path("helper.py")',
        'runpy.run_module("helper")',
        'os.execv(sys.executable, ["python", os.path.join(os.getcwd(), "helper.py")])',
    ],
)
def test_what_a_program_starts_belongs_to_it(project: Path, start: str) -> None:
    text = f"import os\nimport runpy\nimport subprocess\nimport sys\n\n{start}\n"
    Path("train.py").write_text(text, encoding="utf-8")
    assert _names(migrate_paths(["train.py"], "torchax")) == ["helper.py"]


@pytest.mark.parametrize(
    "line", ["!python helper.py --lr 1", "%run helper.py", "out = !python -m helper"]
)
def test_what_a_notebook_starts_belongs_to_it(project: Path, line: str) -> None:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    book = {"cells": [cell | {"source": [line]}], "metadata": {}, "nbformat": 4,
            "nbformat_minor": 4}  # fmt: skip
    Path("run.ipynb").write_text(json.dumps(book), encoding="utf-8")
    assert _names(migrate_paths(["run.ipynb"], "torchax")) == ["helper.py"]


def test_what_a_named_script_starts_is_migrated_with_it(project: Path) -> None:
    Path("run.sh").write_text("python train.py --device cuda\n", encoding="utf-8")
    names = ["helper.py", "run.sh", "train.py"]
    assert _names(migrate_paths(["run.sh"], "torchax")) == names


READER = """\
import argparse

import torch
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--config"{default})
config = yaml.safe_load(open(parser.parse_args().config))
model = torch.nn.Linear(4, 2).to(config["device"])
"""


def test_settings_that_a_program_names_belong_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"configs/base.yaml": "device: cuda\n", "configs/other.yaml": "gpus: 0\n"}
    train = READER.format(default=', default="configs/base.yaml"')
    monkeypatch.chdir(committed(tmp_path, files | {"train.py": train}))
    done = run_cli("train.py", "--target", "torchax")
    assert done.returncode == 0
    assert "what it imports, starts or reads: configs/base.yaml" in done.stdout
    assert Path("configs/base.yaml").read_text(encoding="utf-8") == "device: jax\n"
    assert "tpu_runtime.setup()" in Path("train.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("giver", "text"),
    [("configs/base.yaml", "device: cuda\n"), ("run.sh", "python train.py --device cuda\n")],
)
def test_a_program_that_something_else_gives_a_gpu_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, giver: str, text: str
) -> None:
    monkeypatch.chdir(committed(tmp_path, {giver: text, "train.py": READER.format(default="")}))
    done = run_cli("train.py", "--target", "torchax")
    assert done.returncode == 1
    assert f"train.py: may be given a device by what names a GPU: {giver}" in done.stdout


@pytest.mark.parametrize("added", ["", "sys.path.append('..')\n"])
def test_without_git_a_program_has_the_packages_above_it(tmp_path: Path, added: str) -> None:
    files = {"tools/run.py": f"import sys\n{added}{TRAIN}".replace("helper", "parts.helper"),
             "parts/helper.py": HELPER, "parts/other.py": HELPER}  # fmt: skip
    write_tree(tmp_path, files)
    report = migrate_paths([tmp_path / "tools" / "run.py"], "torchax")
    assert _names(report) == ["helper.py", "run.py"]


INIT_PATHS = """\
import os.path as osp
import sys


def add_path(path):
    if path not in sys.path:
        sys.path.insert(0, path)


add_path(osp.join(osp.dirname(__file__), "..", "lib"))
"""


@pytest.mark.parametrize("in_git", [True, False])
@pytest.mark.parametrize("adds", [INIT_PATHS, "import sys\n\nsys.path.append('../lib')\n"])
def test_a_module_beside_a_program_adds_the_folders_of_others(
    tmp_path: Path, in_git: bool, adds: str
) -> None:
    files = {"tools/_init_paths.py": adds, "tools/run.py": f"import _init_paths\n{TRAIN}",
             "lib/helper.py": HELPER, "lib/other.py": HELPER}  # fmt: skip
    (committed if in_git else write_tree)(tmp_path, files)
    report = migrate_paths([tmp_path / "tools" / "run.py"], "torchax")
    assert _names(report) == ["helper.py", "run.py"]


def test_without_git_a_module_above_that_nothing_adds_is_another_programs(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "run.py").write_text(TRAIN, encoding="utf-8")
    (tmp_path / "helper.py").write_text(HELPER, encoding="utf-8")
    assert _names(migrate_paths([tmp_path / "tools" / "run.py"], "torchax")) == ["run.py"]


def test_a_folder_has_what_its_programs_import_from_the_rest_of_a_project(
    project: Path,
) -> None:
    write_tree(project, {"tools/run.py": f"import sys\nsys.path.append('..')\n{TRAIN}"})
    assert _names(migrate_paths(["tools"], "torchax")) == ["helper.py", "run.py"]
    done = run_cli("tools", "--check", "--target", "torchax")
    said = "tools: migrated with what it imports, starts or reads: helper.py (--only-named"
    assert said in done.stdout
    done = run_cli("tools", "--check", "--only-named", "--target", "torchax")
    assert "left behind, and needed by what was named: helper.py" in done.stdout
    assert done.returncode == 1
