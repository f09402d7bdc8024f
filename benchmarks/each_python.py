"""A migrated program on each Python for which a target has wheels.

    python benchmarks/each_python.py torchax torch_xla torch_tpu          # 3.11 to 3.14
    python benchmarks/each_python.py torchax --python 3.13

For each target, a training program is migrated with its requirements.txt; that names the target's
packages and the runtime's wheel. For each Python, uv makes a new environment and installs these
requirements into it, from another working folder and from wheels alone, and the program runs there
on the CPU. Prints a row of a table for each: whether the losses are, to the last digit, those of
the first Python. An environment has up to 8 GB, in `--folder`, and is removed before the next.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.analysis.python_requirements import pinned
from migrator.targets import Target, find_target

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(64, 8).cuda()
y = x.sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cuda")
for step in range(10):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print("loss", loss.item())
"""


@dataclass(frozen=True)
class Run:
    """What came of one environment: losses, or why there are none."""

    python: str  # its release, if there is one
    losses: Sequence[str] = ()
    error: str = ""


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("targets", nargs="+")
    options.add_argument("--python", nargs="+", default=["3.11", "3.12", "3.13", "3.14"])
    options.add_argument("--uv", default="uv", help="the command that starts uv")
    options.add_argument("--folder", type=Path, help="where environments are made")
    asked = options.parse_args()
    uv, failed = asked.uv.split(), False
    print("| target | Python | losses |\n|---|---|---|")
    for target in map(find_target, asked.targets):
        first: Sequence[str] = ()
        for python in asked.python:
            with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
                run = tried(target, python, uv, Path(folder))
            first = first or run.losses
            same = "the same" if run.losses == first else f"OTHERS: {', '.join(run.losses)}"
            failed = failed or (bool(run.losses) and run.losses != first)
            said = run.error or f"{same}; the last {run.losses[-1]}"
            print(f"| {target.name} | {run.python or python} | {said} |", flush=True)
    return int(failed)


def tried(target: Target, python: str, uv: Sequence[str], folder: Path) -> Run:
    """Install and run the migrated program."""
    project, environment, elsewhere = (folder / name for name in ("project", "env", "elsewhere"))
    elsewhere.mkdir()
    migrate(target, folder / "source", project)
    interpreter = environment / "bin" / "python"
    install = [*uv, "pip", "install", "-q", "--python", str(interpreter), "--only-binary", ":all:"]
    stand_in = target.host.stand_in
    more = [each.text for each in pinned(target)] if stand_in is not None else []
    given = {**os.environ, **target.host.on_cpu(), "TPU_RUNTIME_REPORT": "0"}
    given.pop("PYTHONPATH", None)
    if stand_in is not None:
        given["PYTHONPATH"] = str(stand_in.modules)
    only = [*uv, "pip", "compile", "-q", "--only-binary", ":all:", "--python-version", python]
    release = ""
    for command in (
        [*only, str(project / "requirements.txt"), "-o", str(folder / "found.txt")],
        [*uv, "venv", "-q", "--no-python-downloads", "--python", python, str(environment)],
        [str(interpreter), "-c", "import platform; print(platform.python_version())"],
        [*install, "-r", str(project / "requirements.txt"), *more],
        [str(interpreter), str(project / "train.py")],
    ):
        done = subprocess.run(command, cwd=elsewhere, env=given, capture_output=True, text=True)
        if done.returncode:
            return Run(release, error=reason(done.stderr))
        release = release or done.stdout.strip()
    return Run(release, re.findall(r"^loss (\S+)$", done.stdout, re.MULTILINE))


def migrate(target: Target, source: Path, to: Path) -> None:
    source.mkdir()
    (source / "train.py").write_text(SCRIPT, encoding="utf-8")
    (source / "requirements.txt").write_text("torch\n", encoding="utf-8")
    command = [sys.executable, "-m", "migrator", str(source), "--target", target.name, "-q"]
    subprocess.run([*command, "-o", str(to)], cwd=ROOT, check=True)


def reason(errors: str) -> str:
    """What uv, or Python, says last of an error."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    if any(line.startswith("error: No interpreter") for line in lines):
        return "there are wheels; no such Python on this machine"
    lacks = re.search(r"only found wheels for `(\S+)` \(v(\S+)\)", errors)
    if lacks is not None:
        return f"no wheels of {lacks[1]} {lacks[2]}"
    return (lines or ["no word"])[-1]


if __name__ == "__main__":
    sys.exit(main())
