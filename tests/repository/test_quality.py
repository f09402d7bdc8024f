"""The code base itself: lint, types, lines that no one should have to scroll."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

from helpers import REPOSITORY


def run(*command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff() -> None:
    run("ruff", "check", ".")


def test_ruff_format() -> None:
    run("ruff", "format", "--check", ".")


def test_mypy() -> None:
    run("mypy")


def test_the_migrator_and_the_rules_do_not_import_what_they_migrate() -> None:
    forbidden = {"torch", "jax", "numpy"}
    looked_at = 0
    for folder in ("migrator", "rules"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            inside = path.relative_to(REPOSITORY / folder).parts
            if "runtime" in inside or "verify" in inside:
                continue
            looked_at += 1
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    assert forbidden.isdisjoint(each.name.split(".")[0] for each in node.names), (
                        path
                    )
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    assert (node.module or "").split(".")[0] not in forbidden, path
    assert looked_at > 300


def test_the_runtime_never_imports_the_migrator() -> None:
    paths = [*(REPOSITORY / "migrator" / "runtime").rglob("*.py")]
    assert len(paths) > 100
    for path in paths:
        text = path.read_text("utf-8")
        assert "import migrator" not in text and "from migrator" not in text, path


def test_messages_name_no_page_that_only_a_clone_has() -> None:
    """`tpu-migrate explain CODE` prints what an installed user has."""
    for path in (*(REPOSITORY / "rules").glob("*.py"), *(REPOSITORY / "migrator").rglob("*.py")):
        tree = ast.parse(path.read_text())
        prose: set[ast.AST] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr):
                prose.add(node.value)
            elif isinstance(node, ast.keyword) and node.arg == "why":
                prose.update(ast.walk(node.value))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node not in prose:
                text = str(node.value)
                assert not re.search(r"docs/[\w-]+\.md", text), f"{path.name}:{node.lineno}: {text}"
