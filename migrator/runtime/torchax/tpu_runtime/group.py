"""What both process groups of the back end ``jax`` are: ranks' own, and that of a world of one."""

from typing import Any

import torch
import torch.distributed as dist

from .device import CORES, DEVICE_TYPE, device_count

Tensors = list[torch.Tensor]


class NamedGroup(dist.ProcessGroup):
    """A process group that torch can find by its name."""

    _device_types = (torch.device("cpu"), torch.device(DEVICE_TYPE))  # of what it exchanges

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._name = ""

    def getBackendName(self) -> str:
        return DEVICE_TYPE

    def _set_group_name(self, name: str) -> None:
        self._name = name

    @property
    def group_name(self) -> str:
        return self._name


def done(result: Any) -> Any:
    """What torch waits for, of an exchange that is over."""
    future: Any = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


def check_ranks(number: int | None) -> None:
    """Raise ValueError where a program counts on another number of ranks than there are devices."""
    devices = device_count()
    if number not in (None, -1, devices):
        raise ValueError(
            f"the program is set up for {number} ranks, and uses {devices} devices: tell it "
            f"that it has {devices}, or set {CORES}=1 for a program with one"
        )
