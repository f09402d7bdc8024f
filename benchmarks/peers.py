"""CPU time beside other tools that read or rewrite Python, on the same files.

    python benchmarks/peers.py FOLDER... [--plot docs/peers.svg]      # the plot needs matplotlib

FOLDER is a checked-out repository. Installs the tools from PyPI into an environment of its own, and
lets each look at a fresh copy of the folder: once at a single file, which writes bytecode and does
not count, then at all of it. Prints the CPU seconds (user + system, of all processes), start-up
included, and what that is as a multiple of `tpu-migrate --check --no-cache`. The tools do different
things, so this is no contest: it says what one waits for.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

from cpu_time import cpu_seconds

PEERS = ("pyupgrade", "torchfix", "paconvert", "fixit")
OWN = "tpu-migrate"
Command = Callable[[Path], list[str]]


def commands(tools: Path, written: Path) -> Mapping[str, Command]:
    """How each is called for a folder."""

    def files(folder: Path) -> list[str]:
        return [str(path) for path in sorted(folder.rglob("*.py"))]

    return {
        OWN: lambda folder: [
            sys.executable, "-m", "migrator", str(folder), "--target", "torchax", "--check",
            "--no-cache",
        ],
        "pyupgrade": lambda folder: [
            str(tools / "pyupgrade"), "--py311-plus", "--exit-zero-even-if-changed", *files(folder)
        ],
        "torchfix": lambda folder: [str(tools / "torchfix"), "--select=ALL", str(folder)],
        "paconvert": lambda folder: [
            str(tools / "paconvert"), "-i", str(folder), "-o", str(written / folder.name)
        ],
        "fixit": lambda folder: [str(tools / "fixit"), "lint", str(folder)],
    }  # fmt: skip


def measured(folder: Path, tools: Path) -> dict[str, float]:
    """CPU seconds of each tool for a repository."""
    found = {}
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as bytecode:
        for tool, command in commands(tools, Path(name, "written")).items():
            small, copy = Path(name, tool, "small"), Path(name, tool, "all")
            small.mkdir(parents=True)
            (small / "a.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(".git"), symlinks=True)
            for given in (small, copy):
                found[tool] = cpu_seconds(command(given), bytecode, 0, 1, cwd=name)
    return found


def plot(file: Path, rows: Mapping[str, Mapping[str, float]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.5))
    height = 0.8 / len(rows)
    for number, (repository, found) in enumerate(rows.items()):
        places = [at + number * height for at in range(len(found))]
        axes.barh(places, [taken / found[OWN] for taken in found.values()], height,
                  label=repository)  # fmt: skip
    names = list(next(iter(rows.values())))
    axes.set_yticks([at + 0.4 - height / 2 for at in range(len(names))], names)
    axes.axvline(1, color="gray", linestyle="--")
    axes.set(xlabel=f"CPU time, {OWN} = 1")
    axes.invert_yaxis()
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the multiples")
    arguments = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        venv.create(name, with_pip=True)
        tools = Path(name, "bin")
        subprocess.run([tools / "pip", "install", "-q", *PEERS], check=True)
        listed = [tools / "pip", "list", "--format", "freeze"]
        for line in subprocess.check_output(listed, text=True).lower().splitlines():
            if line.partition("==")[0] in PEERS:
                print(line)
        for folder in arguments.folders:
            rows[folder.name] = found = measured(folder.resolve(), tools)
            for tool, seconds in found.items():
                print(f"{folder.name:22} {tool:12} {seconds:7.2f} s  × {seconds / found[OWN]:.1f}",
                      flush=True)  # fmt: skip
    if arguments.plot:
        plot(arguments.plot, rows)


if __name__ == "__main__":
    main()
