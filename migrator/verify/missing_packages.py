"""Packages that a script needs, and an interpreter lacks: all of them, not one in each run."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from migrator.analysis.project.facts import ProjectFacts
from migrator.analysis.project.project_cache import ProjectCache
from migrator.files.discover import Disk
from migrator.frameworks.torch.device_constructs import DEVICE_CONSTRUCTS

from .in_target_python import child_environment
from .script import Script

# Packages that PyPI has under another name than Python.
_CALLED = {
    "PIL": "Pillow", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless",
    "git": "GitPython", "skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "PyYAML",
}  # fmt: skip
_SECONDS = 20.0
_LOOKS = (
    "import importlib.util as u, json, sys; "
    "print(json.dumps([m for m in sys.argv[1:] if u.find_spec(m) is None]))"
)


def missing_packages(script: Script, python: Path, first: str) -> list[str]:
    """The packages to install: that of the module ``first``, which was missed, and further ones
    that files of the script import when they are loaded."""
    folders = (script.folder, script.folder / script.start, (script.folder / script.file).parent)
    imported = {
        module for path in _reached(script) for module in _imported(path)
        if module not in sys.stdlib_module_names
        and not any((f / module).exists() or (f / f"{module}.py").exists() for f in folders)
    }  # fmt: skip
    lacks = {first, *_lacking(python, sorted(imported))}
    return [_CALLED.get(module, module) for module in (first, *sorted(lacks - {first}))]


def _reached(script: Script) -> Iterator[Path]:
    file, reader = script.folder / script.file, Disk({})
    yield file
    with suppress(OSError, ValueError, RecursionError):
        yield from ProjectFacts(
            file, script.folder, reader, ProjectCache(reader, DEVICE_CONSTRUCTS)
        ).reached()


def _imported(path: Path) -> Iterator[str]:
    """Top-level modules that a file needs to be loaded: not those in functions, or under `try`."""
    try:
        todo: list[ast.stmt] = [*ast.parse(path.read_bytes()).body]
    except (OSError, SyntaxError, ValueError):
        return
    for statement in todo:
        if isinstance(statement, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            yield str(statement.module).partition(".")[0]


def _lacking(python: Path, modules: Sequence[str]) -> list[str]:
    """Those that an interpreter doesn't find; none where that can't be known."""
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        done = subprocess.run(
            [str(python), "-c", _LOOKS, *modules], capture_output=True, timeout=_SECONDS,
            check=True, env=child_environment(),
        )  # fmt: skip
        found: list[str] = json.loads(done.stdout)
        return found
    return []
