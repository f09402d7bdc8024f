"""mypy on a runtime, as portable programs get it; in the target's environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from helpers import REPOSITORY

from migrator.targets import find_target, portable
from migrator.targets.wheel import runtime_wheel


def what_mypy_says(target: str, folder: Path) -> str:
    """Its errors, a line each; "" if there are none."""
    for name, content in runtime_wheel(portable(find_target(target))).modules.items():
        module = folder / "tpu_runtime" / name
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_bytes(content)
    config = REPOSITORY / "migrator" / "runtime" / "mypy.ini"
    options = ["--config-file", config, "--cache-dir", folder / "cache", "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "tpu_runtime"], cwd=folder, capture_output=True,
        text=True,
    )  # fmt: skip
    return (done.stdout + done.stderr).strip()
