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
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp
from jax._src.core import jaxpr_as_fun, jaxprs_in_params, trace_state_clean
from jax.extend.core import ClosedJaxpr, Literal

from . import report
from .inside import is_eager
from .lazy_arrays import Array, LazyArray, computed, form, settled
from .lowering import compiled as _compiled
from .watch import is_library, line_at

MOST = 128  # programs kept
LONGEST = 500  # operations, after which a loop without reads is divided where it began
LARGEST = 30_000  # equations of a program
UNUSED = 3  # programs that only ran once, after which new ones must occur twice
MOVED = 2**30  # bytes moved to the device, after which their use doesn't wait longer
KNOWN = 4096  # functions of arrays that are known

has_placements = False  # whether arrays may be on several devices (mesh.py)


def is_recording() -> bool:
    """Whether operations are recorded here: what JAX traces is part of a program already."""
    return bool(trace_state_clean()) and not is_eager()


class Operation:
    """A function of arrays, as traced. ``now`` runs it alone; its first inputs may be donated."""

    def __init__(
        self, traced: ClosedJaxpr, now: Callable[..., Any] | None = None, donated: int = 0
    ) -> None:
        self.run, self.donated = jaxpr_as_fun(traced), donated
        self.now = now or jax.jit(self.run)
        self.size = _size(traced.jaxpr)
        self.avals = traced.out_avals
        given = {variable: number for number, variable in enumerate(traced.jaxpr.invars)}
        outputs = enumerate(traced.jaxpr.outvars)
        # Results that are inputs: statistics that stay, the key if no numbers are drawn.
        self.passed = {n: given[v] for n, v in outputs if type(v) is not Literal and v in given}


def _size(jaxpr: Any) -> int:
    """The number of equations, which is about what compiling takes."""
    return sum(1 + sum(map(_size, jaxprs_in_params(eqn.params))) for eqn in jaxpr.eqns)


Place = tuple[CodeType, int]  # of the program's own code: where an operation was called


class _Node:
    """A recorded operation. It refers to its inputs, but not to its results."""

    __slots__ = ("__weakref__", "error", "inputs", "operation", "place", "results")

    def __init__(self, operation: Operation, inputs: list[Any], place: Place | None) -> None:
        self.operation = operation
        self.inputs = inputs  # arrays, or nodes with result numbers
        self.place = place
        self.results: list[weakref.ref[LazyArray]] = []
        self.error: BaseException | None = None  # that ended its computation

    def compute(self) -> None:
        run()

    def there(self) -> list[LazyArray]:
        """Its results that have references."""
        return [result for ref in self.results if (result := ref()) is not None]


_lock = threading.RLock()
_pending: "list[weakref.ref[_Node]]" = []
_first: Place | None = None  # where the first of them was called
_total = 0  # their equations
_moved = 0  # bytes
_is_back = False  # whether there is a backward pass among them
_called: set[int] = set()  # ids of models among them that were called without gradients
_is_ours: dict[CodeType, bool] = {}


def caller() -> Place | None:
    """Where the program's own code is now."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        ours = _is_ours.get(code)
        if ours is None:
            if len(_is_ours) > KNOWN:
                _is_ours.clear()
            ours = _is_ours[code] = is_library(code.co_filename)
        if not ours:
            return code, frame.f_lasti
        frame = frame.f_back  # type: ignore[assignment]
    return None


def hold(
    operation: Operation, arrays: Sequence[Array], place: Place | None = None
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
        node = _Node(operation, inputs, place)
        results: list[Array] = []
        for number, aval in enumerate(operation.avals):
            if number in operation.passed:
                results.append(arrays[operation.passed[number]])
            else:
                results.append(LazyArray(aval, node, number))
                node.results.append(weakref.ref(results[-1]))
        _pending.append(weakref.ref(node))
        return results


_functions: dict[Any, Operation] = {}


def call(key: Any, function: Callable[..., Array], *arrays: Array) -> Array:
    """The result of a function of arrays, computed later unless it is part of a trace.

    ``key`` tells it from others for arrays of the same shapes and dtypes.
    """
    if not is_recording():
        return function(*map(computed, arrays))
    forms = tuple([(a.aval.shape, a.aval.dtype, a.aval.weak_type) for a in arrays])
    operation = _functions.get((key, forms))
    if operation is None:
        if len(_functions) > KNOWN:
            _functions.clear()
        operation = Operation(jax.make_jaxpr(function)(*map(form, arrays)))
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
    return _number(type(value), repr(value))  # 0.0 == -0.0, and 1 == True


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
                _run(nodes)
            else:
                with jax.ensure_compile_time_eval():
                    _run(nodes)
        except BaseException:
            _pending[:0] = [weakref.ref(n) for n in nodes if n.inputs and n.error is None]
            raise


# ---- computing -----------------------------------------------------------------------------------

# For each operation, where its inputs come from, and which of its results are needed.
Plan = tuple[tuple[Operation, tuple[Any, ...], tuple[int, ...]], ...]


def _run(nodes: list[_Node]) -> None:
    numbers = {id(node): number for number, node in enumerate(nodes)}
    given: list[Any] = []
    places: dict[int, int] = {}
    uses: list[int] = []
    donated: set[int] = set()
    wanted: list[LazyArray] = []
    steps = []
    for node in nodes:
        sources: list[Any] = []
        for position, source in enumerate(node.inputs):
            if type(source) is tuple:
                other = source[0]
                if id(other) not in numbers:  # it has run, or failed
                    _fail(node, other.error)
                    break
                sources.append((numbers[id(other)], source[1]))
                continue
            place = places.setdefault(id(source), len(given))
            if place == len(given):
                given.append(source)
                uses.append(0)
            uses[place] += 1
            sources.append(place)
            if position < node.operation.donated:
                donated.add(place)
        found = node.there()
        wanted += found
        steps.append((node.operation, tuple(sources), tuple(result.number for result in found)))
    if any(node.error is not None for node in nodes):
        return _run_in_parts([node for node in nodes if node.error is None])
    source = None
    # An array that has another owner, like an EMA or a copy, must outlive the step.
    own = [p for p in sorted(donated) if sys.getrefcount(given[p]) == 2 + uses[p]]
    plan = tuple(steps)
    program = _program(plan, tuple(own), _placements(given))
    arrays = None
    if program is not None:
        try:
            arrays = program(given)
        except Exception:  # in parts it says which operation can't be computed
            if any(given[p].is_deleted() for p in own):
                raise
    if arrays is None:
        return _run_in_parts(nodes)
    for result, array in zip(wanted, arrays, strict=True):
        result.value = array
    for node in nodes:
        node.inputs = []
    return None


def _fail(node: _Node, error: BaseException | None) -> None:
    node.error = error or RuntimeError("this value was never computed")


def _run_in_parts(nodes: list[_Node]) -> None:
    """Compute one operation after another. What doesn't depend on one that fails is computed."""
    last = {id(source): node for node in nodes for source in _sources(node)}
    found: dict[tuple[int, int], Array] = {}
    first: BaseException | None = None
    for node in nodes:
        try:
            results = node.operation.now(*_inputs(node, found, last))
        except Exception as error:
            if first is None:
                first = error
                if node.place is not None:
                    error.add_note(f"(recorded at {line_at(*node.place)}, and computed later)")
            _fail(node, error)
            continue
        found |= {(id(node), number): array for number, array in enumerate(results)}
        for result in node.there():
            result.value = results[result.number]
    for node in nodes:
        node.inputs = []
    if first is not None:
        raise first


