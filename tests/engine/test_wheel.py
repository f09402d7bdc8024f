"""The runtime as a wheel in the project: what is written, and what names it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import venv
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest
from helpers import TARGETS, committed, read_tree, write_tree

from migrator import migrate_paths
from migrator.config import Config
from migrator.errors import UsageError
from migrator.runs.delivery import deliver_to, write_delivered
from migrator.runs.run import undo
from migrator.runs.worker import Worker
from migrator.targets import find_target, portable
from migrator.targets.wheel import RuntimeWheel, runtime_wheel

SCRIPT = "import torch\n\nx = torch.ones(2).cuda()\ntorch.cuda.manual_seed(0)\nprint(x)\n"
MADE = runtime_wheel(find_target("torchax"))
NAME, VERSION, FILE = MADE.name, MADE.version, MADE.file_name
PINS = "torch==2.9.0\ntorchax==0.0.13\njax==0.10.2\njaxlib==0.10.2\nlibtpu==0.0.52\n"


def project(root: Path, files: dict[str, str], script: str = "train.py") -> None:
    committed(root, {script: SCRIPT, **files})


def run(root: Path, target: str = "torchax", runtime: str = "wheel") -> list[str]:
    """The files that a run in place has written, by their paths."""
    report = migrate_paths([root], target, config=Config(runtime=runtime), write=True)
    assert not report.errors
    paths = [*report.companions, *(file.path for file in report.changed)]
    return sorted(path.relative_to(root).as_posix() for path in paths)


@pytest.mark.parametrize("target", [*TARGETS, "torch_tpu"])
def test_a_wheel_is_what_an_installer_expects(target: str) -> None:
    wheel = runtime_wheel(find_target(target))
    archive = zipfile.ZipFile(io.BytesIO(wheel.content))
    assert archive.testzip() is None
    about = f"{wheel.name.replace('-', '_')}-{wheel.version}.dist-info"
    said = {}
    for line in archive.read(f"{about}/RECORD").decode().splitlines():
        path, digest, size = line.split(",")
        said[path] = digest, size
    assert said.pop(f"{about}/RECORD") == ("", "")
    for path, (digest, size) in said.items():
        content = archive.read(path)
        hashed = urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={hashed}", str(len(content)))
    assert {*said, f"{about}/RECORD"} == {*archive.namelist()}
    assert f"{about}/licenses/LICENSE" in said and "tpu_runtime/__init__.py" in said


def test_a_wheel_is_the_same_bytes_each_time_and_another_version_with_other_contents() -> None:
    files = {"__init__.py": b"x = 1\n"}
    one, same = (RuntimeWheel("a", dict(files)) for _ in range(2))
    other = RuntimeWheel("a", {"__init__.py": b"x = 2\n"})
    assert one.content == same.content and one.version == same.version
    assert one.version != other.version and one.file_name != other.file_name


LISTS = {
    "requirements.txt": (
        "tqdm\ntorch>=2\n", f"tqdm\n{PINS}--find-links vendor\n{NAME}=={VERSION}\n"
    ),
    "docker/requirements.txt": (
        "torch\n", f"{PINS}--find-links ../vendor\n{NAME}=={VERSION}\n"
    ),
    "Pipfile": (
        '[packages]\ntorch = "*"\n',
        "[packages]\n" + "".join(
            '{} = "=={}"\n'.format(*line.split("==")) for line in PINS.splitlines()
        ) + f'{NAME} = {{path = "vendor/{FILE}"}}\n',
    ),
    "environment.yml": (
        "name: a\ndependencies:\n  - python=3.11\n  - pip:\n    - torch\n",
        "name: a\ndependencies:\n  - python=3.11\n  - pip:\n" + "".join(
            f"    - {line}\n"
            for line in (PINS + f"--find-links vendor\n{NAME}=={VERSION}").splitlines()
        ),
    ),
    "pyproject.toml": (
        '[project]\nname = "a"\ndependencies = ["torch"]\n\n[tool.uv]\npackage = false\n',
        '[project]\nname = "a"\ndependencies = ['
        + ", ".join(f'"{line}"' for line in [*PINS.splitlines(), f"{NAME}=={VERSION}"])
        + "]\n\n[tool.uv]\npackage = false\n\n[tool.uv.sources]\n"
        + f'{NAME} = {{ path = "vendor/{FILE}" }}\n',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_packages_names_the_wheel(tmp_path: Path, name: str) -> None:
    before, after = LISTS[name]
    project(tmp_path, {name: before})
    assert run(tmp_path) == sorted([name, "train.py", f"vendor/{FILE}"])
    assert (tmp_path / name).read_text() == after
    assert (tmp_path / "vendor" / FILE).read_bytes() == MADE.content
    assert migrate_paths([tmp_path]).check_code() == 0  # nothing is left to do


@pytest.mark.parametrize("name", LISTS)
def test_another_version_takes_the_place_of_the_old_one(tmp_path: Path, name: str) -> None:
    before, after = LISTS[name]
    project(tmp_path, {name: before})
    run(tmp_path)
    old = "0.0.1+torchax.h0000000"
    (tmp_path / name).write_text(after.replace(VERSION, old))
    wheel = tmp_path / "vendor" / FILE
    wheel.rename(wheel.with_name(FILE.replace(VERSION, old)))
    committed(tmp_path, {})
    assert run(tmp_path) == sorted([name, f"vendor/{FILE}"])
    assert (tmp_path / name).read_text() == after
    assert [path.name for path in (tmp_path / "vendor").iterdir()] == [FILE]


@pytest.mark.parametrize(
    ("before", "end"), [("tqdm\n", "\n"), ("tqdm", "\n"), ("a\r\ntqdm\r\n", "\r\n"), ("", "\n")]
)
def test_requirements_without_torch_get_it_too(tmp_path: Path, before: str, end: str) -> None:
    """An image has torch, for example."""
    image = "FROM x\nADD requirements.txt .\nRUN pip install -r requirements.txt\n"
    project(
        tmp_path,
        {"requirements.txt": before, "Dockerfile": image, "docs/requirements.txt": "mkdocs\n"},
    )
    assert run(tmp_path) == ["Dockerfile", "requirements.txt", "train.py", f"vendor/{FILE}"]
    lines = f"--find-links vendor{end}{NAME}=={VERSION}{end}"
    named = tmp_path / "requirements.txt"
    start = before if before.endswith("\n") or not before else before + end
    assert named.read_bytes().decode() == f"{start}{lines}"
    assert "COPY vendor ./vendor\n" in (tmp_path / "Dockerfile").read_text()
    assert migrate_paths([tmp_path]).check_code() == 0
    committed(tmp_path, {})
    old = of_another_version(tmp_path)
    assert run(tmp_path) == ["requirements.txt", f"vendor/{FILE}"] and old not in os.listdir(
        tmp_path / "vendor"
    )
    assert named.read_bytes().decode() == f"{start}{lines}"


@pytest.mark.parametrize("before", ["tqdm\n", "torch==1.8\ntqdm\n"])
@pytest.mark.parametrize(
    "builder",
    [
        {"setup.py": "setup(install_requires=open('requirements.txt').read().split())\n"},
        {"pyproject.toml": "[tool.setuptools]\ndynamic = {x = {file = 'requirements.txt'}}\n"},
    ],
)  # fmt: skip
def test_a_list_that_setuptools_reads_gets_no_options(
    tmp_path: Path, before: str, builder: dict[str, str]
) -> None:
    """It can't parse them: the command that installs the runtime is printed instead."""
    project(tmp_path, {"requirements.txt": before, **builder})
    run(tmp_path)
    text = (tmp_path / "requirements.txt").read_text()
    assert "vendor" not in text and NAME not in text and text.endswith("tqdm\n")
    assert ("torchax" in text) is ("torch" in before)


