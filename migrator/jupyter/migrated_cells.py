"""The cells of a kernel, migrated one by one as parts of the program that they are together.

A cell is migrated in a notebook of all cells that ran before it, as they ran. Only its own
constructs are rewritten. What other cells would gain by that (imports, set-up) runs in front of it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from migrator.config import Config
from migrator.diagnostics import START, Diagnostic
from migrator.errors import UsageError
from migrator.formats import notebook
from migrator.pipeline.result import Result
from migrator.runs.run_report import FileReport
from migrator.runs.worker import Worker, migrate_for_all
from migrator.targets import RUNTIME, Target

MAGIC = "%%tpu_migrate"


@dataclass(frozen=True)
class MigratedCell:
    """A cell to be run."""

    report: FileReport  # of the cell with its magic, as if it were a file
    set_up: str  # statements that run before it
    source: str
    texts: Mapping[str, str]  # what then ran for each typed cell, see `Cells`


class Cells:
    """What ran for each cell, by what was typed: a cell that runs again takes its own place."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def accept(self, cell: MigratedCell) -> None:
        """From now on, its set-up has run."""
        self._texts.update(cell.texts)

    def migrate(
        self, cell: str, earlier: Sequence[str], targets: Sequence[Target], config: Config
    ) -> MigratedCell:
        """Migrate a cell, typed after `earlier` ones, numbered from 1.

        Raises UsageError where it cannot be migrated without one of them.
        """
        typed = [_body(text) for text in earlier]
        number = typed.index(cell) + 1 if cell in typed else len(typed) + 1
        known: dict[int, str] = {}
        for place, text in enumerate(typed, 1):
            if text != cell and text not in known.values():
                known[place] = text
        texts = {place: self._texts.get(text, text) for place, text in known.items()}
        texts[number] = f"\n{cell}"  # so that lines count as they do below the magic
        result = _migrated(texts, number, targets, config)
        before, after = (notebook.read_notebook(text) for text in (result.original, result.source))
        set_up = "\n".join(
            statement
            for old, new in zip(before.cells, after.cells, strict=True)
            if old.number != number
            for statement in _gained(old, new)
        )
        sources = {found.number: found.source for found in after.cells}
        ran = {text: sources[place] for place, text in known.items()}
        source = sources[number].removeprefix("\n")
        report = _report(number, cell, f"{set_up}\n{source}" if set_up else source, result)
        return MigratedCell(report, set_up, source, {**ran, cell: source})


def _body(text: str) -> str:
    """A cell without the magic."""
    first, _, rest = text.lstrip("\n").partition("\n")
    return rest if first.split()[:1] == [MAGIC] else text


def _migrated(
    texts: Mapping[int, str], number: int, targets: Sequence[Target], config: Config
) -> Result:
    """A notebook of these cells, with the constructs of one of them rewritten."""
    path = Path.cwd() / "cells.ipynb"
    cells = [
        {"cell_type": "code" if place in texts else "markdown", "source": texts.get(place, "")}
        for place in range(1, max(texts) + 1)
    ]
    content = json.dumps({"cells": cells, "nbformat": 4}).encode()
    worker = Worker([path.parent], targets, config, {path: content})
    options = replace(config.options, only=lambda where, _code: where.cell == number)
    result = migrate_for_all(path, content, targets, options, worker.project(path))
    if result.failed:
        raise UsageError(result.diagnostics[0].message)
    return result


def _gained(old: notebook.Cell, new: notebook.Cell) -> list[str]:
    """The imports and the set-up that another cell would have now."""
    before, after = (
        {ast.unparse(statement): statement for statement in ast.parse(found.code).body}
        for found in (old, new)
    )
    changed = {**before, **after}.items() if old.code != new.code else ()
    for text, statement in changed:
        if (text in before) == (text in after):
            continue
        is_import = isinstance(statement, ast.Import | ast.ImportFrom)
        if not is_import and (text in before or not text.startswith(f"{RUNTIME}.")):
            raise UsageError(
                f"the cell In [{old.number}] has to change, too: put {MAGIC} there, restart the "
                "kernel, and run both"
            )
    return [text for text in after if text not in before]


def _report(number: int, cell: str, source: str, result: Result) -> FileReport:
    """What became of the cell, as if it and its magic were a file."""
    own = [_within(d, number) for d in result.diagnostics if d.range.cell == number]
    added = [
        replace(d, range=START, touched=())
        for d in result.diagnostics
        if d.range.cell != number and d.is_edit
    ]
    original, migrated = (f"{MAGIC}\n{text.rstrip()}\n".encode() for text in (cell, source))
    return FileReport(Path(f"In [{number}]"), Result(original, migrated, (*added, *own)))


def _within(found: Diagnostic, number: int) -> Diagnostic:
    touched = tuple(replace(t, cell=0) for t in found.touched if t.cell == number)
    return replace(found, range=replace(found.range, cell=0), touched=touched)
