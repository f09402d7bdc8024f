"""Hooks and functions of the program's that a backward pass calls.

The function mode calls backward from outside of itself, so that `grad * mask.to("jax")` in a hook
would reach torch, which knows no such device. Here they are inside of it, and the operators of the
pass outside, as they are in a forward pass.
"""

import functools
from contextlib import nullcontext
from typing import Any

import torch
from torch.overrides import (
    _get_current_function_mode,
    _get_current_function_mode_stack,
    _pop_mode_temporarily,
)
from torchax.tensor import Environment

from .calls import Function, patch
from .modes import DispatchMode, FunctionMode

NEEDED_BY = "backward grad autograd optim vjp jvp jacrev jacfwd hessian linearize train_step"


class _InBackward(FunctionMode):
    """The function mode, for what is the program's own."""


def _inside(env: Environment, run: Function) -> Function:
    mode = _InBackward(env)  # type: ignore[no-untyped-call]

    @functools.wraps(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        # A pass within a pass, as that of a reentrant checkpoint, has the mode already.
        is_inside = any(type(each) is _InBackward for each in _get_current_function_mode_stack())
        with nullcontext() if is_inside else mode:
            return run(*args, **kwargs)

    return run_backward


def _outside(dispatch: Function) -> Function:
    @functools.wraps(dispatch)
    def __torch_dispatch__(*args: Any) -> Any:
        if not isinstance(_get_current_function_mode(), _InBackward):
            return dispatch(*args)
        with _pop_mode_temporarily():
            return dispatch(*args)

    return __torch_dispatch__


def install(env: Environment) -> None:
    """Put the mode around torch's engine."""
    engine = torch.autograd._engine_run_backward  # type: ignore[attr-defined]  # or a recorder's
    patch(torch.autograd, _engine_run_backward=_inside(env, engine))
    patch(DispatchMode, __torch_dispatch__=_outside(DispatchMode.__torch_dispatch__))
