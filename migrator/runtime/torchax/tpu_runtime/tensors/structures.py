"""Splits Python values into the tensors in them, and a key for everything else.

Values with equal keys run the same program, with their own tensors. Lists, tuples, dicts and plain
objects with tensors are compared by contents, so each call may create new ones. Other objects count
by identity.
"""

import argparse
import collections
import sys
import types
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torchax.tensor import Tensor

from ..compilation.bytecode_names import NONE, BytecodeNames
from ..compilation.changing_numbers import Number
from ..dispatch.calls import is_device_tensor, is_leaf
from .views import peek

SIMPLE = (
    bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size,
)  # fmt: skip
_LONG = 1024  # a longer list counts by identity
_DEPTH = 3  # of objects in objects
_PLAIN = (argparse.Namespace, types.SimpleNamespace, collections.UserDict)
_OURS = __name__.partition(".")[0]
_LIBRARIES = frozenset({*sys.stdlib_module_names, "jax", "jaxlib", "torch", "torchax", _OURS})


class Identity:
    """An object as part of a key, by identity. The key keeps it alive, so its id stays unique."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class _Missing:
    """For comparison: its instances are as large as objects with nothing but attributes."""


MISSING: Any = _Missing()


def is_plain(value: Any) -> bool:
    """Whether ``value`` is an object of the user's that consists of its attributes only."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    return (
        kind.__basicsize__ == _Missing.__basicsize__
        and kind.__module__.partition(".")[0] not in _LIBRARIES
        and isinstance(getattr(value, "__dict__", None), dict)
        and not isinstance(value, (type, torch.nn.Module, torch.optim.Optimizer))
    )


def is_ours(value: Any) -> bool:
    """Whether it is an object of this package, like another step."""
    return type(value).__module__.partition(".")[0] == _OURS


def is_value(value: Any) -> bool:
    """Whether it counts by equality rather than identity."""
    if type(value) in (tuple, frozenset):
        return all(map(is_value, value))
    return isinstance(value, SIMPLE)


def tensor_key(tensor: Any) -> Any:
    """The part of a key for a tensor: what a program depends on besides its values."""
    on_device = is_device_tensor(tensor)
    shape = peek(tensor).shape if isinstance(tensor, Tensor) else tuple(tensor.shape)
    leaf = tensor.requires_grad and is_leaf(tensor)
    return shape, tensor.dtype, on_device, leaf, leaf and tensor.grad is None


