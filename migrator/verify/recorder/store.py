"""Keeps tensors and events while a run goes on, so that nothing is lost however it ends."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch

NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Store:
    """Tensors by name. Their bytes go to PATH.part at once; `finish` makes PATH of them.

    `note` writes a line of JSON to PATH.notes, with the entries of all tensors since the last one:
    from both files, what there was until then can be had of a run that was killed.
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

    def add(self, name: str, tensor: torch.Tensor) -> str | None:
        """Keep a tensor of the CPU, copied. Returns its name, which gets a number where it is
        taken; None: left out."""
        kind = NAMES.get(tensor.dtype)
        size = tensor.numel() * tensor.element_size()
        if kind is None or self.size + size > self.limit:
            self.left_out.append(name)
            return None
        content = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        self.file.write(content)
        name = self._free(name)
        self.entries[name] = {
            "dtype": kind,
            "shape": list(tensor.shape),
            "data_offsets": [self.size, self.size + size],
        }
        self.size += size
        return name

    def note(self, line: dict[str, Any]) -> None:
        """Write what happened, and where the tensors since the last time are."""
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
