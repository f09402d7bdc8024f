"""Set up what the tests need and run all of them: `python3 tests/run.py [pytest options]`.

Makes one environment for each target with uv (the targets can not share one), from uv.lock; about
8.5 GB of disk for both, since uv links equal files. Then runs ruff, mypy and all tests, those of a
target inside its environment: both targets at the same time, the second one prints when the first
one is done. Needs Python 3.11 or later and the package index, and for the tests of the HTML report
a Chromium, which is installed where that can be done (apt-get, as root).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ">=3.11,<3.13"  # torch_xla's libtpu has no wheels for later ones
# torchax's tests take longest, so the other environment runs those that need no target, too.
BACK_ENDS = {"torch_xla": {"PJRT_DEVICE": "CPU"}, "torchax": {"JAX_PLATFORMS": "cpu"}}
# XLA's own passes all run, but LLVM need not polish machine code that runs once: that took most of
# the time of torch_xla's tests.
QUICKLY = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
TARGET_TESTS = ["tests/runtime", "tests/verify/test_target_*.py"]


def find_uv() -> list[str]:
    """The command that starts uv; it is installed into a small environment if there is none."""
    if shutil.which("uv"):
        return ["uv"]
    folder = ROOT / ".venv-uv"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run([python, "-m", "uv", "--version"], capture_output=True).returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", "uv"], check=True)
    return [str(python), "-m", "uv"]


def environment(uv: list[str], target: str) -> Path:
    """The interpreter of a target's environment, made or brought up to date."""
    folder = ROOT / f".venv-{target}"
    command = [*uv, "sync", "--frozen", "-q", "--python", PYTHONS, "--extra", target]
    subprocess.run(
        command, cwd=ROOT, env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(folder)}, check=True
    )
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def find_chromium() -> None:
    """Install a browser if there is none; where that fails, its tests say what is missing."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    downloaded = Path.home() / ".cache" / "ms-playwright"  # by `playwright install chromium`
    if os.environ.get("CHROMIUM") or any(map(shutil.which, names)) or downloaded.exists():
        return
    if shutil.which("apt-get") and os.geteuid() == 0:
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "-y", "chromium"]):
            subprocess.run(["apt-get", *command], env=env, stdout=subprocess.DEVNULL)


def main() -> int:
    # Tests start hundreds of interpreters, and torch takes seconds more without its bytecode.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    uv = find_uv()
    find_chromium()
    pythons = {target: environment(uv, target) for target in BACK_ENDS}
    failed = 0
    with tempfile.TemporaryFile("w+") as later:
        runs = {}
        for target, back_end in BACK_ENDS.items():
            # the tests that need no target run once, in the first environment
            found = [str(p.relative_to(ROOT)) for name in TARGET_TESTS for p in ROOT.glob(name)]
            paths = sorted(found) if runs else ["tests"]
            output = later if runs else None
            print(f"== {target}: pytest {' '.join(paths)}", file=output, flush=True)
            env = {**QUICKLY, **os.environ, **back_end, "TPU_MIGRATE_TARGET": target}
            command = [pythons[target], "-m", "pytest", *paths, *sys.argv[1:]]
            runs[target] = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT
            )
        for run in runs.values():
            failed += run.wait() != 0
        later.seek(0)
        print(later.read(), end="", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
