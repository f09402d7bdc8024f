"""Views: a write to a view reaches its base, and a view shows writes to its base.

torchax 0.0.13: the result of `view`, `t`, `select`, `chunk`, `unbind`, iteration, `detach`, `.data`
is a copy, so an in-place write to it is silently lost; only slices made by indexing are views.
Here all of them are linked to their base. JAX arrays never change, so a base holds a new array
after a write, and an alias that finds a new array there recomputes its own value.
"""

import contextlib
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torchax.ops.op_base import InplaceOp
from torchax.ops.ops_registry import Operator
from torchax.tensor import Environment, OperatorNotFound, Tensor
from torchax.view import View

from ..dispatch.calls import Function, is_device_tensor, is_leaf, native, patch
from ..lazy import lazy_graph
from ..lazy.lazy_arrays import LazyArray, computed, settled, stored
from . import view_functions
from .memory_layouts import is_dense
from .tensor_identity import become
from .tensor_storages import place, storage
from .view_functions import IDENTITY, ViewFunction
from .view_links import Array, Link, leave

_META = torch.device("meta")


def alias(parent: Tensor, value: Array, layout: torch.Tensor, view: ViewFunction) -> Tensor:
    """A device tensor with the shape, strides and dtype of ``layout`` and the parent's values."""
    return _shaped_like(layout, layout.dtype, parent, value, view)


def _shaped_like(
    layout: torch.Tensor, dtype: torch.dtype, parent: Tensor, value: Array, view: ViewFunction
) -> Tensor:
    """An alias with torchax's own class: ``torch.nn.Parameter`` requires ``detach`` to keep it."""
    result: Any = torch.Tensor._make_wrapper_subclass(
        Tensor,
        layout.size(),
        strides=torch.Tensor.stride(layout),
        storage_offset=torch.Tensor.storage_offset(layout),
        dtype=dtype,
        device=_META,
        requires_grad=False,
    )
    result._env = parent._env
    result.__dict__["_elem"] = value
    result.__dict__["_link"] = Link(parent, view, peek(parent))
    return result  # type: ignore[no-any-return]


# Called with every tensor whose values are read or replaced (by a trace).
watchers: list[Callable[[Tensor], None]] = []


def _get_elem(self: Tensor) -> Array:
    array = peek(self)
    if type(array) is LazyArray:
        array = self.__dict__["_elem"] = computed(array)
    return array


def peek(self: Tensor) -> Array:
    """The values of a tensor, or their placeholder while they are held."""
    state = self.__dict__
    link = state.get("_link")
    if (
        link is not None
        and link.view is IDENTITY
        and sys.getrefcount(link.parent) == 2
        and link.parent._use_count() == 1  # C++ may hold it, as a parameter's gradient
    ):
        # Nothing else holds the base, like the data from which nn.Parameter(data) was made: two
        # tensors with the same array keep a compiled step from reusing its memory.
        base = link.parent.__dict__
        if base.get("_link") is None:
            state["_elem"] = base["_elem"]
            link = state["_link"] = None
    for watcher in watchers:
        watcher(self)
    if link is not None:
        if not isinstance(link.parent, Tensor):
            raise RuntimeError("the tensor that this one shares values with has left the device")
        base, link.seen = peek(link.parent), settled(link.seen)
        if base is not link.seen:
            if base.shape != link.seen.shape or base.dtype != link.seen.dtype:
                raise RuntimeError("the base of this view has changed its shape or type in place")
            value = link.view.of(base)
            if isinstance(value, jax.core.Tracer) and not isinstance(base, jax.core.Tracer):
                with jax.ensure_compile_time_eval():  # for a base that isn't part of the trace
                    value = link.view.of(base)
            state["_elem"], link.seen = value, base
    return stored(self)


def _set_elem(self: Tensor, value: Array) -> None:
    _replace(self, value, counted=True)


def _replace(self: Tensor, value: Array, *, counted: bool) -> None:
    """Replace the values of a tensor, and those of the base that it is an alias of.

    Autograd raises if it needs the old ones and was told. C++ tells it about writes by operators,
    but not about those that reach a tensor through an alias, nor about those by Python functions.
    Writes through `.data` aren't ``counted``, as far as it reaches.
    """
    state = self.__dict__
    link = state.get("_link")
    if link is not None:
        old = peek(self)
        if not is_dense(self):
            raise RuntimeError("in-place write to elements that are shared: clone() it first")
        like = hasattr(value, "dtype") and (value.shape, value.dtype) == (old.shape, old.dtype)
        if not like:
            value = _like(value, old.shape, old.dtype)
        counted = counted and link.counted
        _replace(link.parent, link.view.written(peek(link.parent), value), counted=counted)
        if counted:
            count_write(link.parent)
            if (origin := link.origin and link.origin()) is not None:
                count_write(origin)
        link.seen = peek(link.parent)
    elif "_elem" in state:
        for watcher in watchers:
            watcher(self)
    state["_elem"] = value


def _like(value: Any, shape: Any, dtype: Any) -> Array:
    """A value to be written, with the form of what it replaces."""

    def convert(array: Array) -> Array:
        return jnp.broadcast_to(array, shape).astype(dtype)

    return lazy_graph.call(("like", shape, dtype), convert, as_array(value))


