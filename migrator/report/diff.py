"""Unified diffs that `git apply` takes."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from migrator.discover import project_root
from migrator.formats import python
from migrator.run import Report


def unified(report: Report, root: Path | None = None) -> Iterator[str]:
    """The diff of a run, line by line with line ends, companions as new files.

    Paths are relative to `root`, as `git apply` expects them there.
    """
    base = root or _base(report)
    for file in report.changed:
        yield from _file(_name(file.path, base), file.result.original, file.result.source)
    for path, content in report.companions.items():
        before = path.read_bytes() if path.exists() else None
        yield from _file(_name(path, base), before, content)


def _base(report: Report) -> Path:
    """The current folder if it holds the files, else the top of the project they belong to."""
    here = Path.cwd()
    files = [f.path.resolve() for f in report.changed]
    if not files or all(here in file.parents for file in files):
        return here
    return project_root(files[0])


def _name(path: Path, base: Path) -> str:
    return Path(os.path.relpath(path.resolve(), base.resolve())).as_posix()


def _file(name: str, before: bytes | None, after: bytes) -> Iterator[str]:
    old = _lines(before) if before is not None else []
    source = f"a/{name}" if before is not None else "/dev/null"
    if before is None:
        yield f"diff --git a/{name} b/{name}\n"
        yield "new file mode 100644\n"
    for line in difflib.unified_diff(old, _lines(after), source, f"b/{name}"):
        if line.endswith("\n"):
            yield line
        else:
            yield line + "\n"
            yield "\\ No newline at end of file\n"


def _lines(content: bytes) -> list[str]:
    """Lines that end where git ends them: at a line feed only."""
    source = python.decode(content)
    text = ("\ufeff" if source.bom else "") + source.text
    return [line + "\n" for line in text.split("\n")[:-1]] + (
        [text.rpartition("\n")[2]] if not text.endswith("\n") and text else []
    )
