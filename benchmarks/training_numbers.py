"""Sixteen training programs, migrated by the tool, against their originals: losses and parameters.

    python benchmarks/training_numbers.py --python torchax=PYTHON torch_xla=PYTHON [--write FILE]

Migrates `training/` (with the model and the loss of the reference app mshnet) for each
target, runs original and migrated program for 10 steps on their CPU back ends from the same weights
on the same batches, with SGD and AdamW, and with each of torch's other optimizers on two of them,
and prints the largest differences of each group of runs. docs/training.md has the small ones in a
row.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from migrator.config import Config
from migrator.runs.run import migrate_paths

HERE = Path(__file__).resolve().parent
MSHNET = HERE.parent / "reference_apps" / "mshnet"
BACK_ENDS = {
    "torchax": {"JAX_PLATFORMS": "cpu"},
    "torch_xla": {"PJRT_DEVICE": "CPU"},
    "torch_tpu": {
        "PYTHONPATH": str(HERE.parent / "migrator/targets/torch_tpu/on_cpu"),
        "TPU_SKIP_MDS_QUERY": "1", "TF_CPP_MIN_LOG_LEVEL": "3",
    },
}  # fmt: skip
ORIGINAL = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}  # torch_tpu's environment, without torch_tpu
COMPILING = ("torchax",)  # targets that run a step as it is, too
DTYPES = {
    "torchax": ("float32",), "torchax eager": ("float32",), "torch_xla": ("float32", "float64"),
    "torch_tpu": ("float32",),
}  # fmt: skip
EVERYWHERE = ("sgd", "adamw")
NAMES = (
    "mlp", "cnn", "unet", "lstm", "gru", "encoder", "gpt", "vit", "vae", "gan", "wgan_gp", "ddpm",
    "mshnet", "contrastive", "reinforce", "metric_learning",
)  # fmt: skip
OTHERS = (
    "adadelta", "adafactor", "adagrad", "adam", "adamax", "asgd", "lbfgs", "muon", "nadam",
    "nesterov", "radam", "rmsprop", "rprop",
)  # fmt: skip
WITH_OTHERS = ("mlp", "cnn")

SHOWN = 1e-4  # a row of the page whose differences are all smaller is merged with others

HEAD = """# Training: the numbers of originals and migrated programs

`benchmarks/training_numbers.py` migrates GPU programs (`benchmarks/training/programs.py`) and runs
them for 10 steps on the CPU back end of each target. The original runs on CPU torch. Both start
from the same weights and get the same batches. The command prints a row for each program and each
other optimizer; here, those below 1e-4 share a row. Nothing here ran on a TPU.

* **loss**: the relative difference of a step's loss.
* **parameters**: the difference in a tensor of the final state (parameters and buffers), relative
  to the largest value in that tensor. Elements whose true gradient is 0, such as biases of
  attention's keys, are left out: they hold rounding noise, which Adam turns into full steps, in the
  original too. Their effect is in the losses.
* **torchax** compiles steps. **torchax eager** runs operator by operator (`TPU_RUNTIME_EAGER=1`).

Each cell is the largest difference of its row's runs: of all their steps, or of all their tensors.
"""
NOTES = """
* Muon rounds to bfloat16 five times within a step, so its parameters agree to bfloat16.
* On cnn, rounding can lead L-BFGS to other float32 parameters; on CPU torch, so does one thread
  without oneDNN. In float64 it agrees.
