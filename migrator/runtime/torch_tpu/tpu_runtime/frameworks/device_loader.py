"""Loaders that move their batches to the device, like those of torch_xla."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from ..device import accelerator


class DeviceLoader:
    """The batches of ``loader`` on the device, like torch_xla's MpDeviceLoader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        device = accelerator()
        for batch in self._loader:
            yield tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), batch)

    def __len__(self) -> int:
        return len(self._loader)
