"""The command that makes a release: what it asks for first; nothing is published by half."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from helpers import REPOSITORY, committed

CHANGES = "# Changelog\n\n## 1.2.0 ({})\n\n* New.\n\n## 1.1.0 (2026-01-01)\n\n* Old.\n"


@pytest.fixture
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", REPOSITORY / ".github" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def project(folder: Path, version: str = "1.2.0", day: str = "2026-12-01") -> Path:
    return committed(
        folder,
        {
            "pyproject.toml": f'[project]\nname = "tpu-migrate"\nversion = "{version}"\n',
            "editors/vscode/package.json": f'{{"version": "{version}"}}',
            "CHANGELOG.md": CHANGES.format(day),
        },
    )


def test_the_notes_of_a_release_are_its_part_of_the_changelog(release: ModuleType) -> None:
    changes = CHANGES.format("not released")
    assert release.notes(changes, "1.2.0") == "* New."
    assert release.notes(changes, "1.1.0") == "* Old."
    assert release.notes(changes, "1.2") == ""
    own = (REPOSITORY / "CHANGELOG.md").read_text("utf-8")
    assert release.notes(own, "0.1.0").startswith("* Targets: torchax")


def test_a_release_is_only_made_of_one_version(release: ModuleType, tmp_path: Path) -> None:
    root = project(tmp_path)
    assert not [*release.find_problems(root, "1.2.0", publish=True)]
    assert [*release.find_problems(root, "1.3.0", publish=False)] == [
        "pyproject.toml: the version is 1.2.0, not 1.3.0",
        "editors/vscode/package.json: the version is 1.2.0, not 1.3.0",
        "CHANGELOG.md: nothing under `## 1.3.0`",
    ]


def test_only_what_is_dated_and_committed_is_published(release: ModuleType, tmp_path: Path) -> None:
    root = project(tmp_path, day="not released")
    (root / "new.py").touch()
    assert not [*release.find_problems(root, "1.2.0", publish=False)]
    assert [*release.find_problems(root, "1.2.0", publish=True)] == [
        "CHANGELOG.md: put the date in place of `## 1.2.0 (not released)`",
        "there are changes that are not committed",
    ]


@pytest.mark.parametrize("fails", ["", "npm"])
def test_nothing_is_published_unless_all_was_made(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Programs in place of uv, npm, git, gh and npx note how they were called."""
    root, programs, log = project(tmp_path / "project"), tmp_path / "bin", tmp_path / "log"
    programs.mkdir()
    for name in ("uv", "npm", "git", "gh", "npx"):
        lines = [f'#!/bin/sh\necho {name} "$1" >> {log}']
        if name == "npm":
            lines.append(f"touch {root}/editors/vscode/tpu-migrate-1.2.0.vsix")
        if name == "uv":
            lines.append(f"mkdir -p {root}/build/release/site")
        (programs / name).write_text("\n".join([*lines, f"exit {int(name == fails)}\n"]))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(release, "ROOT", root)
    monkeypatch.setattr(release, "FOLDER", root / "build" / "release")
    monkeypatch.setattr(release.sys, "executable", str(programs / "uv"))
    monkeypatch.setattr(sys, "argv", ["release.py", "1.2.0", "--publish"])
    if fails:
        with pytest.raises(SystemExit, match="exit code 1; nothing after it was done"):
            release.main()
    else:
        release.main()
    did = log.read_text().splitlines()
    assert did[:5] == ["git status", "git tag", "uv build", "uv -m", "npm ci"]
    published = ["git tag", "git push", "gh release", "uv run", "npx vsce", "uv publish"]
    assert did[5:] == ([] if fails else ["npm run", *published])
