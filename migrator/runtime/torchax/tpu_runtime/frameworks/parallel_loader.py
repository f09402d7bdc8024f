"""Loaders that move their batches to the device, like those of torch_xla."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from ..device import DEVICE_TYPE
from ..distributed import mesh
from ..distributed.data_parallel import DistributedSampler


class DeviceLoader:
    """The batches of ``loader`` on the device, like torch_xla's MpDeviceLoader.

    With a DistributedSampler they are for all devices, which are used from here on: each has a part
    of the batch, as a rank had.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._of_ranks = isinstance(getattr(loader, "sampler", None), DistributedSampler)
        if self._of_ranks:
            mesh.start(mesh.DATA)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            yield tree_map_only(torch.Tensor, self._moved, batch)

    def __len__(self) -> int:
        return len(self._loader)

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        moved = tensor.to(DEVICE_TYPE)
        if self._of_ranks:
            mesh.note_batch(moved)
        return moved
