"""What conda and pixi do with the lists that name the wheel.

Neither is on the package index. So conda's way to install pip's part is followed here (a file of
requirements beside environment.yml, read with that folder as the working folder), and of pixi's
manifest it is tested that its paths lead to the wheel.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
import yaml

from migrator import migrate_paths
from tests.engine.test_wheel import FILE, MADE, NAME, VERSION, project, run

CONDA = "name: a\ndependencies:\n  - python=3.11\n  - pytorch=2.1\n  - pytorch-cuda=12.1\n"
WORKSPACE = '[workspace]\nname = "a"\nchannels = ["conda-forge"]\nplatforms = ["linux-64"]\n\n'
PIXI = f'{WORKSPACE}[dependencies]\npython = "3.11.*"\n\n[pypi-dependencies]\ntorch = ">=2"\n'
PROJECT = '[project]\nname = "a"\nversion = "1"\ndependencies = ["torch"]\n\n'
OF_PIXI = PROJECT + WORKSPACE.replace("workspace", "tool.pixi.workspace")


@pytest.mark.parametrize("folder", ["", "conda/"])
def test_conda_installs_the_wheel_from_another_working_folder(folder: str, tmp_path: Path) -> None:
    root = tmp_path / "project"
    project(root, {f"{folder}environment.yml": CONDA})
    run(root)
    listed = root / f"{folder}environment.yml"
    [of_pip] = [
        each["pip"] for each in yaml.safe_load(listed.read_text())["dependencies"]
        if isinstance(each, dict)
    ]  # fmt: skip
    own = [line for line in of_pip if line.startswith("--") or NAME in line]
    assert len(own) == 2
    requirements = listed.with_name("condaenv.x.requirements.txt")
    requirements.write_text("\n".join(own))
    venv.create(tmp_path / "environment", with_pip=True)
    python = tmp_path / "environment" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    command = [python, "-m", "pip", "install", "-q", "--no-index", "-U", "-r", requirements]
    subprocess.run(command, check=True, cwd=listed.parent)
    code = "from importlib.metadata import version; print(version('tpu-runtime'))"
    said = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == VERSION


@pytest.mark.parametrize("folder", ["", "sub/"])
@pytest.mark.parametrize(
    ("file", "before"),
    [
        ("pixi.toml", PIXI),
        (
            "pyproject.toml",
            PIXI.replace("\n[", "\n[tool.pixi.").replace("[work", "[tool.pixi.work"),
        ),
    ],
)
def test_a_package_of_pixi_is_the_wheel(
    file: str, before: str, folder: str, tmp_path: Path
) -> None:
    project(tmp_path, {f"{folder}{file}": before})
    run(tmp_path)
    manifest = tmp_path / f"{folder}{file}"
    table = tomllib.loads(manifest.read_text())
    table = table.get("tool", {}).get("pixi", table)
    assert (manifest.parent / table["pypi-dependencies"][NAME]["path"]).read_bytes() == MADE.content
    assert "pypi-options" not in table
    assert migrate_paths([tmp_path]).check_code() == 0


@pytest.mark.parametrize("folder", ["", "sub/"])
@pytest.mark.parametrize(
    "more", ["", "\n[tool.pixi.pypi-options]\nindex-strategy = 'first-index'\n"]
)
def test_what_a_project_of_pixi_depends_on_is_found_in_the_wheels_folder(
    more: str, folder: str, tmp_path: Path
) -> None:
    """It can't be in `pypi-dependencies`, too: pixi refuses what is named twice."""
    project(tmp_path, {f"{folder}pyproject.toml": OF_PIXI + more})
    run(tmp_path)
    manifest = tmp_path / f"{folder}pyproject.toml"
    table = tomllib.loads(manifest.read_text())
    assert f"{NAME}=={VERSION}" in table["project"]["dependencies"]
    options = table["tool"]["pixi"]["pypi-options"]
    [links] = options["find-links"]
    assert (manifest.parent / links["path"] / FILE).is_file()
    assert ("index-strategy" in options) is bool(more)
    assert "pypi-dependencies" not in table["tool"]["pixi"]
    assert migrate_paths([tmp_path]).check_code() == 0


def test_folders_that_pixi_looks_in_already_stay(tmp_path: Path) -> None:
    own = '\n[tool.pixi.pypi-options]\nfind-links = [{ path = "wheels" }]\n'
    project(tmp_path, {"pyproject.toml": OF_PIXI + own})
    run(tmp_path)
    assert (tmp_path / "pyproject.toml").read_text().endswith(own)
