"""The state that a torch optimizer creates in its first step, created before that step."""

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import torch
from torch.optim import SGD, Optimizer
from torchax.tensor import Tensor

from ..dispatch.calls import is_device_tensor, natively
from .compile_state import FirstTime

_OTHERWISE = ("capturable", "fused", "differentiable")


class FreshState:
    """The created state, to be removed again."""

    def __init__(self) -> None:
        self._made: list[tuple[Optimizer, Any]] = []

    def make(self, optimizers: Iterable[Optimizer]) -> None:
        """Create it for all parameters that may get a gradient; FirstTime if it isn't known how."""
        for optimizer in optimizers:
            with natively():
                missing = [
                    p for group in optimizer.param_groups for p in group["params"]
                    if p.requires_grad and not optimizer.state.get(p)
                ]  # fmt: skip
            if missing:
                _check(optimizer, missing)
                self._made += [(optimizer, p) for p in missing]
                try:
                    _make(optimizer, missing)
                except Exception as error:  # the step itself will raise it
                    raise FirstTime from error

    def drop_unused(self, touched: set[int]) -> None:
        """Remove state that the step didn't touch: a parameter without a gradient has no state."""
        unused = [
            (optimizer, p) for optimizer, p in self._made
            if not any(id(value) in touched for value in optimizer.state[p].values())
        ]  # fmt: skip
        _take_back(unused)
        self._made = [pair for pair in self._made if pair[1] in pair[0].state]

    def undo(self) -> None:
        _take_back(self._made)
        self._made = []


def _take_back(pairs: list[tuple[Optimizer, Any]]) -> None:
    for optimizer, parameter in pairs:
        optimizer.state.pop(parameter, None)


def is_known(optimizer: Optimizer) -> bool:
    """Whether its step only runs torch's own code."""
    # A class that wraps another optimizer, like Lookahead, may not have called Optimizer.__init__.
    if not type(optimizer).__module__.startswith("torch.optim."):
        return False
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return not hooks and hasattr(optimizer, "_init_group")


def _check(optimizer: Optimizer, parameters: list[Any]) -> None:
    if not is_known(optimizer):
        raise FirstTime
    for group in optimizer.param_groups:
        if any(group.get(name) for name in _OTHERWISE):
            raise FirstTime
        # The first momentum is the gradient itself: with dampening, zero is another start.
        if isinstance(optimizer, SGD) and group["momentum"] and group["dampening"]:
            raise FirstTime
    if not all(map(is_device_tensor, parameters)):
        raise FirstTime


def _make(optimizer: Optimizer, parameters: list[Any]) -> None:
    """One program for all: otherwise each shape would be a separate program."""
    tensors: list[Tensor] = []

    def fresh_state() -> list[Any]:
        with torch.no_grad(), _gradients(parameters):
            for group in optimizer.param_groups:
                _fill(optimizer, group)
        tensors.extend(
            value for p in parameters for value in optimizer.state.get(p, {}).values()
            if is_device_tensor(value)
        )  # fmt: skip
        return [tensor._elem for tensor in tensors]

    for tensor, array in zip(tensors, jax.jit(fresh_state)(), strict=True):
        tensor.__dict__["_elem"] = array


def _fill(optimizer: Any, group: dict[str, Any]) -> None:
    if not isinstance(optimizer, SGD):
        lists = len(inspect.signature(optimizer._init_group).parameters) - 1
        optimizer._init_group(group, *([] for _ in range(lists)))
    elif group["momentum"]:
        for p in group["params"]:
            if p.grad is not None and not optimizer.state.get(p):
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)


@contextmanager
def _gradients(parameters: list[Any]) -> Iterator[None]:
    """Placeholders for gradients: a parameter without one gets no state."""
    with natively():
        before = [(p, p.grad) for p in parameters]
        for p, gradient in before:
            if gradient is None:
                p.grad = Tensor(p.__dict__["_elem"], p._env)
    try:
        yield
    finally:
        with natively():
            for p, gradient in before:
                p.grad = gradient
