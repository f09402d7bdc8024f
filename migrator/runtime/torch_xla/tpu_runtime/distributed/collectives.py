"""Exchanges between ranks: each one is a separate program, and the same one on every rank.

Ranks record different operations between two steps: rank 0 prints a loss, others don't.
An exchange in the middle of that would be a part of programs that differ, and these wait for
each other forever. So earlier recorded operations run first, and an exchange runs at once.

Programs only match if their inputs do: two tensors with the same memory are one input. So
tensors are concatenated before they are sent, like torch's buckets. And a view
is copied: it is computed where it is read, and each rank may have another part of a parameter.

torch_xla 2.9: `xm.collective_broadcast` multiplies the values of other ranks by 0, which is NaN for
uninitialised memory.
"""

import pickle
from collections.abc import Sequence
from typing import Any

import torch
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla import sync  # imported before report.py counts it: an exchange isn't a step

from ..device import DEVICE_TYPE

Tensors = Sequence[torch.Tensor]


@torch.no_grad()
def all_reduce(
    tensors: Tensors, operation: str = xm.REDUCE_SUM, scale: float = 1.0, takes_part: bool = True
) -> None:
    """Put the sum (or another ``operation``) over all ranks, times ``scale``, into ``tensors``.

    CPU tensors are sent through the device. A rank that doesn't take part contributes zeros.
    """
    if xr.world_size() == 1:
        return
    kinds = dict.fromkeys(tensor.dtype for tensor in tensors)
    alike = [[tensor for tensor in tensors if tensor.dtype == kind] for kind in kinds]
    rows = [_numbers(torch.cat([tensor.reshape(-1) for tensor in group])) for group in alike]
    rows = [(row if takes_part else torch.zeros_like(row)).to(DEVICE_TYPE) for row in rows]
    sync()
    xm.all_reduce(operation, rows, scale, pin_layout=False)
    sync()
    for group, row in zip(alike, rows, strict=True):
        parts = row.split([tensor.numel() for tensor in group])
        for tensor, part in zip(group, parts, strict=True):
            tensor.copy_(part.reshape(tensor.shape))


@torch.no_grad()
def all_gather(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The values of all ranks, by ordinal."""
    if xr.world_size() == 1:
        return [tensor.clone()]
    row = torch.stack([_numbers(tensor)]).to(DEVICE_TYPE)  # a copy, as above
    sync()
    gathered = xm.all_gather(row, dim=0, pin_layout=False)
    sync()
    return [part.to(tensor.dtype) for part in gathered.unbind()]


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Bools as numbers, which can be sent."""
    return tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor


def broadcast(tensors: Tensors, is_root: bool) -> None:
    """Copy the root's values into the tensors of all ranks."""
    all_reduce(tensors, takes_part=is_root)


def gather_objects(value: object) -> list[Any]:
    """The values of all ranks, by ordinal: anything that can be pickled."""
    return [pickle.loads(x) for x in xm.rendezvous("", pickle.dumps(value))]


def wait() -> None:
    """Continue when all ranks have arrived, and their devices have run all recorded operations."""
    sync(wait=True)
    xm.rendezvous("")  # a name would be logged
