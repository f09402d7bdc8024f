"""CPU time of a whole run against parsing the same GPU files once with LibCST.

    python benchmarks/cpu_time.py FOLDER... [--target torchax] [--runs 5]

FOLDER is a checked-out repository, e.g. pytorch/examples. Two commands run in turn, each as a
process of its own, start-up included: `tpu-migrate FOLDER --check --no-cache`, and a program that
parses every Python file with a GPU construct, or that changes, with LibCST and passes one empty
transformer over it. Prints the CPU seconds (user + system) of each and the ratio, pair by pair. The
first pair writes bytecode, as installing does, and does not count.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from migrator.diagnostics import Outcome
from migrator.runs.run import migrate_paths

_PARSE = """
import sys, libcst
class Empty(libcst.CSTTransformer): pass
for name in open(sys.argv[1]).read().split("\\n"):
    libcst.parse_module(open(name, "rb").read()).visit(Empty())
"""


def cpu_seconds(command: list[str], bytecode: str, *codes: int, cwd: str | None = None) -> float:
    """User and system time of one command and its children. It ends with one of ``codes``."""
    written = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=cwd,
        env={**os.environ, **written},
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in codes:
        sys.exit(f"{' '.join(command[:4])} … ended with {done.returncode}\n{done.stderr}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(folder: Path, target: str, runs: int, bytecode: str) -> None:
    report = migrate_paths([folder], target)
    gpu_files = [
        f.path for f in report.files
        if f.path.suffix == ".py"
        and (f.result.changed or any(d.outcome for d in f.result.diagnostics))
    ]  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listing:
        listing.write("\n".join(str(path) for path in gpu_files))
        listing.flush()
        check = [sys.executable, "-m", "migrator", str(folder), "--target", target, "--check",
                 "--jobs", "1", "--no-cache"]  # fmt: skip
        parse = [sys.executable, "-c", _PARSE, listing.name]
        ours, parsing = [], []
        for _ in range(runs + 1):
            ours.append(cpu_seconds(check, bytecode, 0, 1))
            parsing.append(cpu_seconds(parse, bytecode, 0))
    ours, parsing = ours[1:], parsing[1:]  # the first pair only warms the file cache
    ratios = [a / b for a, b in zip(ours, parsing, strict=True)]
    lines = sum(path.read_bytes().count(b"\n") for path in gpu_files)
    constructs = sum(report.count(outcome) for outcome in Outcome)
    print(f"{folder.name}: {len(report.files)} files, {len(report.changed)} changed; "
          f"{len(gpu_files)} modules with GPU constructs ({constructs}) or changes, {lines} lines"
    )  # fmt: skip
    print(f"  tpu-migrate    {statistics.median(ours):.2f} s CPU")
    print(f"  parsing alone  {statistics.median(parsing):.2f} s CPU")
    print(f"  ratio          {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f})", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--target", default="torchax")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as bytecode:
        for folder in arguments.folders:
            measure(folder, arguments.target, arguments.runs, bytecode)


if __name__ == "__main__":
    main()
