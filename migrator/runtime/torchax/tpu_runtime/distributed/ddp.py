"""DistributedDataParallel for ranks: each has a copy of the model, and they average gradients."""

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
import torchax
from jax._src.core import trace_state_clean
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from torchax.tensor import Environment
from torchax.tensor import Tensor as TorchaxTensor

from ..compilation.compile_state import NotCompilable
from ..device import DEVICE_TYPE
from ..dispatch.calls import is_device_tensor
from . import gradient_averaging, mesh
from .ddp_base import Replicated
from .process_group import ProcessGroup


class Averaging(gradient_averaging.Averaging):
    """Uses the process group; a compiled module may reach parameters without a gradient."""

    def __init__(
        self, module: nn.Module, trained: list[nn.Parameter], group: ProcessGroup,
        finds_unused: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(module, trained, finds_unused)
        self._group, self.alone = group, group.size() == 1
        self._arrives: dict[int, bool] = {}  # of those under way, which are gradients
        self._accumulators: dict[int, torch.autograd.graph.Node] = {}  # their hooks live with them
        for i, parameter in enumerate(trained):
            self._watch(i, parameter)
            note = functools.partial(_note, weakref.ref(self), i)
            parameter.register_post_accumulate_grad_hook(note)

    def _watch(self, number: int, parameter: Tensor) -> None:
        """Watch whether a gradient arrives: a parameter's own hooks also run if none does."""
        node = torch.autograd.graph.get_gradient_edge(parameter).node
        node.register_prehook(functools.partial(_see, self._arrives, number))
        self._accumulators[number] = node

    def note(self, number: int, parameter: Tensor) -> None:
        """A backward pass has reached this parameter, with a gradient or without."""
        arrives = self._arrives.pop(number, None)
        if arrives is None:  # its contents were replaced, and the watching hooks with them
            self._watch(number, parameter)
            arrives = parameter.grad is not None
        if arrives:
            super().note(number, parameter)

    def sum(self, counts: Tensor) -> None:
        self._group.allreduce([counts], dist.AllreduceOptions()).wait()

    def mean(self, parameters: list[nn.Parameter]) -> None:
        env = torchax.default_env()
        self._group.meet("DistributedDataParallel's gradients of", parameters)
        with torch._C.DisableTorchFunction():
            arrays = [p.grad.jax() for p in parameters]  # type: ignore[union-attr]
            for parameter, array in zip(
                parameters, self._group.exchange.reduce(arrays, "avg"), strict=True
            ):
                parameter.grad = TorchaxTensor(array, env)


class DistributedDataParallel(Replicated):
    """`torch.nn.parallel.DistributedDataParallel` for a rank with a JAX device.

    Parameters and buffers start as those of rank 0. After each `backward()` gradients are the mean
    over the ranks, exchanged in one program; not within `no_sync()`. With ``broadcast_buffers``
    each forward pass begins with the buffers of rank 0. torch's own class works by hooks of CUDA
    and in buckets, which XLA does not need; their options are taken and not used.

    Raises RuntimeError if a forward pass follows backward passes that gave a parameter no gradient,
    unless ``find_unused_parameters``; and NotImplementedError for hooks of its own.
    """

    averaging, say = Averaging, staticmethod(mesh.say)

    @property
    def _group(self) -> ProcessGroup:
        if not isinstance(self.process_group, ProcessGroup):
            raise ValueError(f'the process group is not one of init_process_group("{DEVICE_TYPE}")')
        return self.process_group

    def run(self, function: Callable[..., Any], *inputs: Any, **kwargs: Any) -> Any:
        """The results of a function that uses the module, run as a forward pass."""
        exchanges = torch.is_grad_enabled() or self._sends_buffers
        if exchanges and self._group.size() > 1 and not trace_state_clean():
            raise NotCompilable("it exchanges gradients with other ranks")
        return super().run(function, *inputs, **kwargs)

    def _moved(self, values: Any) -> Any:
        return tree_map_only(
            Tensor, lambda t: t if is_device_tensor(t) else t.to(self.device), values
        )

    def _from_rank_0(self, values: Iterable[Tensor]) -> None:
        tensors = [value.detach() for value in values if is_device_tensor(value)]
        if tensors and self._group.size() > 1:
            options = dist.BroadcastOptions()
            options.rootRank = 0
            self._group.broadcast(tensors, options)


def _see(arrives: dict[int, bool], number: int, gradients: tuple[Tensor | None, ...]) -> None:
    arrives[number] = gradients[0] is not None


def _note(of: "weakref.ref[Averaging]", number: int, parameter: Tensor) -> None:
    exchange = of()
    if exchange is not None:
        exchange.note(number, parameter)


def join() -> None:
    """Let the ranks that a launcher has started form one group, if they haven't yet."""
    if not dist.is_initialized():
        dist.init_process_group(DEVICE_TYPE)


def install(env: Environment) -> None:
    """Average the gradients of ranks after each backward pass."""
    gradient_averaging.install()
