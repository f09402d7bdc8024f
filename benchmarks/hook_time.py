"""How long a commit waits for the hook: ten files without GPU code, in a project with some.

    python benchmarks/hook_time.py [--runs 15]

Makes a repository whose pyproject.toml names the target, and runs in turn, each as a process of its
own: the hook as pre-commit calls it (`tpu-migrate --hook`), `tpu-migrate --version`, and an
interpreter that does nothing. Prints their CPU time (median), and that as multiples of the
interpreter's, turn by turn. The first two turns write bytecode, as installing does; they do not
count.

Run it where tpu-migrate is installed as usual: the interpreter of an editable installation takes
three times as long to start.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cpu_time import cpu_seconds

FILES, FUNCTIONS = 10, 60
HEAD = "import json\nimport os\nfrom pathlib import Path\n\nfrom .helpers import checked\n"
FUNCTION = """

def read_{0}(path: Path) -> object:
    return checked(json.loads(path.read_text()))
"""
OTHERS = {
    "__init__": "",
    "helpers": "def checked(x):\n    return x\n",
    "train": "import torch\n\nfrom .m0 import read_0\n\nx = torch.tensor(read_0('x')).cuda()\n",
}


def project(folder: Path) -> list[str]:
    """Write a project, and return its files without GPU code."""
    package = folder / "package"
    package.mkdir()
    for number in range(FILES):
        functions = (FUNCTION.format(n) for n in range(FUNCTIONS))
        (package / f"m{number}.py").write_text(HEAD + "".join(functions))
    for name, text in OTHERS.items():
        (package / f"{name}.py").write_text(text)
    (folder / "pyproject.toml").write_text('[tool.tpu-migrate]\ntarget = "torchax"\n')
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return [f"package/m{number}.py" for number in range(FILES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    arguments = parser.parse_args()
    command = str(Path(sys.executable).with_name("tpu-migrate"))
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as bytecode:
        files = project(Path(name))
        commands = {
            "the hook": [command, "--hook", *files],
            "--version": [command, "--version"],
            "nothing": [sys.executable, "-c", "pass"],
        }
        taken: dict[str, list[float]] = {what: [] for what in commands}
        for turn in range(arguments.runs + 2):
            for what, command_ in commands.items():
                seconds = cpu_seconds(command_, bytecode, 0, cwd=name)
                if turn > 1:
                    taken[what].append(seconds)
    print(f"{FILES} files without GPU code; CPU time, and as multiples of an interpreter's start")
    for what, times in taken.items():
        ratios = sorted(a / b for a, b in zip(times, taken["nothing"], strict=True))
        middle, least, most = statistics.median(ratios), ratios[0], ratios[-1]
        milliseconds = 1000 * statistics.median(times)
        print(f"{what:11} {milliseconds:6.0f} ms  {middle:5.2f} ({least:.2f} to {most:.2f})")


if __name__ == "__main__":
    main()
