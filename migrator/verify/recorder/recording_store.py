"""Keeps tensors and events while a run goes on, so that nothing is lost however it ends."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

_EARLY = 3  # steps after which all weights are stored: rounding has not grown yet
_LATER = {figure * 10**power for figure in (1, 3) for power in range(1, 9)}  # and after these
_SHARE = 4  # later, only while less than a quarter is full: the end needs room, too
_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


def name_of(dtype: object) -> str | None:
    """The name of a torch or NumPy dtype in safetensors files; None for others."""
    return _NAMES.get(str(dtype).removeprefix("torch."))


def without_folder(name: str, folder: Path) -> str:
    """A name without the folder of the copy, such as one that a program makes of a file's path:
    each run has another."""
    return name.replace(str(folder), ".")


def _content(tensor: Any) -> bytes:
    if hasattr(tensor, "detach"):  # NumPy has no bfloat16
        import torch

        flat = tensor.detach().contiguous().reshape(-1)
        return bytes(flat.view(torch.uint8).numpy().tobytes())
    return bytes(tensor.tobytes())


class Store:
    """Tensors by name. Their bytes are written to PATH.part at once; `finish` makes PATH of it.

    `note` writes a line of JSON to PATH.notes, with the entries of all tensors since the last one.
    If a run is killed, both files have everything until then.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path, self.limit = path, limit
        self.part = path.with_name(path.name + ".part")
        self.file = self.part.open("wb")
        self.notes = path.with_name(path.name + ".notes").open("w", encoding="utf-8")
        self.noted = 0
        self.entries: dict[str, dict[str, Any]] = {}
        self.size = 0
        self.left_out: list[str] = []  # names of tensors beyond the limit, or of other types

    def add(self, name: str, tensor: Any) -> str | None:
        """Copy a tensor on the CPU or a NumPy array. Returns its name, with a number if the name is
        taken; None if it is left out."""
        kind, size = name_of(tensor.dtype), tensor.nbytes
        if kind is None or self.size + size > self.limit:
            self.left_out.append(name)
            return None
        self.file.write(_content(tensor))
        name = self._free(name)
        self.entries[name] = {
            "dtype": kind,
            "shape": list(tensor.shape),
            "data_offsets": [self.size, self.size + size],
        }
        self.size += size
        return name

    def wants_weights(self, step: int) -> bool:
        """Whether all weights are stored after so many steps."""
        roomy = self.size < self.limit / _SHARE
        return step <= _EARLY or (step in _LATER and roomy)

    def note(self, line: dict[str, Any]) -> None:
        """Write an event, with the entries of all tensors since the last one."""
        self.file.flush()
        new = dict(list(self.entries.items())[self.noted :])
        self.noted = len(self.entries)
        self.notes.write(json.dumps({**line, "entries": new}) + "\n")
        self.notes.flush()

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free in self.entries:
            number += 1
            free = f"{name}#{number}"
        return free

    def finish(self) -> str:
        """Write the file in one step; returns its SHA-256."""
        self.file.close()
        self.notes.close()
        header = json.dumps(self.entries, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        whole = self.path.with_name(self.path.name + ".whole")
        with whole.open("wb") as out, self.part.open("rb") as data:
            out.write(len(header).to_bytes(8, "little") + header)
            shutil.copyfileobj(data, out, 2**22)
        digest = hashlib.sha256()
        with whole.open("rb") as written:
            while block := written.read(2**22):
                digest.update(block)
        whole.replace(self.path)
        with contextlib.suppress(OSError):
            self.part.unlink()
            Path(self.notes.name).unlink()
        return digest.hexdigest()
