"""Models and data for several devices that one process drives: DataParallel, and more on request.

One process drives all devices (mesh.py). Data are those of all ranks of the original together: the
k-th batch holds the k-th batch of every rank. Numbers per rank or device in a program's
configuration keep their meaning: a batch size is that of one rank.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jax._src.core import trace_state_clean
from torch.utils._pytree import tree_map_only
from torch.utils.data import BatchSampler, Dataset
from torch.utils.data import distributed as stock
from torchax.tensor import Environment

from ..device import DEVICE_TYPE, device_count
from ..dispatch.calls import is_device_tensor, patch
from . import mesh
from .process_group_base import check_ranks


class DataParallel(torch.nn.DataParallel):  # type: ignore[type-arg]
    """`torch.nn.DataParallel`: each batch is split over all devices, whatever ``device_ids`` says.

    Statistics of BatchNorm are those of the whole batch; in the original, those of one part.
    """

    def __init__(
        self, module: torch.nn.Module, device_ids: object = None, output_device: object = None,
        dim: int = 0,
    ) -> None:  # fmt: skip
        torch.nn.Module.__init__(self)
        mesh.start(mesh.DATA)
        self.module, self.dim = module, dim
        self.device_ids, self.output_device = list(range(device_count())), 0

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's results for the whole batch."""
        return _forward(self.module, inputs, kwargs)


class FullyShardedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """`torch.distributed.fsdp.FullyShardedDataParallel` for one process that drives all devices.

    Each device has a part of each parameter, and so of gradients and optimizer state. XLA
    gathers a parameter where it is used; which modules are gathered together (the wrapping policy)
    is its own decision. Gradients are those of the mean over the whole batch, like the average over
    ranks. Statistics of BatchNorm are those of the whole batch, as with SyncBatchNorm; other
    options for ranks (buckets, unused parameters, when to average) have no effect.
    """

    def __init__(self, module: torch.nn.Module, **options: object) -> None:
        torch.nn.Module.__init__(self)
        mesh.start(mesh.DATA)
        self.module = module
        self.device_ids: list[int] | None = None
        self.require_backward_grad_sync = True

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's results for the whole batch."""
        return _forward(self.module, inputs, kwargs, mesh.shard)

    def train(self, mode: bool = True) -> "FullyShardedDataParallel":
        return torch.nn.Module.train(self, mode)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients accumulate in any case; nothing is sent here before they are used."""
        yield

    @contextlib.contextmanager
    def join(self, **options: object) -> Iterator[None]:
        """There are no other ranks that could have more batches."""
        yield

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip by the norm of all parts together, which is returned as a tensor."""
        return torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)


def _forward(
    module: torch.nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any],
    how: Callable[[Any], Any] = mesh.replicate_on_mesh,
) -> Any:  # fmt: skip
    """Put parameters onto the mesh, split the batch, and run; a program places its inputs itself.

    A batch on the CPU is moved to the model's device, as in torch's classes.
    """
    first = next(iter(module.parameters()), None)
    if first is not None and is_device_tensor(first):
        inputs, kwargs = tree_map_only(torch.Tensor, _there, (inputs, kwargs))
    tensors = [x for x in (*inputs, *kwargs.values()) if is_device_tensor(x)]
    for tensor in tensors[:1]:
        mesh.note_batch(tensor)
    if mesh.in_use() is not None and trace_state_clean():
        with torch._C.DisableTorchFunction():
            mesh.place_on_mesh(module.parameters(), how)
            mesh.place_on_mesh(module.buffers())
            mesh.place_on_mesh(tensors, mesh.split)
    return module(*inputs, **kwargs)


def _there(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if is_device_tensor(tensor) else tensor.to(DEVICE_TYPE)


class DistributedSampler(stock.DistributedSampler[Any]):
    """`torch.utils.data.DistributedSampler`: the samples of all ranks, in turn.

    There are as many ranks as devices, so that shuffling, padding and dropping match the
    original. A loader takes the batches of all ranks at once: ``batch_size`` is that of one.

    Raises ValueError for another ``num_replicas``: the program expects other sizes then.
    """

    def __init__(
        self, dataset: Dataset[Any], num_replicas: int | None = None, rank: int | None = None,
        shuffle: bool = True, seed: int = 0, drop_last: bool = False,
    ) -> None:  # fmt: skip
        check_ranks(num_replicas)
        super().__init__(dataset, device_count(), 0, shuffle, seed, drop_last)
        # One rank has all samples.
        self.num_samples, self.num_replicas = self.total_size, 1


def _batches(stock: Callable[..., None]) -> Callable[..., None]:
    """The batches that a loader gets from its sampler."""

    def __init__(self: Any, sampler: Any, batch_size: int, *args: Any, **kwargs: Any) -> None:
        ranks = device_count() if isinstance(sampler, DistributedSampler) else 1
        stock(self, sampler, batch_size * ranks, *args, **kwargs)

    return __init__


def _on_one(
    self: torch.nn.DataParallel[Any], module: torch.nn.Module, device_ids: object = None,
    output_device: object = None, dim: int = 0,
) -> None:  # fmt: skip
    torch.nn.Module.__init__(self)
    self.module, self.dim, self.device_ids = module, dim, []


def _whole(self: torch.nn.DataParallel[Any], *inputs: Any, **kwargs: Any) -> Any:
    return _forward(self.module, inputs, kwargs)


def install(env: Environment) -> None:
    """Let batches of a DistributedSampler be those of all ranks.

    A `torch.nn.DataParallel` that was left as it is, and reported, is the model itself, on one
    device: torch's own looks for GPUs.
    """
    patch(BatchSampler, __init__=_batches(BatchSampler.__init__))
    patch(torch.nn.DataParallel, __init__=_on_one, forward=_whole)
