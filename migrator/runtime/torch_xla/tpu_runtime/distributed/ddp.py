"""DistributedDataParallel for ranks: each has a copy of the model, and they average gradients."""

import functools
from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
import torch_xla.runtime as xr
from torch import Tensor, nn

from ..device import DEVICE_TYPE, say
from . import collectives, gradient_averaging
from .batch_sharding import move_batch
from .ddp_base import Replicated


class Averaging(gradient_averaging.Averaging):
    """Uses torch_xla's collectives."""

    def __init__(
        self, module: nn.Module, trained: list[nn.Parameter], group: Any,
        finds_unused: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(module, trained, finds_unused)
        self.alone, self._rank = group.size() == 1, xr.global_ordinal()
        for i, parameter in enumerate(trained):
            parameter.register_post_accumulate_grad_hook(functools.partial(self.note, i))

    def is_own(self) -> bool:
        return self._rank == xr.global_ordinal()

    def sum(self, counts: Tensor) -> None:
        collectives.all_reduce([counts])

    def mean(self, parameters: list[nn.Parameter]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        collectives.all_reduce(gradients, scale=1 / dist.get_world_size())


class DistributedDataParallel(Replicated):
    """`torch.nn.parallel.DistributedDataParallel` for a rank with an XLA device.

    Parameters and buffers start as those of rank 0. After each `backward()` gradients are the mean
    over the ranks, exchanged in one program; not within `no_sync()`. With ``broadcast_buffers``
    each forward pass begins with the buffers of rank 0. torch's own class records its exchanges
    in the middle of the step (collectives.py says why not), and works through buckets that XLA
    does not need; their options are taken and not used.

    Raises RuntimeError if a forward pass follows backward passes that gave a parameter no gradient,
    unless ``find_unused_parameters``; and NotImplementedError for a ``process_group`` or hooks of
    its own.
    """

    averaging, say = Averaging, staticmethod(say)

    @property
    def _group(self) -> Any:
        if self.process_group is not dist.group.WORLD:
            raise NotImplementedError("DistributedDataParallel with a process_group of its own")
        return self.process_group

    def _moved(self, values: Any) -> Any:
        return move_batch(self.module, values)

    def _from_rank_0(self, values: Iterable[Tensor]) -> None:
        tensors = [value for value in values if value.device.type == DEVICE_TYPE]
        if tensors:
            collectives.broadcast(tensors, dist.get_rank() == 0)


def join() -> None:
    """Let the ranks that a launcher has started form one group, if they haven't yet."""
    if not dist.is_initialized():
        dist.init_process_group(DEVICE_TYPE, init_method="xla://")


def install() -> None:
    """Average the gradients of ranks."""
    gradient_averaging.install()
