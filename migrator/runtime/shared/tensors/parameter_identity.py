"""Parameters stay the same objects when a module moves to the device or back.

torch_xla 2.9 and torch_tpu 0.2: a CPU tensor cannot be turned into a device tensor in place, so
`module.to(device)` puts new Parameters into the module. Tied weights come apart, and an optimizer,
EMA or list of parameters made before keeps the old ones and silently trains nothing.

torch's own cure, `torch.__future__.set_swap_module_params_on_conversion(True)`, cures too little
and breaks more (torch 2.9): it drops the hooks and the attributes of a parameter; turns the
parameters of lazy modules into empty ones; raises "Couldn't swap" where a weak reference
(torch_ema) or an autograd graph (the old `weight_norm`, an output that is still in a variable)
holds a parameter; and makes `load_state_dict` swap too, so that it raises for every LSTM and GRU.
So here only the tensor inside the Parameter changes, only between the device and elsewhere; all
else is torch's own code.
"""

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..device import DEVICE_TYPE

Convert = Callable[[torch.Tensor], torch.Tensor]


def _refuse_backward(gradients: object) -> NoReturn:
    raise RuntimeError(
        "backward through a graph that was made before its module moved to or from the device: "
        "move the module before the forward pass"
    )


def _changes_kind(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Whether `old.data = new` is impossible, as between CPU and XLA tensors."""
    return DEVICE_TYPE in (old.device.type, new.device.type) and not (
        torch._has_compatible_shallow_copy_type(old, new)
    )


def _become(old: torch.Tensor, new: torch.Tensor) -> None:
    """Give the object ``old`` the contents of ``new``; its class, attributes and hooks stay."""
    with torch._C.DisableTorchFunctionSubclass():  # lazy parameters support few functions
        contents = new.detach().requires_grad_(old.requires_grad)
        if old.requires_grad:
            # A live graph would silently add its gradient to the old contents.
            node = torch.autograd.graph.get_gradient_edge(old).node
            node.register_prehook(_refuse_backward)
            del node
    torch._C._swap_tensor_impl(old, contents)
    for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        if getattr(old, hooks):
            setattr(old, hooks, getattr(old, hooks))  # registers them with the new contents


def _move(parameter: torch.Tensor, new: torch.Tensor, convert: Convert) -> torch.Tensor | None:
    """Convert ``parameter`` and its gradient. Returns the gradient."""
    gradient = parameter.grad
    parameter.grad = None
    _become(parameter, new)
    if gradient is not None:
        with torch.no_grad():
            converted = convert(gradient)
        if _changes_kind(gradient, converted):
            _become(gradient, converted)
        parameter.grad = gradient
    return gradient


def install() -> None:
    """Let every module keep its Parameters when it changes between the device and elsewhere.

    And `parameter.data = parameter.data.to(device)` be possible. Where torch can set it across the
    two, it does, and nothing here is used.
    """
    torch_apply: Callable[..., nn.Module] = nn.Module._apply

    @functools.wraps(torch_apply)
    def apply(self: nn.Module, convert: Convert, recurse: bool = True) -> nn.Module:
        if recurse:
            for child in self.children():
                child._apply(convert)
        # What torch's code, below, applies to each tensor: none may be converted twice.
        known: dict[int, torch.Tensor] = {}
        for parameter in self._parameters.values():
            if parameter is None or id(parameter) in known:
                continue
            with torch.no_grad():
                new = convert(parameter)
            known[id(parameter)] = new
            # A wrapper (DTensor) has its tensors in Python: torch swaps the whole object.
            if _changes_kind(parameter, new) and not is_traceable_wrapper_subclass(new):
                known[id(parameter)] = parameter
                gradient = _move(parameter, new, convert)
                if gradient is not None:
                    known[id(gradient)] = gradient

        def convert_once(tensor: torch.Tensor) -> Any:
            return known[id(tensor)] if id(tensor) in known else convert(tensor)

        return torch_apply(self, convert_once, recurse=False)

    nn.Module._apply = apply  # type: ignore[method-assign]
    data: Any = torch.Tensor.data

    def set_data(self: torch.Tensor, new: torch.Tensor) -> None:
        (_become if _changes_kind(self, new) else data.__set__)(self, new)

    torch.Tensor.data = property(data.__get__, set_data)  # type: ignore[assignment]
