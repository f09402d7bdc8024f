"""Public programs of Keras and TensorFlow, migrated and verified on a target's CPU back end.

    python benchmarks/keras_programs.py CHECKOUTS [--only NAME] [--work FOLDER]

In the environment of `keras_jax`. CHECKOUTS has a folder for each repository that PROGRAMS names:
tensorflow/docs, fchollet/deep-learning-with-python-notebooks. A notebook's cells become a script,
without what the shell does. Drawn arrays stand in for the data sets, nothing is plotted, and
`until` says where a program ends that would then show pictures. The table has the verdict, how many
values were compared, and how far the losses are apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = 4
_DATA = re.compile(r"(?:tf\.)?(?:keras\.)?(?:datasets\.)?\b(\w+)\.load_data\(\)")
_DRAWN = '''"""Drawn arrays in the place of data sets."""

import numpy as np

COLOURED = ("cifar10", "cifar100")


def load(name):
    shape, columns = ((32, 32, 3), (1,)) if name in COLOURED else ((28, 28), ())
    drawn = np.random.default_rng(0)
    return tuple(
        (drawn.integers(0, 256, (count, *shape), dtype=np.uint8),
         drawn.integers(0, 10, (count, *columns)).astype(np.uint8))
        for count in (512, 64)
    )
'''
_NOTHING = (
    "import sys\nfrom unittest.mock import MagicMock\n\nsys.modules[__name__] = MagicMock()\n"
)
_PACKAGE = """from unittest.mock import MagicMock


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock()
"""
_SHOWN = ("IPython", "imageio", "matplotlib", "pandas", "sklearn", "tensorflow_docs",
          "tensorflow_probability")  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A file of a repository, how it is cut, and where it is tried: targets, with devices."""

    file: str
    tried: tuple[tuple[str, int], ...]
    changes: tuple[tuple[str, str], ...] = ()
    until: str = ""

    @property
    def name(self) -> str:
        return "/".join(Path(self.file).with_suffix("").parts[-2:])


BOTH = (("keras_jax", 1), ("tf_tpu", 2))
LOOPS = (("tf_tpu", 1), ("tf_tpu", 2))
_TUTORIALS = "docs/site/en/tutorials"
_CHOLLET = "deep-learning-with-python-notebooks/second_edition"
PROGRAMS = (
    Program(f"{_TUTORIALS}/quickstart/beginner.ipynb", BOTH),
    Program(f"{_TUTORIALS}/quickstart/advanced.ipynb", LOOPS),
    Program(f"{_TUTORIALS}/keras/classification.ipynb", BOTH, until="def plot_image("),
    Program(f"{_TUTORIALS}/images/cnn.ipynb", BOTH),
    Program(f"{_TUTORIALS}/generative/autoencoder.ipynb", BOTH, until="# Download the dataset"),
    Program(
        f"{_TUTORIALS}/generative/dcgan.ipynb", LOOPS,
        (("BATCH_SIZE = 256", "BATCH_SIZE = 64"), ("EPOCHS = 50", "EPOCHS = 1")),
        "checkpoint.restore(",
    ),
    Program(
        f"{_TUTORIALS}/generative/cvae.ipynb", LOOPS, (("epochs = 10", "epochs = 1"),),
        "def display_image(",
    ),
    Program(
        f"{_CHOLLET}/chapter02_mathematical-building-blocks.ipynb", BOTH, until="x = np.array(",
    ),
    Program(
        f"{_CHOLLET}/chapter12_part04_variational-autoencoders.ipynb", LOOPS, until="n = 30",
    ),
)  # fmt: skip


def script(program: Program, text: str) -> str:
    """The program as a script of Python alone."""
    if program.file.endswith(".ipynb"):
        cells = (c for c in json.loads(text)["cells"] if c["cell_type"] == "code")
        text = "\n".join("".join(cell["source"]) + "\n" for cell in cells)
    lines = (line for line in text.splitlines(True) if not line.startswith(("!", "%")))
    text = "".join(lines)
    for old, new in program.changes:
        assert old in text, (program.file, old)
        text = text.replace(old, new)
    if program.until:
        assert program.until in text, (program.file, program.until)
        text = text[: text.index(program.until)]
    text, count = _DATA.subn(r'__import__("drawn").load("\1")', text)
    assert count, program.file
    return text


def lay(program: Program, checkouts: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "drawn.py").write_text(_DRAWN)
    for name in _SHOWN:
        if re.search(rf"^(?:import|from) {name}\b", (text := _text(program, checkouts)), re.M):
            (folder / name).mkdir(exist_ok=True)
            (folder / name / "__init__.py").write_text(_PACKAGE)
            for part in re.findall(rf"^(?:import|from) {name}\.(\w+)", text, re.MULTILINE):
                (folder / name / f"{part}.py").write_text(_NOTHING)
    at = folder / "program.py"
    at.write_text(_text(program, checkouts))
    return at


def _text(program: Program, checkouts: Path) -> str:
    return script(program, (checkouts / program.file).read_text())


def verified(at: Path, target: str, devices: int) -> str:
    """A row's cells: the verdict, values, how far the losses are apart."""
    asked = [sys.executable, "-m", "migrator", "verify", at.name, "--target", target]
    asked += ["--quick", "--steps", str(STEPS), "--roundings", "1", "--json"]
    asked += ["--python", sys.executable, *(["--devices", str(devices)] * (devices > 1))]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(asked, cwd=at.parent, capture_output=True, text=True, env=env)
    if not done.stdout.startswith("{"):
        return f"{(done.stderr.strip().splitlines() or ['nothing'])[-1]} | |"
    at.with_suffix(f".{target}{devices}.json").write_text(done.stdout)
    found = json.loads(done.stdout)
    if found["error"]:
        return f"{found['error'].splitlines()[0]} | |"
    compared = [f for f in found["compiled"]["findings"] if f["elements"] > 0]
    losses = found["compiled"]["losses"]
    apart = max((abs(float(a) - float(b)) for a, b in losses), default=float("nan"))
    return f"{'PASS' if found['passed'] else 'FAIL'} | {len(compared)} | {apart:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", default="", help="programs whose name has this")
    parser.add_argument("--target", default="", help="one target alone")
    parser.add_argument("--work", type=Path, help="a folder that is kept")
    asked = parser.parse_args()
    work = (asked.work or Path(tempfile.mkdtemp())).resolve()
    print("| program | target, devices | verdict | values | losses apart |\n|---|---|---|---|---|")
    for program in PROGRAMS:
        if asked.only not in program.name or not (asked.checkouts / program.file).exists():
            continue
        at = lay(program, asked.checkouts, work / program.name.replace("/", "_"))
        for target, devices in program.tried:
            if asked.target in ("", target):
                row = verified(at, target, devices)
                print(f"| {program.name} | {target}, {devices} | {row} |", flush=True)


if __name__ == "__main__":
    main()
