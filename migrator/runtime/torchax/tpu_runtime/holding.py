"""How operators, random numbers, and reads of values work while results are held back.

An operator with a held argument is traced, once for each form of its arguments, and also held.
If it can't be traced, or draws random numbers, it needs the values: they are computed then.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax._src.core import trace_state_clean
from torch.utils import _pytree as pytree
from torchax.ops import mappings
from torchax.tensor import Environment, RuntimeProperty, Tensor

from . import device, gradients, held, modes, report, together, views
from .calls import patch
from .held import computed
from .imported import when_imported
from .inside import is_inside
from .structures import SIMPLE
from .together import Operation

NEEDED_BY = "accelerate transformers trl lightning pytorch_lightning lightning_fabric"

_FRAMEWORKS = ("accelerate", "lightning", "pytorch_lightning", "lightning_fabric")
_STATIC = (*SIMPLE, torch.memory_format, torch.layout)
_MOST = 4096  # forms of operators that are known


class _Refused(Exception):
    """The operator can't be traced."""


class _Followed:
    """An operator that has been traced, for arguments of one form."""

    def __init__(self, env: Environment, call: Callable[[list[Tensor]], Any], arrays: Any) -> None:
        self._env, self._call = env, call
        state = env.param.__dict__
        key = state["prng"]
        try:
            traced = jax.make_jaxpr(self._trace)(*map(held.form, arrays))
        finally:
            draws = state["prng"] is not key
            state["prng"] = key
        if draws:
            raise _Refused
        self._operation = Operation(traced)
        del self._call

    def _trace(self, *arrays: Any) -> list[Any]:
        given = [Tensor(array, self._env) for array in arrays]
        places = {id(tensor): place for place, tensor in enumerate(given)}
        results, self._form = pytree.tree_flatten(self._call(given))
        self._old = [places.get(id(result)) for result in results]  # results that are arguments
        new = [result for result in results if id(result) not in places]
        if any(type(x) is not Tensor or x.__dict__.get("_link") is not None for x in new):
            raise _Refused
        self._written = [n for n, array in enumerate(arrays) if given[n]._elem is not array]
        return [*(x._elem for x in new), *(given[n]._elem for n in self._written)]

    def hold(self, given: list[Tensor]) -> Any:
        """The results for other arguments; writes are applied."""
        arrays = iter(together.hold(self._operation, list(map(views.peek, given))))
        made = [Tensor(next(arrays), self._env) if n is None else given[n] for n in self._old]
        for n in self._written:
            given[n]._elem = next(arrays)
        return pytree.tree_unflatten(made, self._form)


_followed: dict[Any, _Followed | None] = {}

aten = torch.ops.aten
_WITH_NUMBER = {
    aten.mul.Tensor, aten.mul_.Tensor, aten.div.Tensor, aten.div_.Tensor,
    aten.add.Tensor, aten.add_.Tensor, aten.sub.Tensor, aten.sub_.Tensor,
}  # fmt: skip
_CHANGES = object()
_numbers: dict[Any, Any] = {}  # by operator and form: the number it was given, or _CHANGES


def _with_input(env: Environment, function: Any, args: Any) -> Any:
    """The arguments, in which a number that differs from the last call becomes a tensor.

    So it is an input of the program, like a loss times a step's weight.
    """
    if function not in _WITH_NUMBER or type(args[1]) is not float:
        return args
    tensor, number = args
    array = views.peek(tensor)
    if array.dtype not in (jnp.float32, jnp.float64):
        return args
    form = function, array.shape, array.dtype
    if _numbers.setdefault(form, number) == number:
        return args
    if len(_numbers) > _MOST:
        _numbers.clear()
    _numbers[form] = _CHANGES
    return tensor, Tensor(_scalar(repr(number), array.dtype), env)  # 0.0 == -0.0


