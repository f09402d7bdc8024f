"""DistributedDataParallel on both targets; each adds how its ranks send values."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as Stock

from ..device import DEVICE_TYPE

_SENT_AS = {
    default_hooks.allreduce_hook: None,
    default_hooks.fp16_compress_hook: torch.float16,
    default_hooks.bf16_compress_hook: torch.bfloat16,
}


class Replicated(Stock):
    """A copy of a model whose gradients are the mean over the ranks."""

    averaging: ClassVar[Callable[..., Any]]  # of its gradients
    process_group: Any

    def __init__(
        self, module: nn.Module, device_ids: object = None, output_device: object = None,
        dim: int = 0, broadcast_buffers: bool = True, init_sync: bool = True,
        process_group: Any = None, bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False, check_reduction: bool = False,
        gradient_as_bucket_view: bool = False, static_graph: bool = False, **options: object,
    ) -> None:  # fmt: skip
        nn.Module.__init__(self)
        self.process_group = dist.group.WORLD if process_group is None else process_group
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
        self._exchange = self.averaging(module, trained, self._group, finds_unused)
        self._sends_buffers = True  # before the next pass, but not in evaluation, as in torch
        if init_sync:
            self._from_rank_0([*kept, *self._sent_buffers()])

    @staticmethod
    def say(what: str) -> None:
        """Tell the user, once."""
        raise NotImplementedError

    @property
    def _group(self) -> Any:
        """The process group, if gradients can be exchanged in it; otherwise raises an error."""
        raise NotImplementedError

    def _moved(self, values: Any) -> Any:
        """Batches, moved to the device."""
        raise NotImplementedError

    def _from_rank_0(self, values: Iterable[Tensor]) -> None:
        """Replace the values of tensors on the device by rank 0's."""
        raise NotImplementedError

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's results for this rank's batch."""
        return self.run(self.module, *inputs, **kwargs)

    def run(self, function: Callable[..., Any], *inputs: Any, **kwargs: Any) -> Any:
        """Run a function that uses the module, as a forward pass."""
        inputs, kwargs = self._moved(inputs), self._moved(kwargs)
        self._note_batch((*inputs, *kwargs.values()))
        if torch.is_grad_enabled():
            self._exchange.begin(self.require_backward_grad_sync)
        if self._sends_buffers:
            self._from_rank_0(self._sent_buffers())
        self._sends_buffers = torch.is_grad_enabled() and self.require_backward_grad_sync
        return function(*inputs, **kwargs)

    @contextlib.contextmanager
    def join(self, *args: object, **options: object) -> Any:
        """Raises NotImplementedError: ranks with different numbers of batches."""
        raise NotImplementedError(
            "DistributedDataParallel.join: give all ranks equally many batches"
        )
        yield

    def register_comm_hook(self, state: object, hook: Any) -> None:
        """Send gradients as torch's own hooks do: as they are, or in 16 bits.

        Raises NotImplementedError for another hook.
        """
        if hook not in _SENT_AS or state not in (None, dist.group.WORLD):
            raise NotImplementedError("DistributedDataParallel.register_comm_hook of another hook")
        kind = _SENT_AS[hook]
        self._exchange.sent = None if kind is None else (kind, self._group)

    def train(self, mode: bool = True) -> "Replicated":
        return nn.Module.train(self, mode)

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Statistics of torch's own exchange, which Lightning reads."""
        return {}

    def _set_static_graph(self) -> None:
        self.static_graph = self._exchange.finds_unused = True

    def _sent_buffers(self) -> list[Tensor]:
        """The buffers that rank 0 sends to the others."""
        named = self.module.named_buffers() if self.broadcast_buffers else ()
        return [buffer for name, buffer in named if name not in self.parameters_to_ignore]

    def _note_batch(self, values: tuple[Any, ...]) -> None:
        """Print once how large the batches are."""
        batch = next((v for v in values if isinstance(v, Tensor) and v.dim()), None)
        if batch is not None and dist.get_rank() == 0:
            n, ranks = batch.shape[0], dist.get_world_size(self.process_group)
            self.say(f"a batch of {n} on each of {ranks} ranks is {n * ranks}")
