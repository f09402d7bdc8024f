"""How long a commit waits for the hook: ten files without GPU code, the whole process.

    python benchmarks/hook_time.py [--runs 9]

Three commands run in turn: `tpu-migrate --hook` with the files, an interpreter that does nothing,
and one that imports LibCST, which such a run does without. Prints the seconds of each (median), and
the hook's as multiples of the others, pair by pair. The first turn writes bytecode, as installing
does, and does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FILES, LINES = 10, 200


def seconds(command: list[str], folder: Path) -> float:
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    started = time.perf_counter()
    subprocess.run(
        command, cwd=folder, env={**os.environ, **bytecode}, check=True, capture_output=True
    )
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        for number in range(FILES):
            lines = (f"def f{n}(x):\n    return x + {n}\n\n" for n in range(LINES // 3))
            (folder / f"m{number}.py").write_text("\n".join(lines))
        files = sorted(path.name for path in folder.glob("*.py"))
        hook = ["-m", "migrator", "--hook", "--diff", "--target=torchax", *files]
        commands = {"the hook": hook, "nothing": ["-c", "pass"], "LibCST": ["-c", "import libcst"]}
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(arguments.runs + 1):
            for what, command in commands.items():
                taken[what].append(seconds([sys.executable, *command], folder))
    counted = {what: times[1:] for what, times in taken.items()}
    print(f"{FILES} files without GPU code, {LINES} lines each")
    for what, times in counted.items():
        print(f"{what:9} {statistics.median(times):.3f} s", end="")
        ratios = sorted(a / b for a, b in zip(counted["the hook"], times, strict=True))
        middle = statistics.median(ratios)
        print(f"   the hook takes {middle:.1f} of it ({ratios[0]:.1f} to {ratios[-1]:.1f})")


if __name__ == "__main__":
    main()
