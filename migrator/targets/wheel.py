"""The runtime of a target as a wheel, which is the same bytes on every machine.

There is one distribution for all targets: an environment has one runtime. Its version names the
target, and ends with a hash of its contents: pip installs a changed runtime again, and takes it
from nowhere else, since no public index accepts such a version.
"""

from __future__ import annotations

import io
import re
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

from migrator.distribution import RUNTIME

from .target import SHARED, Target, module_of, own_runtime

VERSION = "0.1.0"
NAME = "tpu-runtime"  # of the distribution
STEM = "tpu_runtime-"  # begins the names of its wheels
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


@dataclass(frozen=True, eq=False)
class RuntimeWheel:
    """A wheel of some modules of the package ``tpu_runtime``, by their paths in it."""

    target: str  # the label: "torch_xla", "torch_xla --portable"
    modules: Mapping[str, bytes]
    license: bytes = b""

    name = NAME

    @cached_property
    def version(self) -> str:
        digest = sha256()
        for path, content in sorted(self.modules.items()):
            digest.update(b"%s\0%d\0%s" % (path.encode(), len(content), content))
        # With a letter first: "00123456" would be the number 123456.
        return f"{VERSION}+{version_label(self.target)}.h{digest.hexdigest()[:7]}"

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def file_name(self) -> str:
        return f"{self._stem}-py3-none-any.whl"

    @property
    def _stem(self) -> str:
        return f"{STEM}{self.version}"

    @cached_property
    def content(self) -> bytes:
        """Not compressed: git and code hosts do that, and zlib's bytes differ between versions."""
        about = f"{self._stem}.dist-info"
        licensed = "License-File: LICENSE\n" * bool(self.license)
        metadata = _METADATA.format(
            name=self.name, version=self.version, target=self.target, licensed=licensed
        )
        inside = {**self.modules, "py.typed": b""}
        files = {f"{RUNTIME}/{path}": content for path, content in sorted(inside.items())}
        files |= {
            f"{about}/METADATA": metadata.encode(),
            f"{about}/WHEEL": _WHEEL.encode(),
        }
        if self.license:
            files[f"{about}/licenses/LICENSE"] = self.license
        record = "".join(f"{path},{hash_of(each)},{len(each)}\n" for path, each in files.items())
        files[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
            for path, each in files.items():
                entry = zipfile.ZipInfo(path, _BEGIN)
                entry.create_system, entry.external_attr = 3, 0o100644 << 16
                archive.writestr(entry, each)
        return made.getvalue()


def hash_of(content: bytes) -> str:
    """A hash, as the list in a wheel says it."""
    return f"sha256={urlsafe_b64encode(sha256(content).digest()).rstrip(b'=').decode()}"


def is_wheel(file_name: str) -> bool:
    """Whether a file is a wheel of the runtime, of any version."""
    return file_name.startswith(STEM) and file_name.endswith(".whl")


def label_in(file_name: str) -> str:
    """What the name of a wheel says of its target, as `version_label` writes it."""
    return file_name.partition("+")[2].rpartition(".h")[0]


def version_label(target: str) -> str:
    """A target, as a version can name it: "torch.xla.portable"."""
    return ".".join(re.findall(r"[a-z0-9]+", target))


def runtime_wheel(target: Target) -> RuntimeWheel:
    """The wheel of a target; that of a portable program has the runtime that chooses, too."""
    return _wheel(target.label, target.runtime, target.asks_runtime)


@cache
def _wheel(target: str, runtime: Path | None, chooses: bool) -> RuntimeWheel:
    license = b""
    for folder in (runtime, runtime.parent) if runtime is not None else ():
        if not license and (folder / "LICENSE").is_file():  # its own, or that of all of ours
            license = (folder / "LICENSE").read_bytes()
    return RuntimeWheel(target, _modules(runtime, chooses), license)


def _modules(runtime: Path | None, chooses: bool) -> Mapping[str, bytes]:
    """The modules of a target's runtime, by their paths in the package.

    For a portable program, those of the runtime that chooses its device, with the target's inside.
    """
    files = _files(runtime) if runtime is not None else {}
    if chooses:
        choice = _files(own_runtime("portable"))
        files = choice | {f"tpu/{path}": content for path, content in files.items()}
    return files


def _files(runtime: Path) -> dict[str, bytes]:
    folder = runtime / RUNTIME
    files = {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*.py")
        if "__pycache__" not in file.parts
    }
    if (runtime / SHARED).is_file():
        shared = (runtime / SHARED).read_text().split()
        files |= {name: module_of(runtime, name).read_bytes() for name in shared}
    return dict(sorted(files.items()))
