"""What a second process brings: files with edits, migrated by one process and by two.

    python benchmarks/workers.py [PATH]

Without PATH, copies the reference apps until there are 1,000 files with edits. Prints CPU seconds
of one process; of the parent of two, which is what cannot be divided; of each of the two; and how
much faster two are: the CPU time of one, to that of the parent and of the slower of two. That is
what a quiet machine with two processors takes, whatever else this one does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from migrator.config import Config  # noqa: E402
from migrator.runs.run import migrate_paths  # noqa: E402

APPS, FILES = ROOT / "reference_apps", 1000
RUN = """
import gc, json, os, sys, time
from pathlib import Path
from migrator.cli import COLLECTING
from migrator.config import Config
from migrator.runs import pool
from migrator.runs.run import migrate_paths

def timed(function):
    def run(*arguments):
        before = time.process_time()
        found = function(*arguments)
        with open(os.path.join(sys.argv[3], str(os.getpid())), "a") as file:
            file.write(f"{time.process_time() - before}\\n")
        return found
    return run

pool._migrate_batch, pool._migrate = map(timed, (pool._migrate_batch, pool._migrate))
pool._migrate_batch.__name__ = pool._migrate_batch.__qualname__ = "_migrate_batch"
pool._migrate.__name__ = pool._migrate.__qualname__ = "_migrate"
for function in (pool._migrate_batch, pool._migrate):
    function.__module__ = pool.__name__
gc.set_threshold(*COLLECTING)  # as the command does
report = migrate_paths([sys.argv[1]], "torchax", config=Config(jobs=int(sys.argv[2])))
print(json.dumps([time.process_time(), len(report.files), len(report.changed)]))
"""


def make(root: Path) -> None:
    """Copies of the reference apps, each a program of its own."""
    edited = len(migrate_paths([APPS], "torchax", config=Config(jobs=1)).changed)
    for number in range(math.ceil(FILES / edited)):
        shutil.copytree(APPS, root / str(number))


def run(path: Path, jobs: int) -> tuple[float, list[float], int, int]:
    """CPU seconds of the parent, and of each process; files, and those that change."""
    with tempfile.TemporaryDirectory() as times:
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(path), str(jobs), times],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True,
        )  # fmt: skip
        taken: Counter[str] = Counter()
        for file in Path(times).iterdir():
            taken[file.name] = sum(map(float, file.read_text().split()))
    parent, files, changed = json.loads(done.stdout)
    return parent, sorted(taken.values(), reverse=True), files, changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", type=Path)
    given = parser.parse_args().path
    with tempfile.TemporaryDirectory() as name:
        path = given or Path(name)
        if given is None:
            make(path)
        one, _, files, changed = run(path, 1)
        parent, each, *_ = run(path, 2)
    print(f"{files:,} files, {changed:,} with edits")
    print(f"one process   {one:.1f} s")
    print(f"two processes {parent:.1f} s of the parent, " + ", ".join(f"{s:.1f} s" for s in each))
    print(f"cannot be divided: {parent / one:.0%}")
    print(f"two are {one / (parent + max(each, default=0.0)):.2f} times as fast as one")


if __name__ == "__main__":
    main()
