"""Environments that ``verify --install`` creates in the user's cache folder.

By uv, or by venv and pip where there is none.
"""

import hashlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from functools import cache
from http.client import HTTPException
from pathlib import Path
from shutil import rmtree, which

from migrator.analysis.python_requirements import CPU_WHEELS, pinned
from migrator.files.user_folders import cache_folder
from migrator.targets import Target, targets

from .in_target_python import child_environment, command_line
from .verify_errors import VerifyError

_FURTHER = "about 1 GB (uv links what it has already)"
_WITHOUT_CUDA = "about 3 GB, with PyTorch's build for the CPU"
_INDEXES = ("PIP_INDEX_URL", "PIP_NO_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL",
            "UV_OFFLINE")  # fmt: skip
_STANDARD_ERROR = 2  # uv tells there what it does; pip would print it among our results
_READY = ".tpu-migrate-ready"  # written last, so an interrupted installation is never used


def python_version(target: Target) -> str:
    """The Python version of a new environment: this one's if the target supports it."""
    here = sys.version_info[:2]
    environment = target.environment
    return ".".join(map(str, here if here <= environment.newest else environment.pythons[0]))


def environment_folder(target: Target) -> Path:
    """Where the environment of ``target`` belongs; another pinned set has another folder."""
    pins = "\n".join(
        [python_version(target), *(requirement.text for requirement in pinned(target))]
    )
    digest = hashlib.sha256(pins.encode()).hexdigest()[:12]
    return cache_folder() / "envs" / f"{target.name}-{digest}"


def python_of(folder: Path) -> Path:
    if sys.platform == "win32":
        return folder / "Scripts" / "python.exe"
    return folder / "bin" / "python"


def cached_python(target: Target) -> Path | None:
    """The interpreter of a finished cached environment, or None."""
    folder = environment_folder(target)
    python = python_of(folder)
    return python if (folder / _READY).is_file() and python.exists() else None


def uv_by_name() -> list[str]:
    """How a user would call uv, whether it is installed or not."""
    return ["uv"] if which("uv") else uv_command() or ["uv"]


def uv_command() -> list[str] | None:
    """How to call uv: from PATH, or as a module of this interpreter; None if it is missing."""
    if found := which("uv"):
        return [found]
    from importlib.util import find_spec

    return [sys.executable, "-m", "uv"] if find_spec("uv") else None


def takes_cpu_torch(target: Target) -> bool:
    """Whether PyTorch comes from its own index, as the build for the CPU: 5 GB less.

    That is where the target runs with it, nobody has chosen another index, and it answers.
    """
    if not target.environment.cpu_torch or sys.platform != "linux":
        return False
    return not any(map(os.environ.get, _INDEXES)) and _answers(f"{CPU_WHEELS}/torch/")


@cache
def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=3):
            return True
    except (OSError, HTTPException):
        return False


def commands(target: Target, uv: list[str] | None, *, cpu_torch: bool = False) -> list[list[str]]:
    """The commands that create the environment, in order. Index settings are inherited.

    Args:
        uv: how to call it; None: venv and pip of this Python do it.
        cpu_torch: take PyTorch's build for the CPU.

    Raises:
        VerifyError: neither can.
    """
    folder = environment_folder(target)
    pins = [requirement.text for requirement in pinned(target)]
    own = sys.version_info[:2] <= target.environment.newest
    if uv is None:
        if not own:
            needed = f"{target.name} needs Python {python_version(target)}"
            raise VerifyError(f"{needed}, which uv brings: pip install uv")
        return [
            [sys.executable, "-m", "venv", str(folder)],
            [str(python_of(folder)), "-m", "pip", "install", *_index(uv, cpu_torch), *pins],
        ]
    python = sys.executable if own else python_version(target)
    return [
        [*uv, "venv", "--quiet", "--python", python, str(folder)],
        [*uv, "pip", "install", "--python", str(python_of(folder)), *_index(uv, cpu_torch), *pins],
    ]


def _index(uv: list[str] | None, cpu_torch: bool) -> list[str]:
    if not cpu_torch:
        return []
    return ["--extra-index-url", CPU_WHEELS] if uv is None else ["--torch-backend", "cpu"]


def announcement(target: Target) -> str:
    """One line: what would be installed, where, and its size."""
    others = [other for other in targets().values() if other != target and cached_python(other)]
    size = f"about {target.environment.gigabytes:g} GB"
    size = _WITHOUT_CUDA if takes_cpu_torch(target) else size
    size = _FURTHER if others and uv_command() else size
    pins = [requirement.text.partition(";")[0] for requirement in pinned(target)]
    exact = ", ".join(pin for pin in pins if "==" in pin)
    return f"{exact} with Python {python_version(target)} into {environment_folder(target)}, {size}"


def how_to(target: Target, asked: Sequence[str]) -> str:
    """The message for a user who has no environment for ``target`` and didn't ask for one.

    ``asked``: the words after `tpu-migrate verify`; without them, `doctor` installs.
    """
    ours = ("verify", *asked) if asked else ("doctor", "--target", target.name)
    lines = [
        f"No environment for {target.name} yet: neither this Python nor the cache has its "
        "packages.",
        f"To install {announcement(target)}:",
        f"    {command_line(['tpu-migrate', ours[0], '--install', *ours[1:]])}",
    ]
    lines.append("or make your own environment, and name it with --python:")
    pins = [requirement.text for requirement in pinned(target)]
    by_hand = [
        ["uv", "venv", "--python", python_version(target), f".venv-{target.name}"],
        ["uv", "pip", "install", "--python", f".venv-{target.name}", *pins],
    ]
    lines += [f"    {command_line(command)}" for command in by_hand]
    lines += [
        f"Each target needs its own environment: {t.environment.damage.by}'s wheel overwrites "
        f"{t.environment.package}."
        for t in targets().values()
        if t.environment.damage is not None
    ]
    return "\n".join(lines)


def install(target: Target) -> Path:
    """Create the environment of ``target`` (minutes, gigabytes); return its interpreter.

    Progress goes to standard error, also pip's. Raises VerifyError if a command fails; an
    incomplete environment is removed, and the next attempt finds what was downloaded in the cache
    of uv or pip.
    """
    todo = commands(target, uv_command(), cpu_torch=takes_cpu_torch(target))
    folder = environment_folder(target)
    if folder.exists():  # left by an interrupted installation
        rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        for command in todo:
            _run(command)
        (folder / _READY).touch()
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    return python_of(folder)


def add(target: Target, requirements: Sequence[str]) -> None:
    """Install more packages into the existing environment of ``target``. Raises VerifyError."""
    uv, python = uv_command(), str(python_of(environment_folder(target)))
    pip = [python, "-m", "pip", "install"]
    _run([*(pip if uv is None else [*uv, "pip", "install", "--python", python]), *requirements])


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, stdout=_STANDARD_ERROR, stdin=subprocess.DEVNULL, env=child_environment(),
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise VerifyError(f"failed (exit {done.returncode}): {command_line(command)}")
