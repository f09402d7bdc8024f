"""Files that a program writes, and the machine that it runs on."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path
from typing import Any

import torch
from recorded_process import there
from recorded_tensors import leaves, on_host
from recording_store import Store, without_folder
from tf32 import in_tf32

_TORCH = (".pt", ".pth", ".ckpt", ".bin", ".tar", ".pkl")
_PACKAGES = ("torch", "torchvision", "torchaudio", "numpy", "torchax", "torch_xla", "jax", "jaxlib",
             "libtpu", "transformers", "safetensors")  # fmt: skip
_MANY = 50  # files; a program that writes more is producing data


def written(
    root: Path, before: dict[Path, tuple[int, int]], store: Store, own: Path
) -> list[dict[str, Any]]:
    """New or changed files; the tensors and arrays in them go to the store."""
    found: list[dict[str, Any]] = []
    for path, stat in sorted(there(root).items()):
        if before.get(path) == stat or own in path.parents or len(found) == _MANY:
            continue
        name = path.relative_to(root).as_posix()
        entry: dict[str, Any] = {"name": name, "bytes": stat[0], "tensors": {}}
        try:
            values = _load(path)
        except Exception as error:
            entry["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            values = None
        for place, tensor in leaves(values):
            place = without_folder(place, root)
            key = f"file.{name}.{place}"
            if kept := store.add(key, on_host(tensor)):
                entry["tensors"][place] = kept
        found.append(entry)
    return found


def _load(path: Path) -> Any:
    """The content of a file; None for a file without tensors."""
    if path.suffix in _TORCH:
        return torch.load(path, map_location="cpu", weights_only=True)
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    if path.suffix in (".npy", ".npz"):
        import numpy

        loaded = numpy.load(path, allow_pickle=False)
        if path.suffix == ".npy":
            return torch.from_numpy(loaded)
        return {name: torch.from_numpy(loaded[name]) for name in loaded.files}
    return None


def machine(convolves: bool) -> dict[str, Any]:
    """Device and versions; `convolves`: whether the program has convolutions."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    versions["cuda_of_torch"] = torch.version.cuda
    name = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"
    return {
        "device": name,
        "machine": platform.machine(),
        "versions": versions,
        "tf32": in_tf32(False) or (convolves and in_tf32(True)),
    }
