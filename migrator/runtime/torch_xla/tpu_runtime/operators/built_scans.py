"""`scan` without building its loop again.

torch_xla 2.9 keeps what it has traced of a step, but makes a loop of XLA's of it in each call,
forwards and backwards: 10 ms of the host for one LSTM in each training step.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch_xla.backends
from torch.utils import _pytree as pytree
from torch_xla import _XLAC
from torch_xla.experimental import scan as scanning


@dataclass(frozen=True)
class _Built:
    computation: Any
    outputs: list[tuple[torch.Size, torch.dtype]]
    unflatten: Callable[[Any], Any]  # of the outputs


# By the function of a step, which `scan` keeps if it is pure; then by the forms of its inputs.
_loops: WeakKeyDictionary[Callable[..., Any], dict[Any, _Built]] = WeakKeyDictionary()
_local = threading.local()


@contextmanager
def _built() -> Iterator[list[tuple[Any, Any]]]:
    """The inputs and the computation of each loop that this thread builds meanwhile."""
    _local.built = []
    try:
        yield _local.built
    finally:
        del _local.built


def _noted(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def user_computation(name: str, inputs: Any, computation: Any) -> Any:
        if hasattr(_local, "built"):
            _local.built.append((inputs, computation))
        return stock(name, inputs, computation)

    return user_computation


def _loop_of(built: list[tuple[Any, Any]], given: int, results: Any) -> _Built | None:
    """What was built; None if it also takes what is no argument, such as a seed."""
    outputs, unflatten = scanning.tree_flatten_none(results)
    if len(built) != 1 or len(built[0][0]) != 1 + given + len(outputs):
        return None
    return _Built(built[0][1], [(y.shape[1:], y.dtype) for y in outputs], unflatten)


def _kept(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`_scan_impl_pytree`, which doesn't build a loop that it knows."""

    @functools.wraps(stock)
    def run(fn: Any, init: Any, xs: Any, reverse: bool = False) -> Any:
        if isinstance(fn, functools.partial):  # made for one call, with SPMD
            return stock(fn, init, xs, reverse)
        carry, as_carry = scanning.tree_flatten_none(init)
        given, _ = scanning.tree_flatten_none(xs)
        forms = [x if x is None else (x.shape, x.dtype) for x in pytree.tree_leaves((init, xs))]
        key = reverse, *forms, torch_xla.backends.get_mat_mul_precision()
        loops = _loops.setdefault(fn, {})
        loop = loops.get(key)
        if loop is None:
            with _built() as built:
                last, results = stock(fn, init, xs, reverse)
            if found := _loop_of(built, len(carry) + len(given), results):
                loops[key] = found
            return last, results
        device, count = torch_xla.device(), len(given[0])
        empty = [torch.zeros((count, *y), dtype=dtype, device=device) for y, dtype in loop.outputs]
        inputs = (torch.tensor(0, device=device), *carry, *given, *empty)
        made = _XLAC._xla_user_computation("xla::scan", inputs, loop.computation)
        _, last, _, results = scanning.split(made, 1, len(carry), len(given))
        return as_carry(last), loop.unflatten(results)

    return run


def install() -> None:
    _XLAC._xla_user_computation = _noted(_XLAC._xla_user_computation)
    scanning._scan_impl_pytree = _kept(scanning._scan_impl_pytree)
