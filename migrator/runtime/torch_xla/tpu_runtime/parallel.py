"""Models for several devices: what DataParallel and DistributedDataParallel become.

With ranks (launching.py), each has a copy of the model and exchanges gradients with the others.
With `DataParallel` one process drives all devices, by torch_xla's SPMD: `setup(spmd=True)`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from . import averaging, collectives, mesh
from .device import DEVICE_TYPE, say

NEEDED_BY = "DataParallel DistributedDataParallel"


class DistributedDataParallel(nn.Module):
    """`torch.nn.parallel.DistributedDataParallel` for a rank with an XLA device.

    Parameters and buffers start as those of rank 0. After each `backward()` gradients are the mean
    over the ranks, exchanged in one program; not within `no_sync()`. With ``broadcast_buffers``
    each forward pass begins with the buffers of rank 0. torch's own class records its exchanges
    in the middle of the step (collectives.py says why not), and works through buckets that XLA
    does not need; their options are taken and not used.

    Raises RuntimeError where a forward pass follows on backward passes that gave a parameter no
    gradient, unless ``find_unused_parameters``; and NotImplementedError for a ``process_group`` of
    its own.
    """

    def __init__(
        self, module: nn.Module, device_ids: object = None, output_device: object = None,
        dim: int = 0, broadcast_buffers: bool = True, init_sync: bool = True,
        process_group: object = None, bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False, check_reduction: bool = False,
        gradient_as_bucket_view: bool = False, static_graph: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if process_group not in (None, torch.distributed.group.WORLD):
            raise NotImplementedError("DistributedDataParallel with a process_group of its own")
        self.module, self.device_ids = module, None
        self.broadcast_buffers = broadcast_buffers
        self.require_backward_grad_sync = True
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        kept = [p for name, p in module.named_parameters() if name not in ignored]
        trained = [p for p in kept if p.requires_grad]
        if not trained:
            raise RuntimeError("DistributedDataParallel has nothing to do: no parameter is trained")
        self._sends_buffers = True  # before the next one: not within evaluation, as in torch
        self.find_unused_parameters = find_unused_parameters or static_graph
        self._exchange = Averaging(module, trained, self.find_unused_parameters)
        for i, parameter in enumerate(trained):
            parameter.register_post_accumulate_grad_hook(functools.partial(self._exchange.note, i))
        self._ignored = ignored
        if init_sync:
            _from_rank_0([*kept, *self._sent_buffers()])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's results for the rank's own batch."""
        inputs, kwargs = _moved(self.module, inputs), _moved(self.module, kwargs)
        ranks = torch.distributed.get_world_size()
        if torch.distributed.get_rank() == 0:
            _note_batch((*inputs, *kwargs.values()), lambda n: f"a batch of {n} on each of {ranks} "
                        f"ranks is {n * ranks}")  # fmt: skip
        if torch.is_grad_enabled():
            self._exchange.begin(self.require_backward_grad_sync)
        if self._sends_buffers:
            _from_rank_0(self._sent_buffers())
        self._sends_buffers = torch.is_grad_enabled() and self.require_backward_grad_sync
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of passes in here stay the rank's own, until the next one outside."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextlib.contextmanager
    def join(self, **options: object) -> Iterator[None]:
        """Raises NotImplementedError: ranks with different numbers of batches."""
        raise NotImplementedError("DistributedDataParallel.join: all ranks need as many batches")
        yield

    def _sent_buffers(self) -> list[Tensor]:
        """What rank 0 gives to the others."""
        named = self.module.named_buffers() if self.broadcast_buffers else ()
        return [buffer for name, buffer in named if name not in self._ignored]


class Averaging(averaging.Averaging):
    """By torch_xla's collectives."""

    def sum(self, counts: Tensor) -> None:
        collectives.all_reduce([counts])

    def mean(self, parameters: list[nn.Parameter]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        collectives.all_reduce(gradients, scale=1 / torch.distributed.get_world_size())


def _from_rank_0(values: Iterable[Any]) -> None:
    tensors = [v for v in values if isinstance(v, Tensor) and v.device.type == DEVICE_TYPE]
    if tensors:
        collectives.broadcast(tensors, torch.distributed.get_rank() == 0)


class DataParallel(nn.DataParallel[nn.Module]):
    """`torch.nn.DataParallel`: each batch is split over all devices, whatever ``device_ids`` say.

    Statistics of BatchNorm are those of the whole batch; in the original, those of one part.
    """

    def __init__(
        self, module: nn.Module, device_ids: object = None, output_device: object = None,
        dim: int = 0,
    ) -> None:  # fmt: skip
        nn.Module.__init__(self)
        self.module, self.dim = module, dim
        self.device_ids, self.output_device = list(range(mesh.start(mesh.DATA))), 0

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's results for the whole batch."""
        inputs, kwargs = _moved(self.module, inputs), _moved(self.module, kwargs)
        count = len(self.device_ids)
        if mesh.divides(mesh.DATA):
            tree_map_only(Tensor, self._split, (inputs, kwargs))
            _note_batch((*inputs, *kwargs.values()), lambda n: f"a batch of {n} " + (
                f"can not be split over {count} devices: each computes all of it" if n % count
                else f"is {n // count} on each of {count} devices"))  # fmt: skip
        return self.module(*inputs, **kwargs)

    def _split(self, tensor: Tensor) -> None:
        """A part for each device where the first dimension divides."""
        if tensor.dim() and tensor.shape[0] and tensor.shape[0] % len(self.device_ids) == 0:
            if tensor.device.type == DEVICE_TYPE:
                mesh.placed(tensor, 0)


def _moved(module: nn.Module, values: Any) -> Any:
    """Batches on the CPU go to the model's device, as torch's classes send them."""
    first = next(module.parameters(), None)
    if first is None or first.device.type != DEVICE_TYPE:
        return values
    return tree_map_only(Tensor, lambda tensor: tensor.to(first.device), values)


def _note_batch(values: tuple[Any, ...], words: Callable[[int], str]) -> None:
    """Say once how large the batches are."""
    batch = next((v for v in values if isinstance(v, Tensor) and v.dim()), None)
    if batch is not None:
        say(words(batch.shape[0]))


def install() -> None:
    """Gradients of ranks are averaged."""
    averaging.install()
