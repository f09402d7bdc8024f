"""What a trace has changed in Python, to undo it: variables, attributes, items, leaked tensors."""

import collections
import gc
from collections.abc import Iterable
from types import FunctionType
from typing import Any

import jax
import numpy
import torch
from torchax.tensor import Tensor

from ..tensors.structures import MISSING, is_value
from .closure_variables import ClosureVariables, get_item, set_item

CONTENTS = (list, set, collections.deque)


def equal(value: Any, expected: Any) -> bool:
    """Whether a value is equivalent to the previous one."""
    if type(value) is not type(expected):
        return False
    if isinstance(value, FunctionType):  # created anew from the same code
        return value.__code__ is expected.__code__ and not value.__closure__
    if isinstance(value, set):
        return bool(value == expected)
    if isinstance(value, numpy.ndarray):
        return value.dtype == expected.dtype and numpy.array_equal(value, expected)
    if type(value) in CONTENTS:
        return len(value) == len(expected) and all(
            is_value(v) and equal(v, e) for v, e in zip(value, expected, strict=True)
        )
    return is_value(value) and value == expected and repr(value) == repr(expected)


class Snapshot:
    """The current contents of the holders, to see what a step changes in them, and to undo it."""

    def __init__(self, holders: Iterable[tuple[Any, list[Any] | None, str]]) -> None:
        self._before: list[tuple[Any, Any, str]] = []
        for holder, names, label in holders:
            if isinstance(holder, ClosureVariables):
                holder.refresh()
            if isinstance(holder, list):
                self._before.append((holder, list(holder), label))
            elif names is None:
                self._before.append((holder, dict(holder), label))
            else:
                some = {name: get_item(holder, name, MISSING) for name in names}
                self._before.append((holder, some, label))
        self._all = {id(holder) for holder, names, _ in holders if names is None}

    def changes(self) -> list[tuple[Any, Any, Any, Any, str]]:
        """What has been replaced: holder, name, value before, value now, label."""
        found = []
        for holder, before, label in self._before:
            if isinstance(holder, ClosureVariables):
                holder.refresh()
            if isinstance(holder, list):
                if len(holder) != len(before):
                    found.append((holder, len(before), MISSING, holder, label + "append"))
                before = dict(enumerate(before))
                now: dict[Any, Any] = dict(enumerate(holder))
                names = [name for name in before if name in now]
            elif id(holder) in self._all:
                now, names = holder, [*before, *(name for name in holder if name not in before)]
            else:
                now, names = holder, list(before)
            for name in names:
                old, new = before.get(name, MISSING), get_item(now, name, MISSING)
                if old is not new and not (is_value(old) and equal(new, old)):
                    found.append((holder, name, old, new, f"{label}{name}"))
        return found

    def restore(self) -> None:
        for holder, before, _ in self._before:
            if isinstance(holder, list):
                holder[:] = before
                continue
            for name in [n for n in holder if n not in before] if id(holder) in self._all else ():
                set_item(holder, name, MISSING)
            for name, value in before.items():
                if get_item(holder, name, MISSING) is not value:
                    set_item(holder, name, value)


def _has_tracers(trace: Any) -> bool:
    return any(isinstance(holder, jax.core.Tracer) for holder in gc.get_referrers(trace))


def leaked(trace: Any, older: Iterable[Any]) -> list[Tensor]:
    """Device tensors of JAX's ``trace``, which has ended, that something still holds.

    ``trace``: a weak reference. ``older``: references to tensors that the garbage collector does
    not track.
    """
    # Going through all objects takes ten times as long.
    if trace() is None or not _has_tracers(trace()):
        return []
    gc.collect()

    def is_traced(tensor: Tensor) -> bool:
        array = tensor.__dict__.get("_elem")
        return isinstance(array, jax.core.Tracer) and array._trace is trace()

    found = {id(t): t for t in gc.get_objects() if issubclass(type(t), Tensor)}
    with torch._C.DisableTorchFunction():
        found |= {id(t): t for t in (reference() for reference in older) if t is not None}
    tensors = [t for t in found.values() if is_traced(t)]
    # An alias gets its own values again from its base.
    aliases = [t._elem for t in tensors if t.__dict__.get("_link") is not None]
    del aliases
    kept = [t for t in tensors if is_traced(t)]
    with torch._C.DisableTorchFunction():
        for tensor in kept:  # one that only C++ holds would be freed while an error still names it
            tensor._fix_weakref()
    return kept
