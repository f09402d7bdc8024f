"""DistributedDataParallel for ranks: each has a copy of the model, and they average gradients."""

import contextlib
import functools
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as Stock

from . import averaging, collectives
from .batches import moved, note_batch
from .device import DEVICE_TYPE

NEEDED_BY = "DistributedDataParallel UnshardedDataParallel"


class DistributedDataParallel(Stock):
    """`torch.nn.parallel.DistributedDataParallel` for a rank with an XLA device.

    Parameters and buffers start as those of rank 0. After each `backward()` gradients are the mean
    over the ranks, exchanged in one program; not within `no_sync()`. With ``broadcast_buffers``
    each forward pass begins with the buffers of rank 0. torch's own class records its exchanges
    in the middle of the step (collectives.py says why not), and works through buckets that XLA
    does not need; their options are taken and not used.

    Raises RuntimeError where a forward pass follows on backward passes that gave a parameter no
    gradient, unless ``find_unused_parameters``; and NotImplementedError for a ``process_group`` or
    hooks of its own.
    """

    def __init__(
        self, module: nn.Module, device_ids: object = None, output_device: object = None,
        dim: int = 0, broadcast_buffers: bool = True, init_sync: bool = True,
        process_group: object = None, bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False, check_reduction: bool = False,
        gradient_as_bucket_view: bool = False, static_graph: bool = False, **options: object,
    ) -> None:  # fmt: skip
        nn.Module.__init__(self)
        if process_group not in (None, dist.group.WORLD):
            raise NotImplementedError("DistributedDataParallel with a process_group of its own")
        self.process_group = dist.group.WORLD
        self.module, self.device_ids, self.output_device = module, None, None
        self.device, self.dim = torch.device(DEVICE_TYPE), dim
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.require_backward_grad_sync = True
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        kept = [p for name, p in module.named_parameters() if name not in ignored]
        trained = [p for p in kept if p.requires_grad]
        if not trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters "
                "that require a gradient."
            )
        self.parameters_to_ignore = ignored
        finds_unused = find_unused_parameters or static_graph
        self._exchange = Averaging(module, trained, self.process_group, finds_unused)
        self._sends_buffers = True  # before the next pass: not within evaluation, as in torch
        if init_sync:
            _from_rank_0([*kept, *self._sent_buffers()])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's results for the rank's own batch."""
        inputs, kwargs = moved(self.module, inputs), moved(self.module, kwargs)
        ranks = dist.get_world_size()
        if dist.get_rank() == 0:
            note_batch((*inputs, *kwargs.values()), lambda n: f"a batch of {n} on each of {ranks} "
                       f"ranks is {n * ranks}")  # fmt: skip
        if torch.is_grad_enabled():
            self._exchange.begin(self.require_backward_grad_sync)
        if self._sends_buffers:
            _from_rank_0(self._sent_buffers())
        self._sends_buffers = torch.is_grad_enabled() and self.require_backward_grad_sync
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def join(self, *args: object, **options: object) -> Any:
        """Raises NotImplementedError: ranks with different numbers of batches."""
        raise NotImplementedError("DistributedDataParallel.join: all ranks need as many batches")
        yield

    def register_comm_hook(self, *args: object) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError("DistributedDataParallel.register_comm_hook")

    def train(self, mode: bool = True) -> "DistributedDataParallel":
        return nn.Module.train(self, mode)

    def _set_static_graph(self) -> None:
        self.static_graph = self._exchange.finds_unused = True

    def _sent_buffers(self) -> list[Tensor]:
        """What rank 0 gives to the others."""
        named = self.module.named_buffers() if self.broadcast_buffers else ()
        return [buffer for name, buffer in named if name not in self.parameters_to_ignore]


class Averaging(averaging.Averaging):
    """By torch_xla's collectives."""

    def __init__(
        self, module: nn.Module, trained: list[nn.Parameter], group: Any,
        finds_unused: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(module, trained, finds_unused)
        self.alone = group.size() == 1
        for i, parameter in enumerate(trained):
            parameter.register_post_accumulate_grad_hook(functools.partial(self.note, i))

    def sum(self, counts: Tensor) -> None:
        collectives.all_reduce([counts])

    def mean(self, parameters: list[nn.Parameter]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        collectives.all_reduce(gradients, scale=1 / dist.get_world_size())


def _from_rank_0(values: Iterable[Any]) -> None:
    tensors = [v for v in values if isinstance(v, Tensor) and v.device.type == DEVICE_TYPE]
    if tensors:
        collectives.broadcast(tensors, dist.get_rank() == 0)


def install() -> None:
    """Gradients of ranks are averaged."""
    averaging.install()