@functools.lru_cache(64)
def _scalar(number: str, dtype: Any) -> jax.Array:
    with np.errstate(over="ignore"):
        return jnp.asarray(np.asarray(float(number)).astype(dtype))


def _take_apart(value: Any, tensors: list[Any]) -> Any:
    """What an operator's trace depends on in an argument, and the tensors in it."""
    if isinstance(value, Tensor):
        aval = views.peek(value).aval
        tensors.append(value)
        return aval.shape, aval.dtype, aval.weak_type
    if isinstance(value, (tuple, list)):
        return type(value), tuple([_take_apart(item, tensors) for item in value])
    if isinstance(value, (float, complex)):
        return repr(value)  # -0.0 isn't the same number as 0.0
    if isinstance(value, _STATIC):
        return type(value), value
    raise _Refused


def _with(value: Any, tensors: Iterator[Tensor]) -> Any:
    """The argument with other tensors in it."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, (tuple, list)):
        return type(value)([_with(item, tensors) for item in value])
    return value


def _operator(mode: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operator with a held argument; NotImplemented if it needs values."""
    if is_inside() or not together.is_waiting() or not trace_state_clean():
        return NotImplemented
    if not _is_any((*args, *kwargs.values())):
        return NotImplemented
    if function is torch.ops.aten.detach.default:
        return args[0]  # views.py makes the alias
    env, tensors = mode.env, []
    args = _with_input(env, function, args)
    try:
        given = _take_apart(args, tensors), _take_apart(tuple(kwargs.items()), tensors)
    except _Refused:
        return NotImplemented
    key = (
        function, given, env.param.autocast_dtype, torch.get_default_dtype(),
        jax.config.jax_default_matmul_precision, jax.config.jax_enable_x64,
    )  # fmt: skip
    if key not in _followed:
        if len(_followed) > _MOST:
            _followed.clear()
        _followed[key] = _follow(mode, function, types, args, kwargs, tensors)
    followed = _followed[key]
    return NotImplemented if followed is None else followed.hold(tensors)


def _follow(
    mode: Any, function: Any, types: Any, args: Any, kwargs: Any, tensors: list[Tensor]
) -> _Followed | None:
    def call(given: list[Tensor]) -> Any:
        left = iter(given)
        named = {name: _with(value, left) for name, value in kwargs.items()}
        return mode.compute(function, types, _with(args, left), named)

    try:
        return _Followed(mode.env, call, list(map(views.peek, tensors)))
    except Exception:  # if it is the program's own, running it will raise it again
        return None


def _is_any(values: Any) -> bool:
    """Whether some of them, or of the items of their lists, are held."""
    return any(
        _is_any(value) if isinstance(value, (tuple, list))
        else isinstance(value, Tensor) and held.is_any([views.peek(value)])
        for value in values
    )  # fmt: skip


def _is_divided(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether torch splits a function into operators that torchax has in one piece."""
    return gradients.is_shortcut(function) and _is_any((*args, *kwargs.values()))


def _key(param: RuntimeProperty) -> Any:
    key = param.__dict__["prng"] = computed(param.__dict__["prng"])
    return key


def _set_key(param: RuntimeProperty, key: Any) -> None:
    param.__dict__["prng"] = key


def begin(_: Any = None) -> None:
    """Hold results back from here on."""
    if held.is_on:
        return
    patch(held, is_on=True)
    patch(together, record=report.record(together.record.name))
    patch(modes, hold=_operator, is_divided=_is_divided)
    patch(device, before_waiting=together.run)
    patch(RuntimeProperty, prng=property(_key, _set_key))
    patch(
        Tensor,
        shape=property(lambda self: torch.Size(views.peek(self).shape)),
        ndim=property(lambda self: views.peek(self).ndim),
        dtype=property(lambda self: mappings.j2t_dtype(views.peek(self).dtype)),
    )


def install(env: Environment) -> None:
    """Hold results back in programs that import a framework."""
    for name in _FRAMEWORKS:
        when_imported(name, begin)