"""


@dataclass(frozen=True)
class Difference:
    """Between two runs: of losses, of parameters; or what went wrong."""

    losses: float = 0.0
    parameters: float = 0.0
    error: str = ""

    def cells(self) -> str:
        return self.error or f"{self.losses:.1e} | {self.parameters:.1e}"

    def most(self) -> float:
        return float("inf") if self.error else max(self.losses, self.parameters)


Arrays = dict[str, np.ndarray]


def load(file: Path) -> Arrays | str:
    """What a run wrote, or its error in a line."""
    if file.with_suffix(".npz").exists():
        with np.load(file.with_suffix(".npz")) as found:
            return dict(found)
    error = file.with_suffix(".error")
    return error.read_text().strip().splitlines()[-1][:90] if error.exists() else "did not end"


def difference(got: Arrays | str, want: Arrays | str, moved: dict[str, np.ndarray]) -> Difference:
    if isinstance(want, str):
        return Difference(error=f"original: {want} |")
    if isinstance(got, str):
        return Difference(error=f"{got} |")
    worst = 0.0
    for name, values in want.items():
        if name == "losses":
            continue
        here = moved.get(name, np.ones(values.shape, bool))
        if here.any():
            apart = np.abs(got[name].astype(float) - values.astype(float))[here].max()
            worst = float(np.maximum(worst, apart / max(np.abs(values).max(), 1e-30)))
    losses = np.abs(got["losses"] - want["losses"]) / np.maximum(np.abs(want["losses"]), 1e-3)
    return Difference(float(losses.max()), worst)


def jobs(names: list[str], dtypes: tuple[str, ...]) -> Iterator[tuple[str, str, list[str]]]:
    for name in names:
        others = OTHERS if name in WITH_OTHERS else ()
        for dtype in dtypes:
            yield name, dtype, [*EVERYWHERE, *others]


def run(
    python: str,
    folder: Path,
    names: list[str],
    dtypes: tuple[str, ...],
    **env: str,
) -> Path:
    """Run the programs in `folder`, each in a process of its own; returns the folder of results."""
    out = folder / "results"
    out.mkdir(exist_ok=True)

    def start(job: tuple[str, str, list[str]]) -> None:
        name, dtype, optimizers = job
        command = [python, "programs.py", name, "--out", str(out), "--optimizers"]
        command += optimizers
        command += ["--float64"] if dtype == "float64" else []
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **env}, capture_output=True, text=True
        )
        print(f"  {name} {dtype}", "" if done.returncode == 0 else done.stderr[-500:], flush=True)

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        list(pool.map(start, jobs(names, dtypes)))
    return out


Runs = dict[tuple[str, str], list[Difference]]  # by program and optimizer; one for each column


def compare(names: list[str], results: dict[str, Path], columns: list[tuple[str, str]]) -> Runs:
    found: Runs = {}
    for name, _, optimizers in jobs(names, ("float32",)):
        moved = _moved(results, name)
        for optimizer in optimizers:
            stem = f"{name}.{optimizer}"
            row = found[name, optimizer] = []
            for target, dtype in columns:
                got = load(results[target] / f"{stem}.{dtype}.x")
                wanted = load(results["original"] / f"{stem}.{dtype}.x")
                row.append(difference(got, wanted, moved))
    return found


def largest(differences: Iterable[Difference]) -> Difference:
    """The largest of several runs, or what went wrong in any of them."""
    losses, parameters, errors = zip(*map(astuple, differences), strict=True)
    return Difference(float(np.max(losses)), float(np.max(parameters)), max(errors))


def page(runs: Runs, columns: list[tuple[str, str]], shown: float) -> str:
    """Programs with the usual optimizers, then the other optimizers; what is alike in one row."""
    groups = {
        f"## Programs, with {' and '.join(EVERYWHERE)}": ("program", 0, EVERYWHERE),
        f"## Other optimizers, on {' and '.join(WITH_OTHERS)}": ("optimizer", 1, OTHERS),
    }
    text = HEAD
    for title, (what, place, optimizers) in groups.items():
        header = [what, *(f"{t} {d}: {of}" for t, d in columns for of in ("loss", "parameters"))]
        rows: dict[str, list[list[Difference]]] = {}
        for run_of, row in runs.items():
            if run_of[1] in optimizers:
                rows.setdefault(run_of[place], []).append(row)
        merged = {name: name for name in rows}
        alike = [name for name, of in rows.items() if largest(chain(*of)).most() < shown]
        merged |= dict.fromkeys(alike, ", ".join(alike))
        lines = [header]
        for label in dict.fromkeys(merged.values()):
            of_label = chain(*(of for name, of in rows.items() if merged[name] == label))
            lines.append([label, *(largest(c).cells() for c in zip(*of_label, strict=True))])
        table = [f"| {' | '.join(line)} |" for line in lines]
        text += "\n".join(["", title, "", table[0], "|---" * len(header) + "|", *table[1:], ""])
    return text + NOTES


def _moved(results: dict[str, Path], name: str) -> dict[str, np.ndarray]:
    """Which elements have a gradient, by tensor."""
    start, end = (load(results[k] / f"{name}.sgd.float64.x") for k in ("start", "original"))
    assert not isinstance(start, str) and not isinstance(end, str), (name, start, end)
    return {
        key: np.abs(end[key].astype(float) - start[key]) > 1e-9 * (1 + np.abs(start[key]))
        for key in end
        if key != "losses" and "running" not in key and "batches" not in key
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="+", required=True, metavar="TARGET=PYTHON")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--write", type=Path, help="write the page of the docs there")
    args = parser.parse_args()
    pythons = dict(item.split("=", 1) for item in args.python)
    with tempfile.TemporaryDirectory() as temporary:
        top = Path(temporary)
        (top / "original").mkdir()
        ours = (HERE / "training").glob("*.py")
        for file in (*ours, MSHNET / "model.py", MSHNET / "loss.py"):
            shutil.copy(file, top / "original")
        shutil.copytree(top / "original", top / "start")
        results: dict[str, Path] = {}
        some = next(iter(pythons.values()))
        both = ("float32", "float64")
        print("original")
        results["start"] = run(some, top / "start", args.only, ("float64",), STEPS="0", **ORIGINAL)
        results["original"] = run(some, top / "original", args.only, both, **ORIGINAL)
        for target, python in pythons.items():
            print(target)
            report_of = migrate_paths(
                [top / "original"], target, config=Config(runtime="copy"), output=top / target
            )
            if report_of.exit_code:
                sys.exit("\n".join(map(str, report_of.failures)))
            shutil.rmtree(top / target / "results")
            results[target] = run(
                python, top / target, args.only, DTYPES[target], **BACK_ENDS[target],
            )  # fmt: skip
            if target in COMPILING:
                eager = f"{target} eager"
                shutil.copytree(top / target, top / eager, ignore=lambda *_: {"results"})
                results[eager] = run(
                    python, top / eager, args.only, DTYPES[eager],
                    **BACK_ENDS[target], TPU_RUNTIME_EAGER="1",
                )  # fmt: skip
        columns = [(t, dtype) for t in results if t in DTYPES for dtype in DTYPES[t]]
        runs = compare(args.only, results, columns)
    print(page(runs, columns, shown=0))
    if args.write:
        args.write.write_text(page(runs, columns, SHOWN))


if __name__ == "__main__":
    main()
