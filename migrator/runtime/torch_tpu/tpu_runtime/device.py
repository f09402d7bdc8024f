"""The device as a program sees it: the TPU, a GPU, or the CPU if there is neither."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

DeviceLike = torch.device | str | int | None
DEVICE_TYPE: str  # "tpu", "cuda" or "cpu": determined at first read


@dataclass(frozen=True)
class DeviceProperties:
    """The properties of a device without CUDA properties.

    ``total_memory`` is in bytes, 0 if unknown. ``major`` and ``minor`` are 0: there is no
    CUDA compute capability.
    """

    name: str
    total_memory: int = 0
    multi_processor_count: int = 1
    major: int = 0
    minor: int = 0


def __getattr__(name: str) -> str:
    if name == "DEVICE_TYPE":
        return "tpu" if is_loaded() else "cuda" if torch.cuda.is_available() else "cpu"
    raise AttributeError(name)


def accelerator() -> torch.device:
    """Torch's accelerator, or the CPU if there is none."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def get_device_name(device: DeviceLike = None) -> str:
    """ "TPU v6e", the name of a GPU, or "CPU"."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return str(torch.tpu.get_device_name()) if _has_tpu() else "CPU"  # type: ignore[attr-defined]


def get_device_properties(device: DeviceLike = None) -> Any:
    """A GPU's own, or those that are known."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_properties(device)
    if not _has_tpu():
        return DeviceProperties("CPU")
    try:
        found = torch.tpu.get_device_properties()  # type: ignore[attr-defined]
    except RuntimeError:  # a generation that torch_tpu doesn't know
        return DeviceProperties(get_device_name())
    return DeviceProperties(found.name, found.total_memory, found.multi_processor_count)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True on a TPU, whose native type is bfloat16; on a GPU, torch.cuda's answer."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation))
    return True


def ask_no_metadata_without_tpu() -> None:
    """libtpu asks a TPU machine's metadata for minutes where there is no TPU: don't let it."""
    if not any((*Path("/dev").glob("accel*"), *Path("/dev/vfio").glob("[0-9]*"))):
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")


def is_loaded() -> bool:
    """Whether torch_tpu is loaded and has a TPU; this starts nothing."""
    return torch._C._get_privateuse1_backend_name() == "tpu"


def _has_tpu() -> bool:
    """Whether torch's accelerator is a TPU that is present."""
    return accelerator().type == "tpu"
