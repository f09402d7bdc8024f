"""Names that programs take from torch, torchvision, NumPy, SciPy, Pillow and pandas, and that the
versions of a target do not have.

    python benchmarks/missing_names.py PATH... --target torchax

Each is printed with its place and with what the tool makes of it: its code and outcome, or MISSED.
A program that is called 100 % automatic has none that is reported or missed.
"""

from __future__ import annotations

import argparse
import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from migrator.analysis import find_absent_names, find_removed_names
from migrator.analysis.syntax.names import Names
from migrator.runs.run import migrate_paths


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("paths", nargs="+", type=Path)
    options.add_argument("--target", default="torchax")
    asked = options.parse_args()
    report = migrate_paths(asked.paths, asked.target)
    # In a program that stays whole, all has the code of what keeps it.
    said = {
        (file.path, d.range.line): f"{d.code} {d.outcome}"
        for file in report.files
        for d in sorted(file.result.diagnostics, key=lambda d: d.code.startswith("UPG"))
        if d.outcome is not None
    }
    for file in report.files:
        for line, name in missing(file.path):
            print(f"{file.path}:{line} {name} {said.get((file.path, line), 'MISSED')}")


def missing(path: Path) -> Iterator[tuple[int, str]]:
    """The names of a file with their lines."""
    try:
        with warnings.catch_warnings(action="ignore"):
            names = Names(ast.parse(path.read_text()))
    except (OSError, SyntaxError, ValueError):  # a link to nowhere
        return
    for node in names.order:
        for found in (*find_absent_names.find(names, node), *find_removed_names.find(names, node)):
            head = found.key.partition(".")[0]
            if head in find_absent_names.PACKAGES:
                yield getattr(found.node, "lineno", 0), found.key


if __name__ == "__main__":
    main()
