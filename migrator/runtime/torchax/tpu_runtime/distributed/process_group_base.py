"""What both process groups of the back end ``jax`` share: that of ranks, and the world of one."""

from typing import Any

import torch
import torch.distributed as dist

from ..device import CORES, DEVICE_TYPE, device_count

Tensors = list[torch.Tensor]


class NamedGroup(dist.ProcessGroup):
    """A process group that torch can find by its name."""

    # Of tensors that it exchanges.
    _device_types = (torch.device("cpu"), torch.device(DEVICE_TYPE))  # type: ignore[assignment]

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._name = ""

    def getBackendName(self) -> str:
        return DEVICE_TYPE

    def _set_group_name(self, name: str) -> None:
        self._name = name

    @property
    def group_name(self) -> str:
        return self._name


def completed_work(result: Any) -> Any:
    """The object that torch waits for, for a completed exchange."""
    future: Any = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)  # type: ignore[attr-defined]


def check_ranks(number: int | None) -> None:
    """Raise ValueError if a program expects a number of ranks other than the number of devices."""
    devices = device_count()
    if number not in (None, -1, devices):
        raise ValueError(
            f"the program is set up for {number} ranks, and uses {devices} devices: tell it "
            f"that it has {devices}, or set {CORES}=1 for a program with one"
        )
