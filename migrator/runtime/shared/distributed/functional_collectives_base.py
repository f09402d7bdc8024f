"""`torch.distributed._functional_collectives`: exchanges that return new tensors, with gradients.

torch's operators of these names need a process group in C++, and so do their gradients. Here they
use the methods of the target's group. An exchange has ended when it returns: nothing waits for it.
"""

import importlib
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Sizes = list[int]


def _group(name: str) -> dist.ProcessGroup:
    return dist.distributed_c10d._resolve_process_group(name)


@torch.no_grad()
def all_gather_into_tensor(self: Tensor, group_size: int, group_name: str) -> Tensor:
    result = self.new_empty((group_size * self.shape[0], *self.shape[1:]))
    dist.all_gather_into_tensor(result, self.contiguous(), group=_group(group_name))
    return result


@torch.no_grad()
def reduce_scatter_tensor(self: Tensor, reduce_op: str, group_size: int, group_name: str) -> Tensor:
    result = self.new_empty((self.shape[0] // group_size, *self.shape[1:]))
    operation = _operation(reduce_op)
    dist.reduce_scatter_tensor(result, self.contiguous(), operation, group=_group(group_name))
    return result


@torch.no_grad()
def all_to_all_single(self: Tensor, to: Sizes, of: Sizes, group_name: str) -> Tensor:
    """``to``: the lengths of the parts of the result, and ``of``: those of ``self``."""
    result = self.new_empty((sum(to), *self.shape[1:]))
    alike = len({*to, *of}) == 1
    group = _group(group_name)
    if alike:
        dist.all_to_all_single(result, self.contiguous(), group=group)
    else:
        dist.all_to_all_single(result, self.contiguous(), list(to), list(of), group=group)
    return result


@torch.no_grad()
def all_reduce(self: Tensor, reduce_op: str, group_name: str) -> Tensor:
    result = self.clone()
    dist.all_reduce(result, _operation(reduce_op), group=_group(group_name))
    return result


@torch.no_grad()
def broadcast(self: Tensor, src: int, group_name: str) -> Tensor:
    result = self.clone()
    dist.broadcast(result, src, group=_group(group_name))
    return result


def wait_tensor(tensor: Tensor) -> Tensor:
    return tensor


def _operation(name: str) -> Any:
    return getattr(dist.ReduceOp, name.upper())


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, size: int, group: str) -> Tensor:
        ctx.how = size, group
        return all_gather_into_tensor(tensor, size, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return reduce_scatter_tensor(gradients[0], "sum", *ctx.how), None, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, operation: str, size: int, group: str) -> Tensor:
        if operation != "sum":
            raise NotImplementedError(f"the gradient of reduce_scatter_tensor with {operation}")
        ctx.how = size, group
        return reduce_scatter_tensor(tensor, operation, size, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return all_gather_into_tensor(gradients[0], *ctx.how), None, None, None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, to: Sizes, of: Sizes, group: str) -> Tensor:
        ctx.how = of, to, group
        return all_to_all_single(tensor, to, of, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return all_to_all_single(gradients[0], *ctx.how), None, None, None


OPERATORS = {
    function.__name__: function
    for function in (
        all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single, all_reduce, broadcast,
        wait_tensor,
    )
}  # fmt: skip
WITH_GRADIENTS = {
    "all_gather_into_tensor": _Gather.apply,
    "reduce_scatter_tensor": _Scatter.apply,
    "all_to_all_single": _Exchange.apply,
}


def give_results_at_once(device_type: str) -> None:
    """Results are complete: otherwise torch would wrap each in a tensor that waits."""
    functional: Any = importlib.import_module("torch.distributed._functional_collectives")
    wrap, wrapped = functional._maybe_wrap_tensor, functional._FromTorchTensor.forward

    def unwrapped(tensor: Tensor) -> Tensor:
        return tensor if tensor.device.type == device_type else wrap(tensor)

    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor) if tensor.device.type == device_type else wrapped(ctx, tensor)

    functional._maybe_wrap_tensor = unwrapped
    functional._FromTorchTensor.forward = staticmethod(forward)
