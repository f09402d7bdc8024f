"""Forward passes without gradients, of evaluation, sampling and generation, as compiled programs.

The outermost call of a module on the device under `torch.no_grad()` runs as it is the first time,
and as one program from the second time on with the same shapes: by the machinery of train_step, so
new weights, another mode, statistics, random numbers and hooks are seen. What can not be compiled
runs as it is, which is said once for each class of modules; the modules in it are then tried.
"""

import os
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from jax._src.core import trace_state_clean
from torchax.tensor import Environment

from .calls import holds_device_tensor, patch
from .guards import FORWARD
from .train_step import VARIABLE, Compiled, is_inside, warn

_told: set[type] = set()


class Forward(Compiled):
    """The forward pass of one module; a copy of the module has none."""

    def __init__(self, module: torch.nn.Module, call: Callable[..., Any]) -> None:
        super().__init__(MethodType(call, module), type(module).__name__, patient=True)
        self._class = type(module)

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce__(self) -> Any:
        return type(None), ()

    def _place(self) -> str:
        return f"{self.name} without gradients"

    def _give_up(self, why: str) -> None:
        self.why_eager = self.record.why_eager = why
        if self._class not in _told:
            _told.add(self._class)
            warn(f"{self.name} runs operator by operator without gradients, too: {why}")


def _is_worth_it(module: torch.nn.Module) -> bool:
    """Not for a single layer of torch, nor for what is compiled by other means."""
    if isinstance(module, (torch.jit.ScriptModule, torch.nn.DataParallel)):
        return False
    layer = type(module).__module__.startswith("torch.nn.") and not module._modules
    return not layer or isinstance(module, torch.nn.RNNBase)


def _compiling(stock: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() or is_inside() or not _is_worth_it(self):
            return stock(self, *args, **kwargs)
        if not (holds_device_tensor(args) or holds_device_tensor(kwargs)):
            return stock(self, *args, **kwargs)
        if not trace_state_clean():  # a jax.jit of the user's
            return stock(self, *args, **kwargs)
        forward = self.__dict__.get(FORWARD)
        if forward is None or forward.memory.function.__self__ is not self:  # copy.copy
            forward = self.__dict__[FORWARD] = Forward(self, stock)
        return forward(forward.memory.function, args, kwargs)

    return __call__


def install(env: Environment) -> None:
    """Take over the calls of modules."""
    if not os.environ.get(VARIABLE):
        patch(torch.nn.Module, __call__=_compiling(torch.nn.Module.__call__))
