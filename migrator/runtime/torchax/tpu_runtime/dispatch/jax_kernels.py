"""Compiled functions of JAX arrays, as the operators of this package use them.

Eager JAX runs a function of ten operations as ten programs, and `jax.vjp` traces its function in
each call, which takes milliseconds. A kernel is compiled once for each combination of shapes and
other arguments.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

Array = Any  # a jax.Array, or a tracer of one


class _Rest:
    """Everything in a call that isn't an array, as a key that a kernel is compiled for."""

    def __init__(self, tree: Any, values: tuple[Any, ...]) -> None:
        self.tree, self.values = tree, values
        # 1, 1.0 and True are equal, but different arguments.
        self.key = (tree, values, tuple(type(value) for value in values))

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rest) and self.key == other.key


_ARRAY = object()  # replaces an array


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function``; its arguments are arrays, numbers, strings, None, and lists of them."""

    @functools.partial(jax.jit, static_argnums=0)
    def run(rest: _Rest, arrays: list[Array]) -> Any:
        left = iter(arrays)
        leaves = [next(left) if value is _ARRAY else value for value in rest.values]
        args, kwargs = jax.tree_util.tree_unflatten(rest.tree, leaves)
        return function(*args, **kwargs)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs), is_leaf=lambda x: x is None)
        arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
        values = tuple(_ARRAY if isinstance(leaf, jax.Array) else leaf for leaf in leaves)
        return run(_Rest(tree, values), arrays)

    return call


def pull_back(function: Callable[..., Array], inputs: tuple[Array, ...], gradient: Array) -> Any:
    """The gradients of ``function`` by its ``inputs``, for the ``gradient`` of its result."""
    result, back = jax.vjp(function, *inputs)
    return back(gradient.astype(result.dtype))


def masked(gradients: Any, mask: Any) -> tuple[Array | None, ...]:
    """Only the required gradients."""
    return tuple(g if asked else None for g, asked in zip(gradients, mask, strict=True))
