"""The runtime of a target as a folder in a project: marked, so that nobody takes it for their own.

Each file says its version, its license and where it is from, and tells linters and formatters to
leave it (`ruff.toml` does for rules about such comments). `SHA256SUMS` has the hashes of all, and
`.gitattributes` lets code hosts fold them.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from migrator.distribution import RUNTIME
from migrator.errors import UsageError
from migrator.files.reading import read_or_none
from migrator.files.user_folders import cache_folder

from . import find_target
from .target import Target
from .wheel import NAME, RuntimeWheel, runtime_wheel

SUMS = "SHA256SUMS"
_MARK = """\
# {name} {version}, Apache-2.0. Made by tpu-migrate, which renews it: don't edit. isort: skip_file
# flake8: noqa
# mypy: ignore-errors
# pylint: skip-file
# fmt: off
"""
_PATH = re.compile(r"(?:\w+/)*[\w.]*\w")
# Hashes only hold if line ends stay.
_ATTRIBUTES = b"* linguist-generated text eol=lf\n"
_RUFF = b'lint.exclude = ["*"]\nformat.exclude = ["*"]\n'  # in place of the project's settings


def runtime_copy(target: Target) -> Mapping[str, bytes]:
    """The files of a copy of a target's runtime, by their paths in it."""
    return _copy(runtime_wheel(target))


@cache
def _copy(wheel: RuntimeWheel) -> Mapping[str, bytes]:
    mark = _MARK.format(name=NAME, version=wheel.version).encode()
    files = {path: mark + content for path, content in wheel.modules.items()}
    files |= {".gitattributes": _ATTRIBUTES, "ruff.toml": _RUFF}
    if wheel.license:
        files["LICENSE"] = wheel.license
    files[SUMS] = "".join(
        f"{sha256(content).hexdigest()}  {path}\n" for path, content in sorted(files.items())
    ).encode()
    return files


def folder_to_import(target: str) -> Path:
    """A folder with a target's runtime as programs get it, in the cache; without the marks.

    The runtimes in this repository lack what they share: tests and benchmarks import from here.

    Raises:
        UsageError: it cannot be written.
    """
    wheel = runtime_wheel(find_target(target))
    modules, folder = wheel.modules, cache_folder() / "runtime" / wheel.version
    if all(read_or_none(folder / RUNTIME / name) == modules[name] for name in modules):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        for name, content in modules.items():
            (made / RUNTIME / name).parent.mkdir(parents=True, exist_ok=True)
            (made / RUNTIME / name).write_bytes(content)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    except OSError as error:
        said = f"{folder}: {error.strerror or error}; set TPU_MIGRATE_CACHE to another folder"
        raise UsageError(said) from None
    return folder


def version_in(init: bytes) -> str:
    """The version that the first file of a copy says; "" for one without a mark."""
    first, *_ = init.split(b"\n", 1)
    words = first.decode("utf-8", "replace").split()
    return words[2].rstrip(",") if words[:2] == ["#", NAME] and len(words) > 2 else ""


def sums_in(content: bytes) -> dict[str, str]:
    """The hashes that `SHA256SUMS` says, by path: of files inside of the copy alone."""
    lines = content.decode("utf-8", "replace").splitlines()
    said = (line.partition("  ") for line in lines)
    return {path: digest for digest, _, path in said if _PATH.fullmatch(path)}
