"""The lazy graph: operations are recorded, and computed as one program from one read to the next.

Nothing is computed when an operator, a model or an optimizer is called: its results are lazy
arrays, with shapes and dtypes known from its trace. All that was recorded is computed as one
program

* when a value is read (`item()`, `print`, `.cpu()`, a condition, an operator that can't be traced),
* after an optimizer's step,
* when the next forward pass begins after a backward pass,
* when a model is called again without gradients,
* and when a bound is reached, or much data was moved to the device meanwhile.

The order of the program's statements is never changed: reads see what was written before them.
Results without references are neither computed nor kept.
"""

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax._src.core import trace_state_clean

from ..compilation.compile_state import is_eager
from ..compilation.program_code import caller
from ..profiling import reads_in_steps
from ..profiling.costly_lines import timed
from . import assertions
from .lazy_arrays import Array, LazyArray, computed, form, settled
from .lazy_programs import LazyOperation, Node, compute

LONGEST = 500  # operations, after which a loop without reads is divided where it began
LARGEST = 30_000  # equations of a program
MOVED = 2**30  # bytes moved to the device, after which their use doesn't wait longer
KNOWN = 4096  # functions of arrays that are known


def is_recording() -> bool:
    """Whether operations are recorded here: what JAX traces is part of a program already."""
    return bool(trace_state_clean()) and not is_eager()


class _Recorded(Node):
    """A recorded operation that is computed when one of its results is read."""

    __slots__ = ()

    def compute(self) -> None:
        reads_in_steps.note_read(caller())
        run()


_lock = threading.RLock()
_pending: "list[weakref.ref[Node]]" = []
_first: reads_in_steps.Place | None = None  # where the first of them was called
_total = 0  # their equations
_moved = 0  # bytes
_is_back = False  # whether there is a backward pass among them
_called: set[int] = set()  # ids of models among them that were called without gradients


def hold(
    operation: LazyOperation, arrays: Sequence[Array], place: reads_in_steps.Place | None = None
) -> list[Array]:
    """The results of an operation that is computed later; ``place``: where it was called."""
    global _total, _first
    place = place or caller()
    with _lock:
        if _total + operation.size > LARGEST or _moved > MOVED:
            run()
        elif len(_pending) >= LONGEST and (place == _first or len(_pending) >= 3 * LONGEST):
            run()  # in a loop the same operations again
        if not _pending:
            _first = place
        _total += operation.size
        arrays = list(map(settled, arrays))
        inputs = [(a.node, a.number) if type(a) is LazyArray else a for a in arrays]
        node = _Recorded(operation, inputs, place)
        results: list[Array] = []
        for number, aval in enumerate(operation.avals):
            if number in operation.passed:
                results.append(arrays[operation.passed[number]])
            else:
                results.append(LazyArray(aval, node, number))
                node.results.append(weakref.ref(results[-1]))
        _pending.append(weakref.ref(node))
        return results


_functions: dict[Any, LazyOperation] = {}
_config: Any = jax.config  # its options are no attributes to mypy


def call(key: Any, function: Callable[..., Array], *arrays: Array) -> Array:
    """The result of a function of arrays, computed later unless it is part of a trace.

    ``key`` tells it from others for arrays of the same shapes and dtypes.
    """
    if not is_recording():
        return function(*map(computed, arrays))
    key = key, _config.jax_default_matmul_precision
    forms = tuple([(a.aval.shape, a.aval.dtype, a.aval.weak_type) for a in arrays])
    operation = _functions.get((key, forms))
    if operation is None:
        if len(_functions) > KNOWN:
            _functions.clear()
        operation = LazyOperation(jax.make_jaxpr(function)(*map(form, arrays)), is_operator=True)
        _functions[key, forms] = operation
    return hold(operation, arrays)[0]


_seen: dict[Any, Any] = {}
_CHANGES = object()


def varies(key: Any, value: Any) -> bool:
    """Whether a value differs from that of the last call at this place of the program."""
    if not is_recording():
        return False
    key = key, caller()
    if len(_seen) > KNOWN:
        _seen.clear()
    if _seen.setdefault(key, value) != value:
        _seen[key] = _CHANGES
    return _seen[key] is _CHANGES


def number(value: Any) -> jax.Array:
    """A number as an input of a program, which takes the dtype of arrays that it meets."""
    if not is_recording():  # a constant of the trace, which must not outlive it
        return jnp.asarray(value)
    kind: type = type(value)
    return _number(kind, repr(value))  # 0.0 == -0.0, and 1 == True


@functools.lru_cache(256)
def _number(kind: Any, text: str) -> jax.Array:
    return jnp.asarray(kind(text) if kind is not bool else text == "True")


# ---- what ends a program -------------------------------------------------------------------------


def forward() -> None:
    """A forward pass begins: an earlier one with its backward pass becomes a program of its own."""
    if _is_back:
        run()


def backward() -> None:
    """A backward pass is recorded."""
    global _is_back
    _is_back = True


def is_back() -> bool:
    """Whether a backward pass is recorded."""
    return _is_back


def evaluate(model: object) -> None:
    """A model is called without gradients: an earlier call becomes a program of its own."""
    if id(model) in _called:
        run()
    _called.add(id(model))


def moved(size: int) -> None:
    """So many bytes were moved to the device."""
    global _moved
    _moved += size


def run() -> None:
    """Compute the recorded operations whose results have references."""
    global _is_back, _total, _moved
    with _lock:
        nodes = [node for ref in _pending if (node := ref()) is not None]
        _pending.clear()
        _called.clear()
        _is_back, _total, _moved = False, 0, 0
        if not nodes:
            return
        try:
            if trace_state_clean():
                with timed():
                    compute(nodes)
                assertions.check()
            else:
                with jax.ensure_compile_time_eval():
                    compute(nodes)
        except BaseException:
            _pending[:0] = [weakref.ref(n) for n in nodes if not (n.is_done or n.error)]
            raise
