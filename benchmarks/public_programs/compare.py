"""Public programs of frameworks, unedited, on a target's CPU back end beside the CPU.

    python benchmarks/public_programs/compare.py CHECKOUTS [--only NAME] [--work FOLDER] [--time]
                                                 [--devices RANKS]

In the environment of a target, with the group `trainers` and what the programs import (datasets,
evaluate, diffusers, trl, scikit-learn, tensorboard, jsonargparse). CHECKOUTS has a folder for each
repository that programs.py names; a program whose file is not there is left out. Each runs by
`tpu-migrate verify --quick` in a folder where stand_ins.py has put tiny models and drawn data; the
table has the verdict, how far losses and the last weights are apart, how many values were compared,
and the seconds of the original and of the migrated run.
The report of each is kept beside its folder, as JSON. `--devices 2` starts two ranks.
`--time` measures a step instead: the migrated program compiled, operator by operator, and the
original on the CPU: the median CPU seconds of the last 6 of 24 batches, or of its last half.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import PROGRAMS, Program

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STAND_IN = ROOT / "migrator" / "verify" / "recorder" / "cpu_stand_in.py"
STEPS, COUNTED = 24, 6
# Without a network, and nowhere but in its folder.
ALONE = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": "."}


def lay(program: Program, checkouts: Path, stand_ins: Path, work: Path) -> tuple[Path, list[str]]:
    """A folder to start it in, and its command."""
    folder = work / Path(program.file).stem
    shutil.rmtree(folder, ignore_errors=True)
    left_out = ("data",) if "timm" in program.needs else ("data", "timm.py")
    shutil.copytree(stand_ins, folder, ignore=shutil.ignore_patterns(*left_out))
    there = folder / "programs/one/two"
    there.mkdir(parents=True)
    for name in ("data", "Datasets", "programs/Datasets"):  # two or three folders above a program
        (folder / name).symlink_to(stand_ins / "data")
    for file in (Path(program.file).name, *program.beside):
        shutil.copy(checkouts / Path(program.file).parent / file, there / file)
    script = f"programs/one/two/{Path(program.file).name}"
    return folder, [script, *shlex.split(program.arguments)]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, **ALONE, "HF_HOME": str(folder.parent / "cache")}


def verified(folder: Path, command: list[str], target: str, devices: int, steps: int = 5) -> str:
    """A row's cells: verdict, largest differences of losses and last weights, values, seconds."""
    script, *arguments = command
    asked = [
        sys.executable,
        "-m",
        "migrator",
        "verify",
        script,
        "--quick",
        "--json",
        "--steps",
        str(steps),
    ]
    asked += ["--target", target, "--python", sys.executable, "--timeout", "3000"]
    if devices > 1:
        asked += ["--devices", str(devices)]
    done = subprocess.run(
        [*asked, "--", *arguments], cwd=folder, capture_output=True, text=True,
        env={**environment(folder), "PYTHONPATH": f".{os.pathsep}{ROOT}"},
    )  # fmt: skip
    if not done.stdout.startswith("{"):
        return f"{done.stderr.strip().splitlines()[-1]} | | |"
    folder.with_suffix(f".{target}.json").write_text(done.stdout)
    found = json.loads(done.stdout)
    if found["error"]:
        return f"{found['error']} | | |"
    parts = [found["stepwise"], found["compiled"]]
    losses = parts[0]["losses"] or parts[1]["losses"]
    apart = max((abs(float(a) - float(b)) for a, b in losses), default=float("nan"))
    findings = [finding for part in parts for finding in part["findings"]]
    weights = max((f["max_abs"] for f in findings if f["kind"] == "end"), default=float("nan"))
    compared = sum(f["elements"] > 0 for f in findings)
    seconds = found["seconds"]
    original = seconds.pop("original")
    took = f"{original:.0f} / {sum(seconds.values()):.0f}"
    verdict = "PASS" if found["passed"] else "FAIL"
    return f"{verdict} | {apart:.0e} | {weights:.0e} | {compared} | {took}"


def timed(folder: Path, command: list[str], target: str, _devices: int) -> str:
    """Milliseconds of a step: compiled; on torchax operator by operator, and the original's."""
    migrated = folder / "migrated"
    asked = [sys.executable, "-m", "migrator", "programs", "--target", target, "-o", migrated,
             "--runtime", "copy"]  # fmt: skip
    subprocess.run(
        asked, cwd=folder, check=True, capture_output=True,
        env={**environment(folder), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    program, *arguments = command
    inside = str(migrated / Path(program).relative_to("programs"))
    ways: list[tuple[list[Path], str, dict[str, str]]] = [([], inside, {})]
    if target == "torchax":  # where torch_xla is installed, accelerate takes it for the original
        ways.append(([], inside, {"TPU_RUNTIME_EAGER": "1"}))
        ways.append(([STAND_IN], program, {}))  # a CPU in the place of its GPU
    found = []
    for launcher, script, variables in ways:
        out = folder / "steps.json"
        out.unlink(missing_ok=True)
        shutil.rmtree(folder / "out", ignore_errors=True)  # some refuse one that has files
        steps = [*launcher, HERE / "steps.py", str(STEPS), out, script]
        subprocess.run(
            [sys.executable, *steps, *arguments], cwd=folder,
            env={"PJRT_DEVICE": "CPU", "JAX_PLATFORMS": "cpu", **environment(folder), **variables},
            capture_output=True,
        )  # fmt: skip
        took = json.loads(out.read_text()) if out.exists() else []
        took = took[-min(COUNTED, (len(took) + 1) // 2) :]
        found.append(f"{1000 * statistics.median(took):.0f}" if took else "-")
    return " | ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", default="", help="programs whose name or file has this")
    parser.add_argument("--target", choices=["torchax", "torch_xla"], default="torchax")
    parser.add_argument("--work", type=Path, help="a folder that is kept, with the stand-ins")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--devices", type=int, default=1, help="ranks, as of verify")
    asked = parser.parse_args()
    work = (asked.work or Path(tempfile.mkdtemp())).resolve()
    stand_ins = work / "stand_ins"
    if not stand_ins.exists():
        subprocess.run(
            [sys.executable, HERE / "stand_ins.py", stand_ins], check=True, capture_output=True,
            env=environment(stand_ins),
        )  # fmt: skip
    row = timed if asked.time else verified
    for program in PROGRAMS:
        if asked.only in program.name + program.file and (asked.checkouts / program.file).exists():
            folder, command = lay(program, asked.checkouts, stand_ins, work)
            print(
                f"| {program.name} | {row(folder, command, asked.target, asked.devices)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
