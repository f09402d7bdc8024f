"""What an unchanged tree costs: `--check` again, beside `git status` and a bare start.

    python benchmarks/cache_time.py [--files 10000] [--runs 9]

Makes a git repository of that many files (a fifth has GPU code; ten to a folder), lets `--check`
look at it once, and then runs in turn: the same `--check`, `git status`, `tpu-migrate --version`
and an interpreter that does nothing. Then one file is edited. Prints CPU seconds (median), and what
`--check` takes as a multiple of the others, pair by pair.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GPU = """\
import torch

model = torch.nn.Linear({n}, 2).cuda()
for step in range({n}):
    print(model(torch.ones(1, {n}, device="cuda")).sum().item())
"""
PLAIN = "def f{n}(x):\n    return x + {n}\n"


def make(root: Path, number: int) -> None:
    """A tree of that many files in a repository."""
    for n in range(number):
        file = root / f"part{n // 1000}" / f"folder{n // 10}" / f"module{n}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text((GPU if n % 5 == 0 else PLAIN).format(n=n))
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *identity, *command], cwd=root, check=True)


def seconds(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """CPU time of a command and what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root, kept = Path(name) / "tree", Path(name) / "cache"
        environment = {
            **os.environ, "TPU_MIGRATE_CACHE": str(kept), "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(Path(name) / "bytecode"),
        }  # fmt: skip
        make(root, arguments.files)
        time.sleep(2.5)  # until the clock of any file system has gone on
        check = [sys.executable, "-m", "migrator", ".", "--target", "torchax", "--check", "-q"]
        first = seconds(check, root, environment)
        print(f"{arguments.files:,} files, looked at: {first:.2f} s of CPU")
        commands = {
            "unchanged": check,
            "git status": ["git", "status"],
            "--version": [sys.executable, "-m", "migrator", "--version"],
            "nothing": [sys.executable, "-c", "pass"],
        }
        taken: dict[str, list[float]] = {what: [] for what in commands}
        for _ in range(arguments.runs + 1):
            for what, command in commands.items():
                taken[what].append(seconds(command, root, environment))
        counted = {what: times[1:] for what, times in taken.items()}
        for what, times in counted.items():
            ratios = sorted(a / b for a, b in zip(counted["unchanged"], times, strict=True))
            middle = f"{statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})"
            print(f"{what:10} {statistics.median(times):.3f} s   unchanged takes {middle} of it")
        (root / "part0" / "folder0" / "module0.py").write_text(GPU.format(n=7))
        again = seconds(check, root, environment)
        print(f"one file edited: {again:.2f} s, {again / first:.0%} of looking at all")


if __name__ == "__main__":
    main()
