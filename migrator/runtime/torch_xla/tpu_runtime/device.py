"""The device: how many there are, their names, and waiting for them.

The names and the arguments have the same meaning as in ``torch.cuda``. Before ``torch_xla.launch``
only functions that query devices may be called: the others start the runtime.
"""

import logging
import os
import sys
from dataclasses import dataclass

import torch
import torch_xla
import torch_xla.backends
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla import _XLAC
from torch_xla._internal import tpu

from ._versions import INSTALL

DeviceLike = torch.device | str | int | None

# `torch.device(DEVICE_TYPE)` is the device that migrated code uses.
DEVICE_TYPE = "xla"

IN_USE = "bytes_used"  # torch_xla's key for allocated memory

CORES = "TPU_RUNTIME_NUM_CORES"  # how many devices to use: 1, or all

_FAST_EXTREMA = "--xla_cpu_enable_fast_min_max"

_told: set[str] = set()
_rests = False  # whether this process starts ranks, which own the devices


def say(what: str) -> None:
    """Tell the user something, once."""
    if what not in _told:
        _told.add(what)
        print(f"tpu_runtime: {what}", file=sys.stderr, flush=True)


def look_for_libtpu() -> None:
    """Tell the user why a TPU isn't used: torch_xla 2.9 silently falls back to the CPU."""
    if not torch_xla._found_libtpu and tpu.num_available_chips():
        say(f"there is a TPU, but no libtpu, so the program runs on the CPU: {INSTALL}")


def keep_nan() -> None:
    """Keep NaN in maximum and minimum on the CPU, where XLA's fast versions lose it."""
    flags = os.environ.get("XLA_FLAGS", "")
    if xr.device_type() == "CPU" and _FAST_EXTREMA not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_FAST_EXTREMA}=false"


def rest() -> None:
    """Don't use the devices from here on."""
    global _rests
    _rests = True


def wake() -> bool:
    """Use the devices from here on; returns whether they were unused before."""
    global _rests
    rested, _rests = _rests, False
    return rested


def is_resting() -> bool:
    """Whether the devices belong to ranks, and this process isn't one (yet)."""
    return _rests and not is_started()


def is_started() -> bool:
    """Whether this process has started using its devices."""
    return bool(_XLAC._xla_runtime_is_initialized())


@dataclass(frozen=True)
class DeviceProperties:
    """The properties of one device.

    ``total_memory`` is in bytes, 0 if the platform doesn't report it. ``major`` and ``minor`` are
    0: there is no CUDA compute capability. ``multi_processor_count`` is unknown to torch_xla: 1.
    """

    name: str
    total_memory: int
    multi_processor_count: int
    platform: str
    major: int = 0
    minor: int = 0


def chosen_device() -> torch.device:
    """The device that migrated code uses."""
    return torch_xla.device()


def end_step() -> None:
    """Run what was recorded since the last step, without waiting for it."""
    torch_xla.sync()


def xla_device(device: DeviceLike = None) -> torch.device:
    """The XLA device for ``device``; None, "xla" and "cuda" mean the current one.

    Raises ValueError for a device that isn't an accelerator, or doesn't exist.
    """
    if device is None:
        return torch_xla.device()
    if isinstance(device, int):
        index = device
    else:
        device = torch.device(device)
        if device.type not in (DEVICE_TYPE, "cuda"):
            raise ValueError(f"expected an {DEVICE_TYPE} device, got {device}")
        if device.index is None:
            return torch_xla.device()
        index = device.index
    if not 0 <= index < device_count():
        raise ValueError(f"no device {index}: torch_xla has {device_count()}")
    # A rank has one device, whatever its index among those of all ranks.
    alone = xr.addressable_device_count() == 1
    return torch_xla.device() if alone else torch.device(DEVICE_TYPE, index)


def memory_info(device: DeviceLike = None) -> dict[str, int]:
    """torch_xla's figures in bytes, empty if it has none (on the CPU, with SPMD, at rest)."""
    if xr.is_spmd() or is_resting():
        return {}
    try:
        return {
            key: int(str(value)) for key, value in xm.get_memory_info(xla_device(device)).items()
        }
    except RuntimeError as error:  # "UNIMPLEMENTED: GetAllocatorStats is not supported"
        if "UNIMPLEMENTED" in str(error):
            return {}
        raise


def is_available() -> bool:
    """Whether torch_xla has a device; its CPU back end counts, as it runs the same code."""
    return xr.device_type() is not None


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 is a TPU's native type."""
    return True


def limit(count: int | None) -> None:
    """Use this many devices (one, or all), unless TPU_RUNTIME_NUM_CORES is set."""
    if count is not None:
        os.environ.setdefault(CORES, str(count))


def device_count() -> int:
    """The number of devices that a program uses on this host: all, or one if the user says so.

    Does not start the runtime. Raises ValueError for any other number in TPU_RUNTIME_NUM_CORES.
    """
    if is_started():
        there = xr.global_runtime_device_count() if xr.is_spmd() else xr.local_device_count()
    elif xr.device_type() == "TPU":
        there = tpu.num_local_processes() * tpu.num_logical_cores_per_chip()
    else:
        there = int(os.environ.get(f"{xr.device_type()}_NUM_DEVICES") or 1)
    wanted = os.environ.get(CORES) or "all"
    if wanted not in ("all", "1", str(there)):
        raise ValueError(f"{CORES}={wanted}: 1 or all, there are {there} devices")
    return 1 if wanted == "1" else there


def current_device() -> int:
    """The index of the current XLA device."""
    return torch_xla.device().index or 0


def get_device_name(device: DeviceLike = None) -> str:
    """XLA's name for the kind of device, such as "TPU v6 lite" or "cpu".

    The platform's name with SPMD, and if the devices belong to ranks.
    """
    if xr.is_spmd() or is_resting():
        return str(xr.device_type()).lower()
    return str(xm.xla_device_kind(xla_device(device)))


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Name, memory in bytes and platform of a device."""
    return DeviceProperties(
        name=get_device_name(device),
        total_memory=memory_info(device).get("bytes_limit", 0),
        multi_processor_count=1,
        platform=str(xr.device_type()).lower(),
    )


def synchronize(device: DeviceLike = None) -> None:
    """Launch pending operations and wait for them.

    ``xm.wait_device_ops`` alone does not launch pending work.
    """
    if device is not None:
        xla_device(device)
    torch_xla.sync(wait=True)


def multiply_by(precision: str) -> None:
    """Multiply float32 with the number of bfloat16 passes that XLA's word means."""
    if torch_xla.backends.get_mat_mul_precision() == precision:
        return
    # torch_xla 2.9 warns "setting multiple times" at the first call already.
    torch_xla.backends.logger.addFilter(_drop)
    try:
        torch_xla.backends.set_mat_mul_precision(precision)
    finally:
        torch_xla.backends.logger.removeFilter(_drop)


def _drop(record: logging.LogRecord) -> bool:
    return False
