"""Changes of a repository, and what counts of them."""

from __future__ import annotations

from pathlib import Path

from helpers import git

from migrator import migrate_paths
from migrator.diagnostics import Outcome
from migrator.runs.run_report import Report

OLD = "import torch\n\n\ndef old(x):\n    return x.cuda()\n"
NEW = "\n\ndef new(x):\n    return x.cuda()\n"
STREAM = "\n\ndef stream():\n    return torch.cuda.Stream()\n"
CHECK = ("--target", "torchax", "--check", "--diff-base")


def since(root: Path, revision: str = "HEAD", path: str = ".") -> Report:
    return migrate_paths([root / path], diff_base=revision)


def found(report: Report, root: Path) -> list[str]:
    """`file:place outcome` of each construct that counts."""
    return [
        f"{path.resolve().relative_to(root.resolve()).as_posix()}:{d.range} {d.outcome}"
        for path, d in report.diagnostics(*Outcome)
    ]


def append(path: Path, text: str) -> None:
    with path.open("a", newline="") as file:
        file.write(text)


def commit(root: Path, message: str = "more") -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", message)
