"""What a portable script needs at run time: it runs on a TPU, on a GPU or on the CPU.

Put beside migrated code by tpu-migrate, and independent of it. ``tpu_runtime.setup()``, once in the
entry script after its imports, chooses the device (see ``device_choice``) and prepares it. The
names are those of ``torch.cuda``: on a GPU or the CPU they are torch's own, on a TPU those of the
package ``tpu`` in here, which is imported on a TPU only.
"""

from typing import Any

from . import device_choice
from .amp import GradScaler, autocast
from .device_choice import UseTpu, accelerator_type, device, device_type, is_available, is_cuda
from .functions import cast, compile, set_default_tensor_type, set_matmul_precision, train_step
from .fused_attention import (
    LowerTriangularMask,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    memory_efficient_attention,
)
from .tensor_files import decode_image, load, load_file, read_image, save
from .text.token_buffer import TokenBuffer

__all__ = [
    "GradScaler",
    "LowerTriangularMask",
    "TokenBuffer",
    "UseTpu",
    "accelerator_type",
    "autocast",
    "cast",
    "compile",
    "decode_image",
    "device",
    "device_type",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "is_available",
    "is_cuda",
    "load",
    "load_file",
    "memory_efficient_attention",
    "read_image",
    "save",
    "set_default_tensor_type",
    "set_matmul_precision",
    "setup",
    "sync",
    "train_step",
]

# Functions of torch.cuda that return nothing, and have nothing to do without a GPU.
_NOTHING = frozenset({
    "_lazy_init", "_record_memory_history", "_sleep", "empty_cache", "init", "ipc_collect",
    "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_host_memory_stats",
    "reset_peak_memory_stats", "set_device", "set_per_process_memory_fraction",
    "set_sync_debug_mode", "synchronize",
})  # fmt: skip
_NAMESPACES = frozenset({"memory", "nvtx", "profiler"})  # of such functions


class _Nothing:
    """Any function, and it does nothing."""

    def __getattr__(self, name: str) -> "_Nothing":
        return self

    def __call__(self, *args: object, **kwargs: object) -> None:
        return None


def setup(precision: str | bool = "highest") -> None:
    """Choose the device, once, and prepare it; ``precision`` is for float32 products on a TPU."""
    if device_choice.chosen_device() == "tpu":
        device_choice.tpu().setup(precision)


def sync() -> None:
    """The end of a step: a TPU that records operations runs them now; nothing elsewhere."""
    if device_choice.chosen_device() == "tpu":
        device_choice.tpu().device.end_step()


def __getattr__(name: str) -> Any:
    """The other names of ``torch.cuda``."""
    if name.startswith("__"):
        raise AttributeError(name)
    where = device_choice.chosen_device()
    if where == "tpu" and name in getattr(device_choice.tpu(), "__all__", ()):
        return getattr(device_choice.tpu(), name)
    if where != "cuda" and (name in _NOTHING or name in _NAMESPACES):
        return _Nothing()
    if where == "tpu":
        raise AttributeError(f"tpu_runtime has no {name} on a TPU")
    import torch

    return getattr(torch.cuda, name)
