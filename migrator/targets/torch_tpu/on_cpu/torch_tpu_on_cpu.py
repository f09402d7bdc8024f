"""torch_tpu on XLA's CPU client, for verifying programs without a TPU.

When torch is imported, it loads the entry points `torch.backends` of installed packages, including
torch_tpu's: with this folder on PYTHONPATH, a program finds one device without being changed.
Stands alone, in the target's python.
"""

import contextlib
import ctypes
import functools
import os
from importlib import import_module
from typing import Any

_CREATE = 40 + 8 * 10  # offset of PJRT_Client_Create in PJRT_Api
_INT64 = 1  # of PJRT_NamedValue_Type
_OPTION = b"cpu_device_count"
_MEMORY = 16 * 2**30  # a v5e's, for programs that ask
# NaN stays NaN in a maximum; and a scan becomes a loop, because XLA compiles no other form of it.
_FLAGS = "--xla_cpu_enable_fast_min_max=false --xla_disable_hlo_passes=associative-scan-rewriter"


class _Value(ctypes.Union):
    _fields_ = (("int64", ctypes.c_int64), ("pointer", ctypes.c_void_p))


class _NamedValue(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p),
        ("name", ctypes.c_char_p), ("name_size", ctypes.c_size_t),
        ("type", ctypes.c_int), ("value", _Value), ("value_size", ctypes.c_size_t),
    )  # fmt: skip


class _CreateArguments(ctypes.Structure):  # the first fields
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p),
        ("options", ctypes.POINTER(_NamedValue)), ("options_count", ctypes.c_size_t),
    )  # fmt: skip


_Create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_CreateArguments))
_kept: list[object] = []  # objects that C keeps using


def _prepare(plugin: str) -> None:
    """Allow creating a client with one device: the CPU's supports none of a TPU's options."""
    library = ctypes.CDLL(plugin)
    library.GetPjrtApi.restype = ctypes.c_void_p
    entry = ctypes.c_void_p.from_address(library.GetPjrtApi() + _CREATE)
    create = _Create(entry.value or 0)
    option = _NamedValue(
        struct_size=ctypes.sizeof(_NamedValue), name=_OPTION, name_size=len(_OPTION), type=_INT64,
        value=_Value(int64=1), value_size=1,
    )  # fmt: skip

    def create_one(given: Any) -> Any:
        given.contents.options, given.contents.options_count = ctypes.pointer(option), 1
        return create(given)

    replacement = _Create(create_one)
    entry.value = ctypes.cast(replacement, ctypes.c_void_p).value
    _kept.extend((library, replacement, option))


def _waiting(copy: Any) -> Any:
    """A copy that waits: one that goes on needs memory of the host, too."""

    @functools.wraps(copy)
    def copied(*given: Any, **options: Any) -> Any:
        options.pop("non_blocking", None)
        return copy(*given, **options)

    return copied


def load() -> None:
    """Called by torch at import."""
    torch: Any = import_module("torch")
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        loader: Any = import_module("torch_tpu._loader")
        hardware: Any = import_module("torch_tpu._internal.utils.hardware")
        hardware.get_tpu_device_count = lambda: 1
        hardware.get_hbm_bytes_per_device = lambda: _MEMORY
        loader.load()
    torch.Tensor.pin_memory = lambda tensor, device=None: tensor  # it has no memory of its own
    for copy in ("to", "copy_"):
        setattr(torch.Tensor, copy, _waiting(getattr(torch.Tensor, copy)))
    # With these, torch_tpu uses a TPU kernel; without them, it multiplies.
    for kernel in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{kernel}_sdp")(False)


_plugin = import_module("lammps_jax_pjrt_cpu").PLUGIN_PATH
os.environ["TPU_LIBRARY_PATH"] = str(_plugin)
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}".strip()
_prepare(str(_plugin))
