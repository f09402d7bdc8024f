"""The runtime of a target as a folder in a project: marked, so that nobody takes it for their own.

Each file says its version, its license and where it is from, and tells linters and formatters to
leave it (`ruff.toml` does for rules about such comments). `SHA256SUMS` has the hashes of all, and
`.gitattributes` lets code hosts fold them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from hashlib import sha256

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
