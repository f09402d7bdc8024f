"""A safetensors file that is written while a run goes on, so that nothing is lost if it stops."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch

_NAMES = {
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
    """Tensors by name. Their bytes go to PATH.part at once; `finish` makes PATH of them."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path, self.limit = path, limit
        self.part = path.with_name(path.name + ".part")
        self.file = self.part.open("wb")
        self.entries: dict[str, dict[str, Any]] = {}
        self.size = 0
        self.left_out: list[str] = []  # names of tensors beyond the limit, or of other types

    def add(self, name: str, tensor: torch.Tensor) -> bool:
        """Keep a tensor of the CPU, copied; a name that is taken gets a number. False: left out."""
        kind = _NAMES.get(tensor.dtype)
        size = tensor.numel() * tensor.element_size()
        if kind is None or self.size + size > self.limit:
            self.left_out.append(name)
            return False
        content = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        self.file.write(content)
        self.entries[self._free(name)] = {
            "dtype": kind,
            "shape": list(tensor.shape),
            "data_offsets": [self.size, self.size + size],
        }
        self.size += size
        return True

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free in self.entries:
            number += 1
            free = f"{name}#{number}"
        return free

    def finish(self) -> str:
        """Write the file in one step; returns its SHA-256."""
        self.file.close()
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
        return digest.hexdigest()
