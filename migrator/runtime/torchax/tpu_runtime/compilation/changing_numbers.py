"""Python numbers that change from call to call: the number of an epoch, a weight that is adapted.

A float argument becomes a tensor of one element. An integer may be compared (``if epoch >
warm_up``): the results of the comparisons choose the program, not the number. If code does
anything else with it, each value has its own program. Integer arrays that index tensors become
tensors as well.
"""

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np
import torch
from torchax.tensor import Environment, Tensor

Comparison = tuple[Callable[[Any, Any], Any], Any, Any]  # operator, other operand, result


_INDICES = (np.int64, np.int32, np.bool_)


class Used(Exception):
    """A number is used for something other than a comparison."""


def _comparing(how: Callable[[Any, Any], Any]) -> Any:
    def compare(self: "Number", other: Any) -> Any:
        if type(other) is Number:
            raise Used
        if isinstance(other, torch.Tensor):
            raise Used
        result = how(self._value, other)
        self._log.append((how, other, result))
        return result

    return compare


def _refuse(*_: Any) -> NoReturn:
    raise Used


class Number:
    """An integer of which only the results of comparisons are known."""

    __slots__ = ("_log", "_value")

    def __init__(self, value: int) -> None:
        self._value = value
        self._log: list[Comparison] = []

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # isinstance(epoch, int)
        return int

    def fits(self, comparisons: list[Comparison]) -> bool:
        """Whether another number gives the same results of comparisons."""
        return all(how(self._value, other) == result for how, other, result in comparisons)

    def taken(self) -> list[Comparison]:
        """The comparisons since the last time."""
        log, self._log = self._log, []
        return log

    __lt__, __le__ = _comparing(operator.lt), _comparing(operator.le)
    __gt__, __ge__ = _comparing(operator.gt), _comparing(operator.ge)
    __eq__, __ne__ = _comparing(operator.eq), _comparing(operator.ne)
    __hash__ = __bool__ = __index__ = __int__ = __float__ = __complex__ = _refuse
    __str__ = __repr__ = __format__ = __reduce__ = __reduce_ex__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __divmod__ = __rdivmod__ = __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _refuse
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __round__ = __trunc__ = _refuse
    __floor__ = __ceil__ = __matmul__ = __rmatmul__ = _refuse
    __getattr__ = _refuse


class ChangingArguments:
    """Which arguments of a function are changing numbers."""

    def __init__(self) -> None:
        self._last: dict[Any, Any] = {}
        self._found: set[Any] = set()
        self._by_value: set[Any] = set()

    @property
    def are_there(self) -> bool:
        return bool(self._found)

    def note(self, args: Any, kwargs: Any) -> None:
        """Look for numbers that differ from the call before."""
        for place, value in (*enumerate(args), *kwargs.items()):
            if place in self._by_value:
                continue
            if type(value) is np.ndarray and value.dtype in _INDICES:
                self._found.add(place)
            if type(value) in (int, float):
                if self._last.setdefault(place, value) != value:
                    self._found.add(place)
                self._last[place] = value

    def stand_ins(self, env: Environment, args: Any, kwargs: Any) -> tuple[Any, Any, list[Number]]:
        """The arguments, with tensors and ``Number`` in place of the changing numbers."""
        numbers: list[Number] = []
        if not self._found:
            return args, kwargs, numbers

        def stand_in(place: Any, value: Any) -> Any:
            if place not in self._found:
                return value
            if type(value) is float:
                return Tensor(jnp.asarray(value), env)  # weakly typed, like a Python number
            if type(value) is int:
                numbers.append(Number(value))
                return numbers[-1]
            if type(value) is np.ndarray:
                return torch.from_numpy(value)
            return value

        given = tuple(stand_in(i, value) for i, value in enumerate(args))
        return given, {name: stand_in(name, value) for name, value in kwargs.items()}, numbers

    def give_up(self) -> bool:
        """Use their values again; False if there are none."""
        found, self._found = self._found, set()
        self._by_value |= found
        return bool(found)