def as_array(value: Any) -> Array:
    return value if type(value) is LazyArray else jnp.asarray(value)


def count_write(tensor: Tensor) -> None:
    """Tell autograd that ``tensor`` has been written to."""
    torch._C._increment_version((tensor,))


def layout_of(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor with the strides and the offset that torch would give ``tensor``."""
    on_meta = {"dtype": tensor.dtype, "device": "meta"}
    size, strides = tensor.size(), torch.Tensor.stride(tensor)
    if not (offset := torch.Tensor.storage_offset(tensor)) or not tensor.numel():
        return native(torch.empty_strided, (size, strides), on_meta)  # type: ignore[no-any-return]
    places = offset + 1 + sum((n - 1) * step for n, step in zip(size, strides, strict=True))
    memory = native(torch.empty, (places,), on_meta)
    return native(torch.as_strided, (memory, size, strides, offset), {})  # type: ignore[no-any-return]


def same(tensor: Tensor) -> Tensor:
    """An alias of the whole tensor, detached from autograd: the result of `detach` and `.data`."""
    with torch._C.DisableTorchFunction():
        dtype, value = tensor.dtype, peek(tensor)
        _cut_off(tensor)
        link = tensor.__dict__.get("_link")
        if link is None:
            return _shaped_like(tensor, dtype, tensor, value, IDENTITY)
        result = _shaped_like(tensor, dtype, link.parent, value, link.view)
        if not is_leaf(tensor):  # a module's parameters can't be moved while referenced
            result.__dict__["_link"].origin = weakref.ref(tensor)
        return result


def _cut_off(tensor: Tensor) -> None:
    """Give a tensor that has a graph a base without one, for its aliases to hold. Natively.

    The graph may hold them, as `exp` saves its result for the gradient: that would be a cycle
    that is never freed.
    """
    if tensor.__dict__.get("_link") is None and tensor.grad_fn is not None:
        base = Tensor(peek(tensor), tensor._env)
        tensor.__dict__["_link"] = Link(base, IDENTITY, peek(base))


def data(tensor: Tensor) -> Tensor:
    """The result of `.data`: like `detach`, but a gradient computed from old values is no error."""
    result = same(tensor)
    result.__dict__["_link"].counted = False
    return result


def link(
    env: Environment, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    compute: Callable[[], Any],
) -> Any:  # fmt: skip
    """The result of the ATen view operator ``func``, which shares its values with ``args[0]``;
    ``compute`` gives it where it is a copy in torch, too."""
    parent = args[0]
    if func is torch.ops.aten.detach.default and isinstance(parent, Tensor):
        return same(parent)
    layout = layout_of(parent)
    made, refusal = _on_meta(func, (layout, *args[1:]), kwargs)
    if refusal is not None:  # torchax may support it
        with contextlib.suppress(Exception):
            return compute()
        raise refusal
    shapes = [*made] if isinstance(made, (list, tuple)) else [made]
    memory = layout.untyped_storage()._cdata
    if not isinstance(parent, Tensor) or any(s.untyped_storage()._cdata != memory for s in shapes):
        return compute()
    functions = view_functions.of_operator(env, func, layout, args[1:], kwargs, shapes)
    results = [
        alias(parent, view.of(peek(parent)), shape, view)
        for view, shape in zip(functions, shapes, strict=True)
    ]
    return type(made)(results) if isinstance(made, (list, tuple)) else results[0]


def _on_meta(func: Any, args: Any, kwargs: Any) -> tuple[Any, Exception | None]:
    """The result of an operator on tensors without values, or torch's error."""
    try:
        return native(func, args, kwargs), None
    except (RuntimeError, NotImplementedError) as refusal:
        return None, refusal.with_traceback(None)


def link_part(tensor: Tensor, index: Tensor) -> Tensor:
    """`tensor[index]` for a device tensor that holds an int: torch would read its value."""
    layout = layout_of(tensor)
    view = view_functions.select_view(layout, 0, peek(index))
    return alias(tensor, view.of(peek(tensor)), native(layout.select, (0, 0), {}), view)


def part_backward(gradient: Tensor, sizes: Any, function: Any, *args: Any) -> Tensor:
    """The gradient of a view's base, from that of `base.select(…)` or `base.slice(…)`."""
    shape = tuple(sizes)
    layout = native(torch.empty, (shape,), {"device": "meta"})
    [view] = view_functions.of_operator(gradient._env, function, layout, args, {}, [])
    array = peek(gradient)
    nothing = lazy_graph.call(("zeros", shape), lambda a: jnp.zeros(shape, a.dtype), array)
    return Tensor(view.written(nothing, array), gradient._env)


def array_of(env: Environment, tensor: Any) -> Array:
    """The values of a tensor on either device."""
    return tensor.jax() if is_device_tensor(tensor) else env.t2j_copy(tensor)


def _copy_(destination: Any, source: Any, non_blocking: bool = False) -> Any:
    """`destination.copy_(source)`: torchax 0.0.13 gives the destination the source's shape."""
    if not is_device_tensor(destination):
        return native(torch.Tensor.copy_, (destination, source.torch()), {})
    env = destination._env
    array = array_of(env, source)
    if isinstance(destination, View):
        destination.update(jnp.broadcast_to(array, tuple(destination.shape)))
        return destination
    old = destination._elem
    try:
        value = jnp.broadcast_to(array, old.shape)
    except ValueError as error:
        raise RuntimeError(
            f"cannot copy shape {tuple(array.shape)} into shape {tuple(old.shape)}"
        ) from error
    destination._elem = value.astype(old.dtype)
    return destination


def set_data(self: Tensor, value: torch.Tensor) -> None:
    """`self.data = value`: both share later writes to either."""
    old, array = peek(self), peek(value) if isinstance(value, Tensor) else None
    if array is None or (array.shape, array.dtype) != (old.shape, old.dtype):
        # C++ keeps a tensor's shape and dtype, which can only change with new contents
        leave(self)
        become(self, value)
    elif isinstance(array, jax.core.Tracer) or _rests(value, self):
        self._elem = array
    else:
        for watcher in watchers:
            watcher(self)
        leave(self)
        held: Any = value
        known = held.__dict__.get("_link") or Link(held, IDENTITY, array)
        self.__dict__["_link"] = replace(known, seen=peek(known.parent), counted=False, origin=None)
        self.__dict__["_elem"] = array


def _rests(tensor: Any, base: Tensor) -> bool:
    """Whether ``tensor`` is ``base``, or an alias of it."""
    while tensor is not base and (link := tensor.__dict__.get("_link")) is not None:
        tensor = link.parent
    return tensor is base


def _reshape_in_place(name: str) -> Function:
    """`x.transpose_(0, 1)` and the like.

    torchax 0.0.13 changes the array's shape and leaves C++ with the old one.
    """

    def change(tensor: Any, *args: int) -> Any:
        return _change_shape(tensor, name, args)

    return change


def _change_shape(tensor: Any, name: str, args: tuple[int, ...]) -> Any:
    old, former = peek(tensor), leave(tensor)
    there: Callable[[Array], Array]
    back: Callable[[Array], Array]
    with torch._C.DisableTorchFunction():
        native(getattr(torch.Tensor, name), (tensor, *args), {})
    before, shape = old.shape, tuple(torch.Tensor.size(tensor))
    if name in ("squeeze_", "unsqueeze_"):
        there, back = (lambda a: a.reshape(shape)), (lambda a: a.reshape(before))
    else:
        dims = args or ((0, 1) if old.ndim == 2 else (0, 0))
        there = back = lambda a: a.swapaxes(*dims) if a.ndim else a
    link, state = tensor.__dict__.get("_link"), tensor.__dict__
    key = name, args, before
    if link is not None:
        state["_link"] = replace(link, view=link.view.then(key, there, back))
    elif former is not None:
        state["_link"] = Link(former, IDENTITY.then(key, there, back), old)
    state["_elem"] = lazy_graph.call(("there", key), there, old)
    return tensor


def _derived(env: Environment, lookup: Callable[[Any], Operator]) -> Callable[[Any], Operator]:
    """Find `x.round_()` and others, which torchax 0.0.13 lacks, as writes of `x.round()`."""

    def find(function: Any) -> Operator:
        try:
            return lookup(function)
        except OperatorNotFound:
            packet = getattr(function, "overloadpacket", function)
            name = getattr(packet, "__name__", "")
            out_of_place = getattr(torch.ops.aten, name[:-1], None)
            if not isinstance(packet, torch._ops.OpOverloadPacket) or out_of_place is None:
                raise
            if not name.endswith("_") or name.startswith("_") or name.endswith("__"):
                raise
            first = getattr(out_of_place, out_of_place.overloads()[0])._schema.arguments[0]
            of_n = first.name == "n"  # polygamma
            write = InplaceOp((lambda x, n: out_of_place(n, x)) if of_n else out_of_place)
            env._ops[packet] = Operator(
                packet, write, is_jax_function=False, is_user_defined=True, needs_env=False,
                is_view_op=True,
            )  # fmt: skip
            return lookup(function)

    return find


def install(env: Environment) -> None:
    """Replace torchax's copying views and its writes."""
    for name in ("squeeze_", "unsqueeze_", "transpose_", "t_"):
        packet = getattr(torch.ops.aten, name)
        env._ops[packet] = Operator(
            packet, _reshape_in_place(name), is_jax_function=False, is_user_defined=True,
            needs_env=False, is_view_op=True,
        )  # fmt: skip
    copy_ = torch.ops.aten.copy_
    env._ops[copy_] = Operator(
        copy_, _copy_, is_jax_function=False, is_user_defined=True, needs_env=False,
        is_view_op=True,
    )  # fmt: skip
    patch(
        Tensor,
        _elem=property(_get_elem, _set_elem),
        detach=same,
        data=property(data, set_data),
        data_ptr=place,
        untyped_storage=storage,
    )
    env.__dict__["_get_op_or_decomp"] = _derived(env, env._get_op_or_decomp)
