"""What a program's training steps take on the user's GPU, beside its recording."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from .run_script import run
from .script import Script
from .verify_errors import VerifyError

FILE = "gpu_steps.json"  # in the golden's folder
STEPS = 20  # that are measured


@dataclass(frozen=True)
class GpuSteps:
    """``seconds``: the median of ``steps``, from the end of one to that of the next; ``memory``:
    the most bytes that were allocated."""

    device: str
    seconds: float
    steps: int
    memory: int | None

    def __str__(self) -> str:
        memory = "" if self.memory is None else f", {self.memory / 2**30:,.2f} GiB allocated"
        return (
            f"{1e3 * self.seconds:,.3g} ms a step{memory} on {self.device} "
            f"(the median of {self.steps}, measured by `record`)"
        )


def measure(
    script: Script, python: Path, copy: Path, output: Path, timeout: float,
    env: Mapping[str, str],
) -> GpuSteps | None:  # fmt: skip
    """Run the original in ``copy`` of its folder, unwatched; None if no steps could be measured."""
    program = ["-m", script.module] if script.module else [script.entry]
    found = copy.parent / FILE
    with as_file(files(__package__) / "measure_steps.py") as tool:
        run(
            [str(python), str(tool), str(found), str(STEPS), *program, *script.args],
            cwd=copy / script.start, log=copy.parent / "gpu_steps.log", timeout=timeout, env=env,
        )  # fmt: skip
    if not found.is_file():
        return None
    output.mkdir(parents=True, exist_ok=True)
    (output / FILE).write_text(found.read_text("utf-8"), "utf-8")
    return read(output)


def read(golden: Path) -> GpuSteps:
    """What `record` measured. Raises VerifyError."""
    path = golden / FILE
    try:
        fields: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return GpuSteps(**fields)
    except OSError as error:
        raise VerifyError(
            f"{path}: {error.strerror}: `tpu-migrate record` on a GPU writes it, for programs of "
            "one process that train"
        ) from error
    except (ValueError, TypeError) as error:
        raise VerifyError(f"{path}: not written by `tpu-migrate record`") from error
