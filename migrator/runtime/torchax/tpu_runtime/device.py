"""The device: how many there are, their names, and waiting for them.

The names and the arguments have the same meaning as in ``torch.cuda``. torchax shows all of JAX's
devices as the one torch device ``jax``; the devices counted and named here are JAX's.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

import jax
import torch

DeviceLike = torch.device | str | int | None

# `torch.device(DEVICE_TYPE)` is the device that migrated code uses.
DEVICE_TYPE = "jax"

IN_USE = "bytes_in_use"  # the platform's key for allocated memory

count: Callable[[], int] = jax.device_count  # ranks count differently (launching.py)

CORES = "TPU_RUNTIME_NUM_CORES"  # how many devices to use: 1, or all


@dataclass(frozen=True)
class DeviceProperties:
    """The properties of one device.

    ``total_memory`` is in bytes, 0 if the platform doesn't report it. ``major`` and ``minor`` are
    0: there is no CUDA compute capability. ``multi_processor_count`` counts TensorCores.
    """

    name: str
    total_memory: int
    multi_processor_count: int
    platform: str
    major: int = 0
    minor: int = 0


def chosen_device() -> torch.device:
    """The device that migrated code uses."""
    return torch.device(DEVICE_TYPE)


def index_of(device: DeviceLike) -> int:
    """The index of ``device`` among JAX's devices; None, "jax", "cuda" mean the current one.

    Raises ValueError for a device that isn't an accelerator, or doesn't exist.
    """
    if device is None:
        return current_device()
    if isinstance(device, int):
        index = device
    else:
        device = torch.device(device)
        if device.type not in (DEVICE_TYPE, "cuda"):
            raise ValueError(f"expected a {DEVICE_TYPE} device, got {device}")
        index = current_device() if device.index is None else device.index
    if not 0 <= index < device_count():
        raise ValueError(f"no device {index}: JAX has {device_count()}")
    return index


def jax_device(device: DeviceLike = None) -> jax.Device:
    """The JAX device for ``device``; a rank has only one, whatever the index."""
    index, own = index_of(device), jax.local_devices()
    return own[index if len(own) > 1 else 0]


def memory_info(device: DeviceLike = None) -> dict[str, int]:
    """JAX's figures in bytes, empty if it has none (on the CPU)."""
    return dict(jax_device(device).memory_stats() or {})


def is_available() -> bool:
    """Whether JAX has a device to compute on; its CPU back end counts, as it runs the same code."""
    return device_count() > 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 is a TPU's native type."""
    return True


def limit(number: int | None) -> None:
    """Use this many devices (one, or all), unless TPU_RUNTIME_NUM_CORES is set."""
    if number is not None:
        os.environ.setdefault(CORES, str(number))


def device_count() -> int:
    """The number of devices that the program uses: all on this host, or one if the user says so.

    Raises ValueError for any other number in TPU_RUNTIME_NUM_CORES.
    """
    there, wanted = count(), os.environ.get(CORES) or "all"
    if wanted not in ("all", "1", str(there)):
        raise ValueError(f"{CORES}={wanted}: 1 or all, there are {there} devices")
    return 1 if wanted == "1" else there


def current_device() -> int:
    """Always 0: tensors on ``jax`` are on JAX's first device unless they are sharded."""
    return 0


def get_device_name(device: DeviceLike = None) -> str:
    """JAX's name for the kind of device, such as "TPU v6 lite" or "cpu"."""
    return get_device_properties(device).name


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Name, memory in bytes and platform of a device."""
    return describe(device)


def _describe(device: DeviceLike) -> DeviceProperties:
    chosen = jax_device(device)
    return DeviceProperties(
        name=str(chosen.device_kind),
        total_memory=memory_info(device).get("bytes_limit", 0),
        multi_processor_count=int(getattr(chosen, "num_cores", None) or 1),
        platform=str(chosen.platform),
    )


describe: Callable[[DeviceLike], DeviceProperties] = (
    _describe  # ranks do it differently (launching.py)
)


def before_waiting() -> None:
    """Start pending work; replaced by lazy_operators.py."""


def synchronize(device: DeviceLike = None) -> None:
    """Wait until every live array has been computed.

    ``jax.effects_barrier`` doesn't wait for computations, so this waits for the arrays themselves.
    """
    index_of(device)
    before_waiting()
    jax.block_until_ready([array for array in jax.live_arrays() if not array.is_deleted()])


def multiply_by(precision: str) -> None:
    """Multiply float32 with the number of bfloat16 passes that XLA's word means."""
    jax.config.update("jax_default_matmul_precision", precision)
