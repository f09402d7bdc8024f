"""What is built to be installed: it has every file, and its parts say the same version."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from helpers import REPOSITORY, git

import migrator
from migrator.targets import wheel

BUILD = "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files as they are staged: a build leaves files beside them."""
    folder = tmp_path_factory.mktemp("packages") / "clone"
    git(REPOSITORY, "checkout-index", "--all", f"--prefix={folder}/")
    return folder


def built(project: Path) -> tuple[set[str], set[str]]:
    """The names in the source archive, below its folder, and in the wheel."""
    subprocess.run([sys.executable, "-c", BUILD], cwd=project, check=True, capture_output=True)
    (archive,), (wheel,) = (list((project / "dist").glob(end)) for end in ("*.tar.gz", "*.whl"))
    with tarfile.open(archive) as tar, zipfile.ZipFile(wheel) as found:
        source = {name.partition("/")[2] for name in tar.getnames()}
        return source, set(found.namelist())


def test_the_tool(clone: Path) -> None:
    source, wheel = built(clone)
    files = git(REPOSITORY, "ls-files", "migrator", "rules").splitlines()
    assert {*files} <= source
    installed = {f"migrator/{file}" if file.startswith("rules/") else file for file in files}
    assert installed <= wheel
    assert {name.partition("/")[0] for name in wheel} == {
        "migrator",
        f"tpu_migrate-{migrator.__version__}.dist-info",
    }


def test_all_have_the_same_version() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == wheel.VERSION == migrator.__version__
    extension = json.loads((REPOSITORY / "editors/vscode/package.json").read_text("utf-8"))
    assert extension["version"] == migrator.__version__
    assert f"\n## {migrator.__version__}" in (REPOSITORY / "CHANGELOG.md").read_text("utf-8")