class Structure:
    """One value; ``names`` are the relevant attributes of objects without tensors.

    To be created under `DisableTorchFunction`: otherwise each tensor attribute takes 20 µs.
    """

    __slots__ = ("held", "key", "parts", "rebuild", "tensors", "value")

    def __init__(
        self,
        value: Any,
        names: BytecodeNames = NONE,
        by_identity: Container[int] = (),
        depth: int = _DEPTH,
    ) -> None:
        self.value = value
        self.tensors: list[torch.Tensor] = []
        self.parts: list[tuple[Any, Any, Structure]] = []  # holder, name or index, value
        self.rebuild: Callable[[list[Any]], Any] | None = None  # for immutable values
        self.held: list[Any] = []  # objects that count by identity
        self.key = self._look(value, names, by_identity, depth)

    def _look(
        self, value: Any, names: BytecodeNames, by_identity: Container[int], depth: int
    ) -> Any:
        if type(value) is Number:
            return Number
        if isinstance(value, SIMPLE):
            return type(value), value
        if isinstance(value, torch.Tensor):
            if isinstance(value, torch.nn.Parameter) or id(value) in by_identity:
                return self._hold(value)
            self.tensors.append(value)
            return tensor_key(value)
        kind = type(value)
        rest = (names, by_identity)
        if isinstance(value, dict) and len(value) <= _LONG:
            keys = self._take(value, value.items(), *rest, depth)
            return (kind, _is_known(kind) or Identity(value), tuple(map(_hashable, value)), keys)
        if isinstance(value, list) and len(value) <= _LONG:
            return kind, _is_known(kind) or Identity(value), self._take(
                value, enumerate(value), *rest, depth
            )  # fmt: skip
        if kind is tuple and len(value) <= _LONG:
            self.rebuild = tuple
            return kind, self._take(value, enumerate(value), *rest, depth)
        if kind in pytree.SUPPORTED_NODES or pytree.is_namedtuple_instance(value):
            inside, spec = pytree.tree_flatten(value, is_leaf=lambda item: item is not value)
            self.rebuild = lambda parts: pytree.tree_unflatten(parts, spec)
            return kind, repr(spec), self._take(value, enumerate(inside), *rest, depth)
        if depth and is_plain(value):
            keys = self._take(vars(value), vars(value).items(), *rest, depth - 1)
            if self.tensors:
                return kind, tuple(vars(value)), keys
            pairs = zip(vars(value).items(), keys, strict=True)
            named = [key for (name, item), key in pairs if names.matter(name, item)]
            return Identity(value), tuple(named)
        found = [(n, getattr(value, n, None)) for n in _slots(kind)]
        slots = [n for n, item in found if is_value(item) and names.matter(n, item)]
        if slots:
            return self._hold(value), tuple((n, getattr(value, n, None)) for n in slots)
        return self._hold(value)

    def _hold(self, value: Any) -> Identity:
        self.held.append(value)
        return Identity(value)

    def _take(
        self, holder: Any, items: Any, names: BytecodeNames, by_identity: Container[int],
        depth: int,
    ) -> tuple[Any, ...]:  # fmt: skip
        for name, item in items:
            part = Structure(item, names, by_identity, depth)
            self.parts.append((holder, name, part))
            self.tensors += part.tensors
            self.held += part.held
        return tuple([part.key for _, _, part in self.parts])

    def with_tensors(
        self, others: Mapping[int, torch.Tensor], put: Callable[[Any, Any, Any], None]
    ) -> Any:
        """The value with other tensors in it; ``put(holder, name, value)`` changes lists, dicts
        and objects, other values with tensors are created anew."""
        if not self.tensors:
            return self.value
        if isinstance(self.value, torch.Tensor):
            return others[id(self.value)]
        parts = [part.with_tensors(others, put) for _, _, part in self.parts]
        if self.rebuild is not None:
            return self.rebuild(parts)
        for (holder, name, part), value in zip(self.parts, parts, strict=True):
            if value is not part.value:
                put(holder, name, value)
        return self.value

    def objects(self, place: tuple[int, ...] = ()) -> Iterator[tuple[Any, tuple[int, ...]]]:
        """The plain objects with tensors in the value, with their places: see `at`."""
        if self.tensors and is_plain(self.value):
            yield self.value, place
        for number, (_, _, part) in enumerate(self.parts):
            yield from part.objects((*place, number))

    def within(self) -> Iterator[tuple[Any, Any, "Structure"]]:
        """All nested parts: holder, name or index, value."""
        for found in self.parts:
            yield found
            yield from found[2].within()

    def at(self, place: tuple[int, ...]) -> Any:
        """The value at a place."""
        part = self
        for number in place:
            part = part.parts[number][2]
        return part.value

    def has_slots(self) -> bool:
        """Whether it is an object with relevant attributes, but no dict of them."""
        return bool(self.held) and self.value is self.held[0] and not isinstance(self.key, Identity)

    def holders(self) -> Iterator[Any]:
        """The lists and dicts in the value, which other code could change."""
        if self.parts and self.rebuild is None:
            yield self.parts[0][0]
        elif isinstance(self.value, (list, dict)):
            yield self.value
        for _, _, part in self.parts:
            yield from part.holders()


def _slots(kind: type) -> Iterator[str]:
    if kind.__module__.partition(".")[0] not in _LIBRARIES:
        for base in kind.__mro__:
            slots = vars(base).get("__slots__", ())
            yield from (slots,) if isinstance(slots, str) else slots


def _is_known(kind: type) -> bool:
    """Whether a list or dict of this class consists of its items only."""
    return (
        kind in (list, dict, collections.OrderedDict, collections.defaultdict)
        or kind in pytree.SUPPORTED_NODES
    )


def _hashable(key: Any) -> Any:
    return key if is_value(key) else Identity(key)
