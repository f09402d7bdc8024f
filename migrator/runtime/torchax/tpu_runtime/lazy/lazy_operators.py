"""How operators, random numbers, and reads of values work while operations are recorded.

An operator is traced, once for each form of its arguments, and recorded (lazy_graph.py). A number
among them that changes becomes an input. What can't be traced needs the values: they are computed
then.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import torch
from jax._src.interpreters.partial_eval import dce_jaxpr
from jax.extend.core import ClosedJaxpr
from torch.utils import _pytree as pytree
from torchax.ops import mappings
from torchax.tensor import Environment, RuntimeProperty, Tensor

from .. import device
from ..compilation.program_code import caller
from ..compilation.side_effects import cpu_draws_undone
from ..dispatch.calls import is_leaf, natively, patch
from ..profiling import costly_lines
from ..profiling.reads_in_steps import Place
from ..tensors import views
from ..tensors.tensor_storages import root
from . import assertions, lazy_graph
from .lazy_arrays import computed, form
from .lazy_numbers import as_arrays, as_tensors, out_of_place, varying
from .lazy_programs import LazyOperation
from .operator_arguments import Arguments, Refused

_MOST = 4096  # forms of operators that are known
_PLACES = 64  # of which the numbers of one are known
aten = torch.ops.aten


_NOTHING = -1  # in place of a number of an argument


class _Traced:
    """An operator that has been traced, for arguments of one form."""

    def __init__(
        self,
        env: Environment,
        call: Callable[..., Any],
        given: Arguments,
        numbers: list[Any],
        convert: Callable[[Any], Any] | None,
    ) -> None:
        self._env, self._call, self._given, self._numbers = env, call, given, given.numbers
        self._convert = convert
        self._n = len(given.tensors)
        state = env.param.__dict__
        key = state["prng"]
        arrays = [*map(views.peek, given.tensors), *numbers]
        env.t2j_copy = _refuse  # type: ignore[method-assign]  # its values may be others next time
        try:
            with cpu_draws_undone(Refused()):  # they would be the same in each call
                traced = jax.make_jaxpr(self._trace)(form(key), *map(form, arrays))
        finally:
            state["prng"] = key
            del env.t2j_copy, self._call, self._given, self._numbers, self._convert
        outputs = [True] * (len(traced.out_avals) - 1) + [self._draws]
        inputs = [self._draws, *[True] * len(arrays)]
        jaxpr, _ = dce_jaxpr(traced.jaxpr, outputs, inputs)
        self._operation = LazyOperation(ClosedJaxpr(jaxpr, traced.consts), is_operator=True)
        self.avals = self._operation.avals

    def _trace(self, key: Any, *arrays: Any) -> list[Any]:
        state = self._env.param.__dict__
        state["prng"] = key
        tensors = self._given.stand_ins(arrays[: self._n])
        numbers: list[Any] = self._numbers
        if len(arrays) > self._n:
            numbers = list(map(varying, numbers, arrays[self._n :]))
        places = {id(tensor): place for place, tensor in enumerate(tensors)}
        called = self._call(*self._given.with_others(tensors, numbers), self._convert)
        results, self._form = pytree.tree_flatten(called)
        # Results that are arguments, or None, which a gradient is that wasn't asked for.
        self._old = [_NOTHING if x is None else places.get(id(x)) for x in results]
        new = [x for x in results if x is not None and id(x) not in places]
        if any(type(x) is not Tensor for x in new) or _share([*tensors, *new]):
            raise Refused
        self._written = [n for n, x in enumerate(tensors) if x._elem is not arrays[n]]
        if any(tensors[n]._elem.shape != arrays[n].shape for n in self._written):
            raise Refused
        self._draws = state["prng"] is not key
        return [*(x._elem for x in new), *(tensors[n]._elem for n in self._written), state["prng"]]

    def record(self, tensors: list[Tensor], numbers: list[Any], place: Place | None) -> Any:
        """The results for other arguments; writes are applied."""
        state, arrays = self._env.param.__dict__, [*map(views.peek, tensors), *numbers]
        if self._draws:
            arrays.insert(0, state["prng"])
        found = lazy_graph.hold(self._operation, arrays, place)
        if self._draws:
            state["prng"] = found[-1]
        left = iter(found)
        given = [*tensors, None]
        made = [Tensor(next(left), self._env) if n is None else given[n] for n in self._old]
        for n in self._written:
            tensors[n]._elem = next(left)
        return pytree.tree_unflatten(made, self._form)


def _refuse(*_: Any) -> Any:
    raise Refused


class _Form:
    """What is known of an operator for arguments of one form, whatever numbers are among them."""

    def __init__(self) -> None:
        self._fixed: dict[Any, _Traced | None] = {}  # by the numbers
        self._varying: _Traced | None = None
        self._may_vary = True
        self._last: dict[Place | None, Any] = {}  # the numbers of the last call at a place

    def record(
        self, env: Environment, call: Callable[..., Any], given: Arguments, place: Place | None
    ) -> Any:
        """The results of a call; NotImplemented if it needs values."""
        if not given.numbers:
            traced = self._traced(env, call, given, ())
        elif self._varying is not None:
            return self._varying.record(given.tensors, _arrays(given.numbers), place)
        else:
            key = tuple(map(repr, given.numbers))  # -0.0 isn't the same number as 0.0
            traced = self._traced(env, call, given, key)
            if traced is not None and self._has_changed(key, place):
                self._vary(env, call, given, traced)
                return self.record(env, call, given, place)
        return NotImplemented if traced is None else traced.record(given.tensors, [], place)

    def _traced(self, env: Environment, call: Any, given: Arguments, key: Any) -> _Traced | None:
        if key not in self._fixed:
            self._fixed[key] = _try(env, call, given, [], None)
        return self._fixed[key]

    def _has_changed(self, key: Any, place: Place | None) -> bool:
        if len(self._last) > _PLACES:
            self._last.clear()
        return self._may_vary and self._last.setdefault(place, key) != key

    def _vary(self, env: Environment, call: Any, given: Arguments, fixed: _Traced) -> None:
        """Let the numbers be inputs, if the results keep their shapes and dtypes."""
        self._may_vary = False
        for convert in (as_arrays, as_tensors):
            traced = _try(env, call, given, _arrays(given.numbers), convert)
            if traced is not None and traced.avals == fixed.avals:
                self._varying = traced
                return


def _try(
    env: Environment,
    call: Callable[..., Any],
    given: Arguments,
    numbers: list[Any],
    convert: Callable[[Any], Any] | None,
) -> _Traced | None:
    """The traced operator; ``convert``: what the numbers become that vary."""
    try:
        return _Traced(env, call, given, numbers, convert)
    except Exception:  # if it is the program's own, running it will raise it again
        return None


def _arrays(numbers: list[Any]) -> list[jax.Array]:
    return list(map(lazy_graph.number, numbers))


_forms: dict[Any, _Form] = {}
_config: Any = jax.config  # its options are no attributes to mypy


def _record(mode: Any, function: Any, args: Any, kwargs: Any, call: Callable[..., Any]) -> Any:
    env = mode.env
    try:
        given = Arguments(env, function, args, kwargs)
    except Refused:
        return NotImplemented
    if len(given.tensors) > 1 and function in _IN_TURN and _share(given.tensors):
        return NotImplemented
    if lazy_graph.is_back() and _begins_forward(given.tensors):
        lazy_graph.forward()
    state, config = env.param.__dict__, _config
    key = (
        function, given.form, state["autocast_dtype"], state["prng"].dtype,
        torch.get_default_dtype(),
        config.jax_default_matmul_precision, config.jax_enable_x64,
    )  # fmt: skip
    known = _forms.get(key)
    if known is None:
        if len(_forms) > _MOST:
            _forms.clear()
        known = _forms[key] = _Form()
    return known.record(env, call, given, caller())


# Operators that write to several tensors, one after another.
_IN_TURN = {
    getattr(getattr(aten, name), overload)
    for name in dir(aten)
    if name.startswith(("_foreach_", "_fused_"))
    for overload in getattr(aten, name).overloads()
}


def _share(tensors: list[Tensor]) -> bool:
    return len(set(map(root, tensors))) < len(tensors)


def _begins_forward(tensors: list[Tensor]) -> bool:
    """Whether a forward pass begins here, with a parameter: it goes on with its own results, and a
    mean of those may come behind its backward pass."""
    if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
        return False
    with natively():
        return any(tensor.requires_grad and is_leaf(tensor) for tensor in tensors)


_NOT_RECORDED = {
    aten.new_empty_strided.default,  # computed by others that are recorded
    # `output_size=` is compared with the repeats.
    aten.repeat_interleave.Tensor, torch.repeat_interleave, torch.Tensor.repeat_interleave,
}  # fmt: skip


_PARTS = {
    aten.select_backward.default: aten.select.int,
    aten.slice_backward.default: aten.slice.Tensor,
}


def _write(tensors: list[Tensor], written: list[Tensor]) -> None:
    for tensor, values in zip(tensors, written, strict=True):
        tensor._elem = values._elem.astype(tensor._elem.dtype)


@functools.cache
def _moves(function: Any) -> bool:
    """Whether it changes where values are, not the values, like `t_`."""
    return torch.Tag.inplace_view in function.tags


def hold(mode: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """The results of an operator that is recorded; NotImplemented if it needs values."""
    is_read = function is aten._local_scalar_dense.default
    if is_read and type(args[0]) is Tensor:
        value = assertions.assumed(args[0], views.peek(args[0]))
        if value is not None:
            return value
    if function in _NOT_RECORDED or not lazy_graph.is_recording():
        return NotImplemented
    if is_read:
        costly_lines.note_read(args[0])
        return args[0].jax().item()
    if _moves(function):
        return NotImplemented
    device = kwargs.get("device")
    if device is not None and device.type == "cpu":
        return NotImplemented
    if (view := _PARTS.get(function)) is not None and isinstance(args[0], Tensor):
        return views.part_backward(*args[:2], view, *args[2:])

    def call(args: Any, kwargs: Any, convert: Callable[[Any], Any] | None) -> Any:
        if convert is None or not function._schema.is_mutable:
            return mode.compute(function, types, args, kwargs, convert)
        written = mode.compute(out_of_place(function), types, args, kwargs, convert)
        if isinstance(written, Tensor):
            _write([args[0]], [written])
            return args[0]
        return _write(args[0], written)

    return _record(mode, function, args, kwargs, call)


def hold_function(
    mode: Any, function: Any, args: Any, kwargs: Any, stock: Callable[..., Any]
) -> Any:
    """The same for a function that torchax computes in one piece, or that creates a tensor."""
    if function in _NOT_RECORDED or not lazy_graph.is_recording():
        return NotImplemented
    options = {name: value for name, value in kwargs.items() if name != "requires_grad"}

    def call(args: Any, kwargs: Any, convert: Callable[[Any], Any] | None) -> Any:
        if convert is not None:
            raise Refused
        return stock(function, (), args, dict(kwargs))

    made = _record(mode, function, args, options, call)
    if made is not NotImplemented and kwargs.get("requires_grad"):
        with natively():
            torch._C.TensorBase.requires_grad_(made)
    return made


def _key(param: RuntimeProperty) -> Any:
    key = param.__dict__["prng"] = computed(param.__dict__["prng"])
    return key


def _set_key(param: RuntimeProperty, key: Any) -> None:
    param.__dict__["prng"] = key


def _is_plain(values: Any) -> bool:
    """Whether NumPy has the values of a tensor as they are."""
    return (
        type(values) is torch.Tensor
        and values.device.type == "cpu"
        and values.layout is torch.strided
        and values.dtype not in mappings.NUMPY_UNSUPPORTED_DTYPES
        and not (values.requires_grad or values.is_conj() or values.is_neg())
        and values.is_contiguous()
    )


def _counted(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Moving values to the device: recorded operations keep them there until they are computed.

    torchax asks a tensor six things on the way, each of which is a call of torch.
    """

    def t2j_copy(env: Environment, values: Any) -> Any:
        with torch._C.DisableTorchFunction():
            plain = values.numpy() if _is_plain(values) else None
        array = stock(env, values) if plain is None else jax.numpy.asarray(plain)
        lazy_graph.moved(getattr(array, "nbytes", 0))
        return array

    return t2j_copy


def install(env: Environment) -> None:
    """Record operators from here on."""
    patch(Environment, t2j_copy=_counted(Environment.t2j_copy))
    patch(device, before_waiting=lazy_graph.run)
    patch(RuntimeProperty, prng=property(_key, _set_key))
    patch(
        Tensor,
        shape=property(lambda self: torch.Size(views.peek(self).shape)),
        ndim=property(lambda self: views.peek(self).ndim),
        dtype=property(lambda self: mappings.j2t_dtype(views.peek(self).dtype)),
    )
