"""Tensors stay the same objects when a module moves to the device or back.

torch replaces the values inside a parameter, `parameter.data = moved`, so that its attributes,
hooks and class stay, and so do tied weights and other references, like an optimizer that was
created before. torchax 0.0.13 can't do that across devices: a module silently gets new parameters
there, and the old ones are no longer trained. Here `.data` also accepts a tensor on the other
device; everything else is torch's own code.
"""

import functools
import types
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.nn.parameter import Parameter, UninitializedTensorMixin  # type: ignore[attr-defined]
from torchax.tensor import Environment, Tensor

from ..dispatch.calls import is_device_tensor, patch, replaces

# Entries of a device tensor's `__dict__` that aren't the user's. The last one is torch's mark of
# a Parameter of another class.
_OWN = ("_elem", "_env", "_link", "_place", "_is_param")


def attributes(tensor: torch.Tensor) -> dict[str, Any]:
    """The attributes that a user has added to a tensor."""
    return {name: value for name, value in tensor.__dict__.items() if name not in _OWN}


def class_on_cpu(tensor: torch.Tensor) -> type:
    """The class of a tensor, or the CPU class that a device tensor corresponds to."""
    kind = type(tensor)
    if kind is Tensor:
        return Parameter if isinstance(tensor, Parameter) else torch.Tensor
    on_cpu: type = kind.__bases__[1] if issubclass(kind, Tensor) else kind
    return on_cpu


class OnCpu(dict[int, Any]):
    """The memo of a deepcopy that puts the copied tensors on the CPU."""


def on_cpu(tensor: Tensor) -> Any:
    """A CPU copy of a device tensor, with its class and its attributes, but without its graph."""
    values, kind = tensor.torch(), class_on_cpu(tensor)
    copy: torch.Tensor = torch.Tensor._make_subclass(kind, values, tensor.requires_grad)
    copy.__dict__.update(attributes(tensor))
    return copy


@functools.cache
def on_device(kind: type) -> type:
    """The class that replaces ``kind`` on the device: torchax's, or both."""
    if kind in (torch.Tensor, Parameter):
        return Tensor
    is_lazy = issubclass(kind, UninitializedTensorMixin)
    for name in () if is_lazy else ("__torch_function__", "__torch_dispatch__"):
        known = (getattr(torch.Tensor, name), getattr(Parameter, name))
        if getattr(getattr(kind, name), "__func__", getattr(kind, name)) not in (
            getattr(method, "__func__", method) for method in known
        ):
            raise RuntimeError(
                f"a {kind.__name__} cannot be moved to the device, where its {name} is not called"
            )
    names: dict[str, Any] = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    if is_lazy:
        names["cls_to_become"] = on_device(kind.cls_to_become)  # type: ignore[attr-defined]
    return types.new_class(kind.__name__, (Tensor, kind), {}, lambda space: space.update(names))


def _refuse_backward(gradients: object) -> NoReturn:
    raise RuntimeError(
        "backward through a graph that was made before its module moved to or from the device, or "
        "took another type: do that before the forward pass"
    )


def become(old: Any, new: torch.Tensor) -> None:
    """Give the object ``old`` the values of ``new``; its attributes, hooks and class stay.

    A gradient moves with it.
    """
    with torch._C.DisableTorchFunction():
        gradient, kept = old.grad if old.is_leaf else None, attributes(old)
        kind = class_on_cpu(old)
        kind = on_device(kind) if is_device_tensor(new) else kind
        contents: Any = new.detach().requires_grad_(old.requires_grad)
        if not old.is_leaf:  # a weight that is computed anew in each call
            if contents.requires_grad:
                contents.register_hook(_refuse_backward)
        elif old.requires_grad:
            # A graph that is still alive would silently add its gradient to the old contents.
            node = torch.autograd.graph.get_gradient_edge(old).node
            node.register_prehook(_refuse_backward)
            del node
        if is_device_tensor(new):
            kept.update(contents.__dict__)
            if isinstance(old, Parameter):
                kept["_is_param"] = True
        if gradient is not None:
            old.grad = None
        torch._C._swap_tensor_impl(old, contents)
        old.__class__, old.__dict__ = kind, kept
        for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if getattr(old, hooks):
                setattr(old, hooks, getattr(old, hooks))  # registers them with the new contents
    if gradient is not None and gradient.shape == old.shape:
        gradient.data = gradient.to(old.device, old.dtype)
        old.grad = gradient


@replaces(torch.Tensor.data.__set__)  # type: ignore[attr-defined]
def _set_data(env: Environment, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """`tensor.data = value`, for a tensor on the CPU."""
    tensor, value = args
    if not is_device_tensor(value):
        return NotImplemented
    with env:
        become(tensor, value)
    return None


def _compatible(stock: Callable[..., bool]) -> Callable[..., bool]:
    """Whether `old.data = new` is possible. Dynamo checks the signature in newer versions."""

    def _has_compatible_shallow_copy_type(input: torch.Tensor, from_: torch.Tensor) -> bool:
        return is_device_tensor(input) or is_device_tensor(from_) or stock(input, from_)

    return _has_compatible_shallow_copy_type


def install(env: Environment) -> None:
    """Let a module move its parameters like on CUDA."""
    patch(
        torch,
        _has_compatible_shallow_copy_type=_compatible(torch._has_compatible_shallow_copy_type),
    )
