"""All devices at once, with torch_xla's SPMD: one process and a mesh, `setup(spmd=True)`.

Unmarked tensors are whole on each device; XLA adds the necessary exchanges between devices.
"""

import numpy as np
import torch
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch import Tensor

from ..device import device_count, get_device_name, say

DATA, MODEL = "data", "model"  # what an axis divides: batches, or weights

__all__ = ["DATA", "MODEL", "gathered", "placed", "say", "start"]

_mesh: xs.Mesh | None = None


def enable(wanted: bool) -> None:
    """One process for all devices, if there are several and no launcher has started ranks."""
    if wanted and _is_alone() and device_count() > 1 and not xr.is_spmd():
        xr.use_spmd()


def _is_alone() -> bool:
    return not torch.distributed.is_torchelastic_launched()


def start(axis: str) -> int:
    """Use all devices from here on; returns their number: 1 for a rank of several.

    If they divide weights, each gets whole batches. Raises RuntimeError for the other way, and
    if set-up wasn't told.
    """
    global _mesh
    count = device_count() if _is_alone() else 1
    if count > 1 and not xr.is_spmd():
        raise RuntimeError("several devices need tpu_runtime.setup(spmd=True), before all else")
    if count > 1 and _mesh is None:
        _mesh = xs.Mesh(np.arange(count), (count,), (axis,))
    if _mesh is not None and not divides(axis) and axis != DATA:
        raise RuntimeError("a program divides its batches or its weights, not both")
    say(f"{count} device{'s' * (count > 1)} ({get_device_name()})")
    return count


def divides(axis: str) -> bool:
    """Whether the devices divide batches rather than weights."""
    return _mesh is not None and _mesh.axis_names == (axis,)


def placed(tensor: Tensor, dim: int | None) -> Tensor:
    """A part of ``tensor`` for each device, along ``dim``; None: the whole of it."""
    if _mesh is not None and _mesh.axis_names is not None and dim is not None:
        axis = _mesh.axis_names[0]
        divided = tuple(axis if i == dim else None for i in range(tensor.dim()))
        xs.mark_sharding(tensor, _mesh, divided)
    return tensor


def gathered(tensor: Tensor) -> Tensor:
    """The same values, whole on each device."""
    if _mesh is not None:
        xs.mark_sharding(tensor, _mesh, (None,) * tensor.dim())
    return tensor
