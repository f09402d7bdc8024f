"""For a copy whose program only calls models: views are copies, and writes to them are refused.

Files that keep views, writes and gradients right aren't in such a copy. The program doesn't need
them; if it does so later, an error says so, instead of computing wrong numbers.
"""

import sys
from importlib.util import find_spec
from typing import Any, NoReturn

import torch
from torchax.tensor import Environment, Tensor

from . import modes
from .calls import Function, is_device_tensor, native, patch, replacements

NEEDED_BY = "<usual>"


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(
        f"{what}, which this copy of tpu_runtime has no files for: run tpu-migrate again, or with "
        "--runtime whole"
    )


class _Place:
    """What several device tensors share that are one tensor in torch."""


def _share(parent: Tensor, *others: Any) -> None:
    place = parent.__dict__.setdefault("_place", _Place())
    for tensor in others:
        if is_device_tensor(tensor):
            tensor.__dict__["_place"] = place


def _check(function: Any, args: Any) -> None:
    if not isinstance(function, torch._ops.OpOverload):
        _refuse("a backward pass")
    place = args[0].__dict__.get("_place") if is_device_tensor(args[0]) else None
    if place is not None and sys.getrefcount(place) > 3:
        _refuse("a write to values that several tensors share")


def _link(env: Environment, function: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """The result of a view operator, a copy."""
    _share(args[0], *(result if isinstance(result, (list, tuple)) else (result,)))
    return result


def _getitem(env: Environment, function: Function, args: Any, kwargs: Any) -> Any:
    """Through ATen: torchax 0.0.13 returns an object of its own that is no tensor."""
    tensor, key = args
    if not isinstance(tensor, Tensor):
        return native(function, args, {})
    with env._dispatch_mode:
        return function(tensor, key)


def _detach(self: Tensor) -> Tensor:
    result = Tensor(self._elem, self._env)
    _share(self, result)
    return result


def _setitem(self: Tensor, key: Any, value: Any) -> NoReturn:
    _refuse("a write by index")


def install(env: Environment) -> None:
    """If views.py is there, it does all of this."""
    if find_spec(f"{__package__}.views") is not None:
        return
    replacements[torch.Tensor.__getitem__] = _getitem
    patch(modes, link=_link, check=_check)
    patch(Tensor, detach=_detach, __setitem__=_setitem, data=property(_detach, Tensor.data.fset))
