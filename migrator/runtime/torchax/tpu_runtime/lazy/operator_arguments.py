"""The arguments of an operator, taken apart: what its trace depends on, tensors, and numbers."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torchax.ops import mappings
from torchax.tensor import Environment, Tensor

from ..tensors import views

_STATIC = (
    bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size,
    torch.memory_format, torch.layout,
)  # fmt: skip
aten = torch.ops.aten
# Where an int is a value like a float, and neither a dimension nor a size.
_VALUES = {
    getattr(getattr(aten, name), overload): place
    for names, overload, place in (
        ("mul mul_ add add_ sub sub_ div div_ floor_divide floor_divide_", "Tensor", 1),
        ("remainder remainder_ fmod fmod_ rsub fill fill_ eq ne lt le gt ge", "Scalar", 1),
        ("masked_fill masked_fill_", "Scalar", 2),
    )
    for name in names.split()
    if overload in getattr(aten, name).overloads()
}


class Refused(Exception):
    """The operator can't be traced."""


class Arguments:
    """The arguments of a call, taken apart; Refused if it can't be traced."""

    def __init__(self, env: Environment, function: Any, args: Any, kwargs: Any) -> None:
        self._env, self._value = env, _VALUES.get(function)
        self.args, self.kwargs = args, kwargs
        self.tensors: list[Tensor] = []
        self.numbers: list[Any] = []  # those that may vary
        self._strides: list[Any] = []
        self._places: dict[int, int] = {}
        given = [self._take(value, n == self._value) for n, value in enumerate(args)]
        self.form = tuple(given), tuple([(name, self._take(v)) for name, v in kwargs.items()])

    def _take(self, value: Any, is_value: bool = False) -> Any:
        """What an operator's trace depends on in an argument."""
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if kind is float or (is_value and kind is int):
            self.numbers.append(value)
            return kind
        if kind is tuple or kind is list:
            return kind, tuple([self._take(item) for item in value])
        if kind is complex:
            return repr(value)  # -0.0 isn't the same number as 0.0
        if isinstance(value, _STATIC):
            return kind, value
        raise Refused

    def _tensor(self, value: Any) -> Any:
        place = self._places.setdefault(id(value), len(self.tensors))
        if place < len(self.tensors):
            return place
        if not isinstance(value, Tensor):
            if type(value) is not torch.Tensor or value.dim():
                raise Refused
            value = Tensor(self._env.t2j_copy(value), self._env)  # a number on the CPU
        self.tensors.append(value)
        # How its elements lie in memory: torch's gradient of `linalg.solve` depends on it.
        strides = None if torch.Tensor.is_contiguous(value) else torch.Tensor.stride(value)
        self._strides.append(strides)
        aval = views.peek(value).aval
        return aval.shape, aval.dtype, aval.weak_type, strides

    def stand_ins(self, arrays: Sequence[Any]) -> list[Tensor]:
        """Tensors like those of the call, with other values."""
        return [
            Tensor(array, self._env) if strides is None else self._strided(array, strides)
            for array, strides in zip(arrays, self._strides, strict=True)
        ]

    def _strided(self, array: Any, strides: tuple[int, ...]) -> Tensor:
        made: Any = torch.Tensor._make_wrapper_subclass(
            Tensor, tuple(array.shape), strides=strides, device=torch.device("meta"),
            dtype=mappings.j2t_dtype(array.dtype), requires_grad=False,
        )  # fmt: skip
        made._env, made.__dict__["_elem"] = self._env, array
        return made  # type: ignore[no-any-return]

    def with_others(self, tensors: list[Any], numbers: list[Any]) -> tuple[Any, Any]:
        """The arguments with other tensors and numbers in them."""
        left = iter(numbers)
        args = [self._with(v, tensors, left, n == self._value) for n, v in enumerate(self.args)]
        kwargs = {name: self._with(v, tensors, left) for name, v in self.kwargs.items()}
        return tuple(args), kwargs

    def _with(
        self, value: Any, tensors: list[Any], numbers: Iterator[Any], is_value: bool = False
    ) -> Any:
        if isinstance(value, torch.Tensor):
            return tensors[self._places[id(value)]]
        kind = type(value)
        if kind is float or (is_value and kind is int):
            return next(numbers)
        if kind is tuple or kind is list:
            return kind([self._with(item, tensors, numbers) for item in value])
        return value
