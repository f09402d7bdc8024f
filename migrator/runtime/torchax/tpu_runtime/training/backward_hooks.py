"""The program's own hooks and functions that a backward pass calls.

The function mode is off while backward runs, so `grad * mask.to("jax")` in a hook would go to
torch, which doesn't know that device. Here such functions run with the mode on, and the operators
of the pass run with it off, as they do in a forward pass.
"""

import functools
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch.overrides import (
    _get_current_function_mode,
    _get_current_function_mode_stack,
    _pop_mode_temporarily,
)
from torchax.tensor import Environment, Tensor

from ..dispatch.calls import Function, patch
from ..dispatch.modes import DispatchMode, FunctionMode
from ..lazy import lazy_graph
from ..tensors import views

_DETACH = torch.ops.aten.detach.default
_VIEWS = torch._C.DispatchKey.ADInplaceOrView


class _InBackward(FunctionMode):
    """The function mode, for the program's own code."""


def _inside(env: Environment, run: Function) -> Function:
    mode = _InBackward(env, env._function_mode.hooks)  # type: ignore[attr-defined]

    @functools.wraps(run)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        # A pass within a pass, like that of a reentrant checkpoint, has the mode already.
        is_inside = any(type(each) is _InBackward for each in _get_current_function_mode_stack())
        with nullcontext() if is_inside else mode:
            result = run(*args, **kwargs)
        # With `create_graph` (the fourth) it is part of a forward pass: it is differentiated again.
        if not args[3] and lazy_graph.is_recording():
            lazy_graph.backward()
        return result

    return run_backward


def _outside(dispatch: Function) -> Function:
    @functools.wraps(dispatch)
    def __torch_dispatch__(*args: Any) -> Any:
        if not isinstance(_get_current_function_mode(), _InBackward):
            return dispatch(*args)
        if args[1] is _DETACH and type(args[3][0]) is Tensor:  # twice for each gradient
            # Below autograd, torch makes an alias of the result, which comes here again.
            below = torch._C._dispatch_tls_is_dispatch_key_excluded(_VIEWS)
            return args[3][0] if below else views.same(args[3][0])
        with ExitStack() as popped:
            # `torch.autograd.backward` itself is no torch function: the mode is still on there.
            while isinstance(_get_current_function_mode(), FunctionMode):
                popped.enter_context(_pop_mode_temporarily())
            return dispatch(*args)

    return __torch_dispatch__


def install(env: Environment) -> None:
    """Turn the mode on around calls from torch's engine."""
    engine = torch.autograd._engine_run_backward  # or a recorder's
    patch(torch.autograd, _engine_run_backward=_inside(env, engine))
    patch(DispatchMode, __torch_dispatch__=_outside(DispatchMode.__torch_dispatch__))