def _sources(node: _Node) -> list[Any]:
    return [source for source in node.inputs if type(source) is not tuple]


def _inputs(node: _Node, found: dict[Any, Array], last: dict[int, _Node]) -> list[Array]:
    arrays = []
    for position, source in enumerate(node.inputs):
        if type(source) is tuple:
            other, number = source
            if other.error is not None:
                raise other.error
            array, is_own = found[id(other), number], False
        else:
            array = source
            # Its owners: the node's list, this loop, and the argument of getrefcount.
            is_own = last[id(source)] is node and sys.getrefcount(source) <= 4
        if position < node.operation.donated and not is_own:
            array = jnp.copy(array)
        arrays.append(array)
    return arrays


def _placements(arrays: list[Any]) -> Any:
    """On which devices they are, if that can differ."""
    if not has_placements:
        return None
    return tuple([getattr(array, "sharding", None) for array in arrays])


def _program(plan: Plan, donated: tuple[int, ...], placements: Any) -> "_Program | None":
    """The program, if it has occurred before, or if few new ones have."""
    if len(plan) == 1:
        return None
    key = plan, donated, placements
    program = _programs.get(key)
    if program is not None:
        _programs.move_to_end(key)
        return program
    unused = sum(known.calls < 2 for known in _programs.values())
    program = _programs[key] = _Program(plan, donated)
    if len(_programs) > MOST:
        _programs.popitem(last=False)
    return program if unused < UNUSED else None


class _Program:
    """Operations that run as one program."""

    def __init__(self, plan: Plan, donated: tuple[int, ...]) -> None:
        self.plan, self.donated = plan, frozenset(donated)
        self.calls = 0
        self._compiled: Any = None
        self._is_divided = False

    def __call__(self, given: list[Any]) -> list[Any] | None:
        """The wanted arrays; None if they can't be computed as one program."""
        if self._compiled is None and not self._is_divided:
            self._compile(given)
        self.calls += 1
        if self._is_divided:
            return None
        record.calls += 1
        return self._compiled(*self._sorted(given))  # type: ignore[no-any-return]

    def _compile(self, given: list[Any]) -> None:
        try:
            traced = jax.jit(self._step, donate_argnums=0).trace(*self._sorted(given))
            self._compiled = _compiled(traced, "step")
            record.programs += 1
        except Exception:  # for example if it is too large for the device
            self._is_divided = True

    def _sorted(self, given: list[Any]) -> tuple[list[Any], list[Any]]:
        own = [array for place, array in enumerate(given) if place in self.donated]
        rest = [array for place, array in enumerate(given) if place not in self.donated]
        return own, rest

    def _step(self, own: list[Array], rest: list[Array]) -> list[Array]:
        owned, others = iter(own), iter(rest)
        places = range(len(own) + len(rest))
        given = [next(owned if place in self.donated else others) for place in places]
        found: list[Any] = []
        for operation, sources, _ in self.plan:
            arrays = [given[s] if type(s) is int else found[s[0]][s[1]] for s in sources]
            found.append(operation.run(*arrays))
        return [found[n][i] for n, (*_, wanted) in enumerate(self.plan) for i in wanted]


_programs: OrderedDict[Any, _Program] = OrderedDict()  # the last used one is last
record = report.record("recorded steps")
