"""The runtime of a target as a wheel, which is the same bytes on every machine.

Its version ends with a hash of its contents: pip installs a changed runtime again, and takes it
from nowhere else, since no index accepts such a version.
"""

from __future__ import annotations

import io
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

from .target import Target, own_runtime
from .words import RUNTIME

VERSION = "0.1.0"
_PREFIX = "tpu-runtime-"
_METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Summary: What PyTorch code migrated from CUDA to TPU needs at run time, on {target}.
{licensed}Requires-Python: >=3.11

Written by tpu-migrate for migrated programs; see its documentation.
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: tpu-migrate
Root-Is-Purelib: true
Tag: py3-none-any
"""
_BEGIN = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can have


@dataclass(frozen=True)
class RuntimeWheel:
    """A wheel of some files of the package ``tpu_runtime``, by their paths in it."""

    name: str  # of the distribution
    target: str
    files: Mapping[str, bytes]
    license: bytes = b""

    @cached_property
    def version(self) -> str:
        digest = sha256()
        for path, content in sorted(self.files.items()):
            digest.update(b"%s\0%d\0%s" % (path.encode(), len(content), content))
        return f"{VERSION}+{digest.hexdigest()[:8]}"

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def file_name(self) -> str:
        return f"{self._stem}-py3-none-any.whl"

    @property
    def _stem(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}"

    @cached_property
    def content(self) -> bytes:
        """Not compressed: git and code hosts do that, and zlib's bytes differ between versions."""
        about = f"{self._stem}.dist-info"
        licensed = "License-File: LICENSE\n" * bool(self.license)
        metadata = _METADATA.format(
            name=self.name, version=self.version, target=self.target, licensed=licensed
        )
        files = {f"{RUNTIME}/{path}": content for path, content in sorted(self.files.items())}
        files |= {
            f"{about}/METADATA": metadata.encode(),
            f"{about}/WHEEL": _WHEEL.encode(),
        }
        if self.license:
            files[f"{about}/licenses/LICENSE"] = self.license
        record = "".join(f"{path},{_hash(each)},{len(each)}\n" for path, each in files.items())
        files[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
            for path, each in files.items():
                entry = zipfile.ZipInfo(path, _BEGIN)
                entry.create_system, entry.external_attr = 3, 0o100644 << 16
                archive.writestr(entry, each)
        return made.getvalue()


def _hash(content: bytes) -> str:
    return f"sha256={urlsafe_b64encode(sha256(content).digest()).rstrip(b'=').decode()}"


def is_runtime(name: str) -> bool:
    """Whether a distribution, by its normal name, is a runtime."""
    return name.startswith(_PREFIX)


def runtime_wheel(target: Target) -> RuntimeWheel:
    """The wheel of a target; that of a portable program has the runtime that chooses, too."""
    return _wheel(target.name, target.runtime, target.asks_runtime)


@cache
def _wheel(target: str, runtime: Path | None, chooses: bool) -> RuntimeWheel:
    name = f"{_PREFIX}{target.replace('_', '-')}{'-portable' * chooses}"
    files = {**_modules(runtime, chooses), "py.typed": b""}
    license = b""
    if runtime is not None and (runtime / "LICENSE").is_file():
        license = (runtime / "LICENSE").read_bytes()
    return RuntimeWheel(name, target, files, license)


def runtime_modules(target: Target) -> Mapping[str, bytes]:
    """The modules of a target's runtime, by their paths in the package.

    For a portable program, those of the runtime that chooses its device, with the target's inside.
    """
    return _modules(target.runtime, target.asks_runtime)


@cache
def _modules(runtime: Path | None, chooses: bool) -> Mapping[str, bytes]:
    files = _files(runtime) if runtime is not None else {}
    if chooses:
        choice = _files(own_runtime("portable"))
        files = choice | {f"tpu/{path}": content for path, content in files.items()}
    return files


def _files(runtime: Path) -> dict[str, bytes]:
    folder = runtime / RUNTIME
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*.py"))
        if "__pycache__" not in file.parts
    }
