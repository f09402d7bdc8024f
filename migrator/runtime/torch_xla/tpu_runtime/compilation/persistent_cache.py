"""XLA's persistent compilation cache: a second run reuses the first run's compiled programs."""

import os
from pathlib import Path

import torch_xla.runtime as xr
from torch_xla import _XLAC


def install() -> None:
    """Keep compiled programs between runs, in the user's cache folder. Only on a real TPU.

    Each rank has its own folder: a program is compiled for the device of its rank.

    torch_xla 2.9 on CPU: the second process can't read what the first has written, and fails.
    XLA_PERSISTENT_CACHE_PATH takes precedence if it is set. If the folder can't be written
    (read-only home), nothing is kept and nothing fails.
    """
    if xr.device_type() != "TPU" or os.environ.get("XLA_PERSISTENT_CACHE_PATH"):
        return
    if _XLAC._xla_computation_cache_is_initialized():
        return  # too late: something has been computed already
    folder = _folder()
    if folder is not None:
        xr.initialize_cache(str(folder))


def _folder() -> Path | None:
    try:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "tpu_runtime" / "torch_xla"
        rank = os.environ.get("PJRT_LOCAL_PROCESS_RANK") or os.environ.get("LOCAL_RANK")
        folder = folder / f"rank_{rank}" if rank else folder
        if not folder.is_absolute():  # in the working folder, others may have put something
            return None
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return None
    return folder if os.access(folder, os.W_OK) else None
