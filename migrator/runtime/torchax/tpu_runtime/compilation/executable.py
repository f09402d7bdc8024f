"""The programs of a trace, which are recorded to run together with others."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from ..lazy import lazy_graph, lazy_programs
from ..lazy.lazy_arrays import computed, form
from ..lazy.lazy_programs import LazyOperation
from . import lowering


class Executable:
    """A program; its inputs may be lazy, and its results are."""

    def __init__(self, traced: Any, name: str, donated: int) -> None:
        self._traced, self._name, self._donated = traced, name, donated
        self._compiled: Any = None
        self._operation: LazyOperation | None = None

    def __call__(self, *given: Any) -> Any:
        arrays, given_as = jax.tree.flatten(given)
        if self._operation is None:
            self._tree = jax.tree.structure(self._traced.out_info)

            def now(*arrays: Any) -> Any:
                return jax.tree.leaves(self._now(*jax.tree.unflatten(given_as, arrays)))

            # What was compiled for one placement of its inputs can't take another.
            alone = None if lazy_programs.has_placements else now
            self._operation = LazyOperation(
                self._traced.jaxpr, alone, self._donated, name=self._name
            )
        return jax.tree.unflatten(self._tree, lazy_graph.hold(self._operation, arrays))

    def _now(self, *given: Any) -> Any:
        if self._compiled is None:
            self._compiled = lowering.compiled(self._traced, self._name)
        return self._compiled(*given)


class Later:
    """The backward pass of a model's program."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._jitted = jax.jit(function, static_argnums=0)
        self._operations: dict[tuple[int, ...], LazyOperation] = {}  # by the required gradients

    def __call__(self, asked: tuple[int, ...], *given: Any) -> Any:
        arrays, given_as = jax.tree.flatten(given)
        if not lazy_graph.is_recording():
            return self._jitted(asked, *jax.tree.map(computed, given))
        if asked not in self._operations:

            def now(*arrays: Any) -> Any:
                return self._jitted(asked, *jax.tree.unflatten(given_as, arrays))

            traced = jax.make_jaxpr(partial(self._function, asked))(*jax.tree.map(form, given))
            self._operations[asked] = LazyOperation(traced, now)
        lazy_graph.backward()
        return lazy_graph.hold(self._operations[asked], arrays)
