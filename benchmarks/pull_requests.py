"""The size of the pull request that a run makes.

    python benchmarks/pull_requests.py FOLDER... [--target torchax] [--tool COMMIT]

FOLDER is a checked-out repository; a script of 12 lines is always the first. Each is copied into a
new git repository and migrated there; then `git diff` counts the files that changed and the lines
that were added and removed. The wheel is one file without lines. `--tool` takes the tool as it was
at a commit of this repository. Prints a row of a table for each.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(100):
    x = torch.randn(64, 8).cuda()
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("folders", nargs="*", type=Path)
    options.add_argument("--target", default="torchax")
    options.add_argument("--tool", help="a commit of this repository")
    asked = options.parse_args()
    print("| | files | lines added | lines removed |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        tool = ROOT if asked.tool is None else tool_of(asked.tool, work / "tool")
        script = work / "script"
        script.mkdir()
        (script / "train.py").write_text(SCRIPT, encoding="utf-8")
        for folder in (script, *asked.folders):
            files, added, removed = pull_request(folder, work / "project", asked.target, tool)
            print(f"| {folder.name} | {files} | {added:,} | {removed:,} |", flush=True)


def tool_of(commit: str, folder: Path) -> Path:
    """The files of a commit."""
    command = ["git", "archive", "--format=tar", commit]
    packed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def pull_request(folder: Path, project: Path, target: str, tool: Path) -> tuple[int, int, int]:
    """How many files a run changes, and how many lines it adds and removes."""
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(folder, project, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    git(project, "init", "--quiet")
    git(project, "add", "--all", "--force")
    # The installed tool may be a link to this repository, which an older one must not import.
    environment = {**os.environ, "PYTHONPATH": str(tool), "TPU_MIGRATE_CACHE": f"{project}.cache"}
    command = [sys.executable, "-m", "migrator", str(project), "--target", target, "-q"]
    subprocess.run(command, cwd=project.parent, env=environment, stdout=subprocess.DEVNULL)
    git(project, "add", "--all", "--force", "--intent-to-add")
    rows = [line.split("\t") for line in git(project, "diff", "--numstat").splitlines()]
    return len(rows), sum(lines(row[0]) for row in rows), sum(lines(row[1]) for row in rows)


def lines(count: str) -> int:
    """0 for `-`, which git says of binary files."""
    return int(count) if count.isdigit() else 0


def git(folder: Path, *arguments: str) -> str:
    command: Sequence[str] = ["git", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
