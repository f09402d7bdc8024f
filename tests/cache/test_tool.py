"""Another tool is another run: its files, its rules, what is installed beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import write_tree

from migrator.cache import tool
from tests.cache.looking import look


def test_another_tool_or_package_is_another_run(
    several: Path, tmp_path: Path, migrated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(str(packages))
    look(several, "--jobs", "1")
    (packages / "libcst-9.dist-info").mkdir()  # as installing another one does
    migrated.clear()
    look(several, "--jobs", "1")
    assert "train.py" in migrated


@pytest.mark.parametrize(
    "edit",
    [
        lambda package: (package / "inner/rule.py").write_text("A = 2\n"),
        lambda package: (package / "inner/more.py").write_text("A = 1\n"),
        lambda package: (package / "inner/rule.py").unlink(),
    ],
)
def test_rules_that_were_edited_are_another_tool(
    edit: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout the version says nothing."""
    files = {"some_rules/__init__.py": "", "some_rules/inner/rule.py": "A = 1\n"}
    package = write_tree(tmp_path, files) / "some_rules"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(tool, "_RULES", "some_rules")
    before = tool.as_it_is()
    (package / "inner/__pycache__").mkdir()
    assert tool.as_it_is() == before
    edit(package)
    assert tool.as_it_is() != before


def test_the_tool_counts_with_all_its_files() -> None:
    states, answers = tool.as_it_is()
    counted = {Path(path).suffix for path in states}
    assert len(states) > 400 and {".py", ".j2", ".css"} <= counted
    assert {Path(path).name for _, path, _ in answers} >= {"migrator", "rules", "pipeline"}