def test_requirements_with_hashes_are_left_as_they_are(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": f"tqdm==4.66.1 --hash=sha256:{'0' * 64}\n"})
    assert run(tmp_path) == ["train.py", f"vendor/{FILE}"]


def test_a_portable_program_has_it_in_its_requirements(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": "torch\n"})
    migrate_paths([tmp_path], config=Config(portable=True), write=True)
    other = runtime_wheel(portable(find_target("torchax")))
    text = (tmp_path / "requirements.txt").read_text()
    assert text == f"torch\n--find-links vendor\n{other.requirement}\n"
    assert migrate_paths([tmp_path], config=Config(portable=True)).check_code() == 0


def of_another_version(root: Path) -> str:
    """Let a migrated project have another version of the runtime; the name of its wheel."""
    old = VERSION[:-7] + "0000000"
    named = root / "requirements.txt"
    named.write_bytes(named.read_bytes().replace(VERSION.encode(), old.encode()))
    wheel = root / "vendor" / FILE
    wheel.rename(wheel.with_name(FILE.replace(VERSION, old)))
    committed(root, {})
    return FILE.replace(VERSION, old)


def test_a_hook_that_migrates_nothing_renews_nothing(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": "torch\n"})
    run(tmp_path)
    old = of_another_version(tmp_path)
    (tmp_path / "train.py").write_text((tmp_path / "train.py").read_text() + "# a comment\n")
    committed(tmp_path, {})
    before = read_tree(tmp_path, runtime=True)
    report = migrate_paths([tmp_path / "train.py"], write=True, from_hook=True)
    assert not report.companions and not report.changed and not report.deliveries
    assert read_tree(tmp_path, runtime=True) == before and f"vendor/{old}" in before


def test_what_is_renewed_is_named_by_lists_that_are_not_in_the_run(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": "torch\n"})
    run(tmp_path)
    of_another_version(tmp_path)
    committed(tmp_path, {"more.py": SCRIPT})
    migrate_paths([tmp_path / "more.py"], write=True, from_hook=True)
    assert [path.name for path in (tmp_path / "vendor").iterdir()] == [FILE]
    assert (tmp_path / "requirements.txt").read_text() == LISTS["requirements.txt"][1][5:]


def test_an_editor_renews_it_with_what_names_it(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": "torch\n"})
    run(tmp_path)
    right = read_tree(tmp_path, runtime=True)
    of_another_version(tmp_path)
    worker = Worker([tmp_path], [find_target("torchax")], Config())
    write_delivered(deliver_to(tmp_path / "train.py", worker), tmp_path)
    assert read_tree(tmp_path, runtime=True) == right


def test_each_project_is_told_of_its_own_wheel(tmp_path: Path) -> None:
    for name in ("a", "b"):
        project(tmp_path / name, {"requirements.txt": "torch\n"})
    report = migrate_paths([tmp_path / "a", tmp_path / "b"])
    assert [each.named for each in report.deliveries] == [
        (tmp_path / name / "requirements.txt",) for name in ("a", "b")
    ]


def test_where_only_a_change_is_looked_at_nothing_is_renewed(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": "torch\n"})
    run(tmp_path)
    of_another_version(tmp_path)
    named = tmp_path / "requirements.txt"
    named.write_text(f"{named.read_text()}tqdm\n")
    report = migrate_paths([tmp_path], diff_base="HEAD")
    assert report.check_code() == 0 and not report.companions


def test_a_copy_that_is_there_stays_a_copy(tmp_path: Path) -> None:
    """It would be imported in place of an installed wheel."""
    project(tmp_path, {"requirements.txt": "torch\n"})
    run(tmp_path, runtime="copy")
    (tmp_path / "tpu_runtime" / "random_numbers" / "seeds.py").write_text("# older\n")
    committed(tmp_path, {})
    assert run(tmp_path) == ["tpu_runtime/random_numbers/seeds.py"]
    assert NAME not in (tmp_path / "requirements.txt").read_text()


def test_a_wheel_of_another_target_is_replaced(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": "torch\n"})
    run(tmp_path)
    committed(tmp_path, {})
    run(tmp_path, "torch_xla")
    other = runtime_wheel(find_target("torch_xla"))
    assert [path.name for path in (tmp_path / "vendor").iterdir()] == [other.file_name]
    text = (tmp_path / "requirements.txt").read_text()
    assert other.requirement in text and MADE.requirement not in text


def test_a_wheel_that_other_files_need_stays(tmp_path: Path) -> None:
    project(tmp_path, {"other.py": SCRIPT})
    run(tmp_path)
    committed(tmp_path, {})
    with pytest.raises(UsageError, match=r"is torchax's runtime, which .*other\.py would still"):
        migrate_paths([tmp_path / "train.py"], "torch_xla", write=True)


def test_pip_installs_it_from_any_folder(tmp_path: Path) -> None:
    project(tmp_path / "project", {})
    run(tmp_path / "project")
    needed = tmp_path / "project" / "runtime.txt"
    needed.write_text(f"--find-links vendor\n{MADE.requirement}\n")
    venv.create(tmp_path / "environment", with_pip=True)
    python = tmp_path / "environment" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-index", "-r", needed], check=True, cwd=tmp_path
    )
    code = "from importlib.metadata import version, files; print(version('tpu-runtime'))"
    said = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == VERSION


def test_a_script_alone_gets_the_wheel_and_the_command(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": "torch\n"}, "src/train.py")
    report = migrate_paths([tmp_path / "src" / "train.py"], write=True)
    assert [*report.companions] == [tmp_path / "vendor" / FILE]
    [delivery] = report.deliveries
    wheel = (tmp_path / "vendor" / FILE).as_posix()
    assert delivery.said() == f"{wheel} is the runtime of the migrated code: pip install {wheel}"


def test_it_is_said_which_lists_name_it(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": "torch\n"})
    [delivery] = migrate_paths([tmp_path], write=True).deliveries
    named = tmp_path / "requirements.txt"
    assert delivery.said().endswith(f"; {named} names it: pip install -r {named.as_posix()}")


def test_a_wheel_that_git_ignores_is_named(tmp_path: Path) -> None:
    """A clone would miss it."""
    project(tmp_path, {".gitignore": "*.whl\n"})
    [note] = migrate_paths([tmp_path], write=True).notes
    wheel = tmp_path / "vendor" / FILE
    assert note == f"{wheel} is ignored by git: git add -f {wheel}"


def test_one_wheel_for_all_folders_of_a_project(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [],
              "source": ["!pip install torch\n"]},
             {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [],
              "source": SCRIPT.splitlines(keepends=True)}]  # fmt: skip
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    project(tmp_path, {f"{folder}/a.ipynb": notebook for folder in ("one", "two/deep")})
    wheels = [path for path in run(tmp_path) if path.endswith(".whl")]
    assert wheels == [f"vendor/{FILE}"]
    assert f"../../vendor/{FILE}" in (tmp_path / "two" / "deep" / "a.ipynb").read_text()


def test_a_program_that_needs_no_runtime_gets_none(tmp_path: Path) -> None:
    committed(tmp_path, {"train.py": "import torch\n", "requirements.txt": "torch\n"})
    assert not [path for path in run(tmp_path) if path.endswith(".whl")]
    assert NAME not in (tmp_path / "requirements.txt").read_text()


def test_a_package_is_only_required(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": "torch\n"})
    assert run(tmp_path, runtime="package") == ["requirements.txt", "train.py"]
    assert (tmp_path / "requirements.txt").read_text() == f"{PINS}{NAME}=={VERSION}\n"


@pytest.mark.parametrize(
    ("line", "added"),
    [
        ("COPY requirements.txt .", "COPY vendor ./vendor"),
        ("COPY requirements.txt /app/", "COPY vendor /app/vendor"),
        ("COPY --chown=me requirements.txt /tmp/requirements.txt", "COPY vendor /tmp/vendor"),
    ],
)
def test_an_image_gets_the_wheel_beside_the_list(tmp_path: Path, line: str, added: str) -> None:
    before = f"FROM python:3.11\n{line}\nRUN pip install -r requirements.txt\nCOPY . .\n"
    project(tmp_path, {"requirements.txt": "torch\n", "Dockerfile": before})
    run(tmp_path)
    assert (tmp_path / "Dockerfile").read_text() == before.replace(line, f"{line}\n{added}")
    assert migrate_paths([tmp_path]).check_code() == 0


def test_a_copy_has_the_wheel_at_its_top(tmp_path: Path) -> None:
    project(tmp_path / "a", {"requirements.txt": "torch\n"})
    migrate_paths([tmp_path / "a"], output=tmp_path / "b")
    assert (tmp_path / "b" / "vendor" / FILE).is_file()
    assert "--find-links vendor\n" in (tmp_path / "b" / "requirements.txt").read_text()
    assert not (tmp_path / "a" / "vendor").exists()


def test_undo_takes_all_of_it_back(tmp_path: Path) -> None:
    files = {"requirements.txt": "torch\n"}
    project(tmp_path, files)
    run(tmp_path)
    undo([tmp_path])
    assert (tmp_path / "requirements.txt").read_text() == "torch\n"
    assert (tmp_path / "train.py").read_text() == SCRIPT
    assert not [*tmp_path.rglob("*.whl")]


def test_a_folder_that_leads_out_of_the_project_is_not_written(tmp_path: Path) -> None:
    project(tmp_path / "a", {})
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "vendor").symlink_to(tmp_path / "b")
    report = migrate_paths([tmp_path / "a"], write=True)
    assert report.exit_code == 2 and "leads out of the project" in report.errors[0]
    assert not [*(tmp_path / "b").iterdir()]


def test_a_run_that_only_looks_writes_no_wheel(tmp_path: Path) -> None:
    write_tree(tmp_path, {"train.py": SCRIPT})
    report = migrate_paths([tmp_path])
    assert [path.name for path in report.companions] == [FILE] and not (
        tmp_path / "vendor"
    ).exists()
