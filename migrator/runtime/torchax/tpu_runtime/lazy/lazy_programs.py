"""Recorded operations, and how they are computed: as one program, or one after another."""

import functools
import itertools
import sys
import warnings
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax._src.core import eval_jaxpr, jaxpr_as_fun, jaxprs_in_params
from jax.extend.core import ClosedJaxpr, Literal

from ..compilation.lowering import compiled as _compiled
from ..compilation.lowering import with_program_name
from ..profiling import report
from ..profiling.array_owners import OTHERS, owners
from ..profiling.reads_in_steps import Place, line_at
from ..profiling.source_lines import at
from .lazy_arrays import Array, LazyArray

MOST = 128  # programs kept
# Programs that only ran once, after which operations in a new order run one after another at first.
UNUSED = 10

has_placements = False  # whether arrays may be on several devices (mesh.py)


class LazyOperation:
    """A function of arrays, as traced. ``now`` runs it alone; its first inputs may be donated.

    ``is_operator``: its lines in profiles are those of its calls, not of its trace. ``name``: of a
    model or an optimizer.
    """

    def __init__(
        self, traced: ClosedJaxpr, now: Callable[..., Any] | None = None, donated: int = 0,
        is_operator: bool = False, name: str = "",
    ) -> None:  # fmt: skip
        self.name, self.is_known = name, False  # whether it has been part of a program
        self.run, self.donated, self.is_operator = jaxpr_as_fun(traced), donated, is_operator
        self._traced = traced
        self.now = now or jax.jit(self.run)
        self.size = _size(traced.jaxpr)
        self.avals = traced.out_avals
        given = {variable: number for number, variable in enumerate(traced.jaxpr.invars)}
        outputs = enumerate(traced.jaxpr.outvars)
        # Results that are inputs: statistics that stay, the key if no numbers are drawn.
        self.passed = {n: given[v] for n, v in outputs if type(v) is not Literal and v in given}

    def run_at(self, place: "Place | None", arrays: list[Any]) -> list[Any]:
        """Its results, in the trace of a program that calls it at a place."""
        if place is None or not self.is_operator:
            return self.run(*arrays)  # type: ignore[no-any-return]
        jaxpr, consts = self._traced.jaxpr, self._traced.consts
        evaluate = functools.partial(eval_jaxpr, jaxpr, consts, propagate_source_info=False)
        return at(*place)(evaluate, *arrays)  # type: ignore[no-any-return]

    def equal_results(self, sources: tuple[Any, ...]) -> dict[int, int]:
        """Numbers of scalar results, and of the first that has the same value with such inputs.

        The step counts of an optimizer's parameters share one array, and so they still do.
        """
        if len(set(sources)) == len(sources):
            return {}
        jaxpr, numbers = self._traced.jaxpr, itertools.count()
        values: defaultdict[Any, int] = defaultdict(lambda: next(numbers))
        known = {v: values[source] for v, source in zip(jaxpr.invars, sources, strict=True)}

        def value(v: Any) -> Any:
            aval: Any = v.aval
            return (repr(v), aval.dtype) if type(v) is Literal else known.get(v, v)

        for equation in jaxpr.eqns:
            is_scalar = not any(v.aval.shape for v in (*equation.invars, *equation.outvars))
            if is_scalar and not equation.effects and not [*jaxprs_in_params(equation.params)]:
                key = str(equation.primitive), repr(equation.params), *map(value, equation.invars)
                known |= {v: values[key, place] for place, v in enumerate(equation.outvars)}
        given = [value(v) for v in jaxpr.outvars]
        return {number: given.index(v) for number, v in enumerate(given)}


def _size(jaxpr: Any) -> int:
    """The number of equations, which is about what compiling takes."""
    return sum(1 + sum(map(_size, jaxprs_in_params(eqn.params))) for eqn in jaxpr.eqns)


class Node:
    """A recorded operation. It refers to its inputs, but not to its results."""

    __slots__ = ("__weakref__", "error", "inputs", "is_done", "operation", "place", "results")

    def __init__(self, operation: LazyOperation, inputs: list[Any], place: Place | None) -> None:
        self.operation = operation
        self.inputs = inputs  # arrays, or nodes with result numbers
        self.place = place
        self.results: list[weakref.ref[LazyArray]] = []
        self.error: BaseException | None = None  # that ended its computation
        self.is_done = False

    def finish(self) -> None:
        """It has run, or failed: its inputs are no longer needed."""
        self.inputs, self.is_done = [], True

    def there(self) -> list[LazyArray]:
        """Its results that have references."""
        return [result for ref in self.results if (result := ref()) is not None]


# For each operation, where its inputs come from, and which of its results are needed.
Plan = tuple[tuple[LazyOperation, tuple[Any, ...], tuple[int, ...]], ...]


def compute(nodes: list[Node]) -> None:
    """Compute those of their results that have references.

    Raises the first error, after whatever does not depend on it has been computed.
    """
    numbers = {id(node): number for number, node in enumerate(nodes)}
    given: list[Any] = []
    places: dict[int, int] = {}
    uses: list[int] = []
    donated: set[int] = set()
    wanted: list[LazyArray] = []
    steps = []
    for node in nodes:
        sources: list[Any] = []
        for source in node.inputs:
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
        donated.update([s for s in sources[: node.operation.donated] if type(s) is int])
        found = node.there()
        wanted += found
        steps.append((node.operation, tuple(sources), tuple(result.number for result in found)))
    if any(node.error is not None for node in nodes):
        return _run_in_parts([node for node in nodes if node.error is None], set())
    source = None
    # An array that has another owner, like an EMA or a copy, must outlive the step.
    own = [p for p in sorted(donated) if sys.getrefcount(given[p]) == 2 + uses[p]]
    plan = tuple(steps)
    lines = tuple([node.place for node in nodes])
    program = _program(plan, tuple(own), _placements(given), lines)
    arrays = None
    if program is not None:
        try:
            arrays = program(given, wanted)
        except Exception:  # in parts it says which operation can't be computed
            if any(given[p].is_deleted() for p in own):
                raise
    if arrays is None:
        return _run_in_parts(nodes, {id(given[p]) for p in own})
    for result, array in zip(wanted, arrays, strict=True):
        result.value = array
    for node in nodes:
        node.finish()
    return None


def _fail(node: Node, error: BaseException | None) -> None:
    node.error = error or RuntimeError("this value was never computed")


def _run_in_parts(nodes: list[Node], own: set[int]) -> None:
    """Compute one operation after another. What doesn't depend on one that fails is computed.

    ``own``: ids of inputs that nothing else needs.
    """
    last = {id(source): node for node in nodes for source in _sources(node)}
    found: dict[tuple[int, int], Array] = {}
    first: BaseException | None = None
    for node in nodes:
        try:
            results = node.operation.now(*_inputs(node, found, last, own))
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
        node.finish()
    if first is not None:
        raise first


def _sources(node: Node) -> list[Any]:
    return [source for source in node.inputs if type(source) is not tuple]


def _inputs(
    node: Node, found: dict[Any, Array], last: dict[int, Node], own: set[int]
) -> list[Array]:
    arrays = []
    for position, source in enumerate(node.inputs):
        if type(source) is tuple:
            other, number = source
            if other.error is not None:
                raise other.error
            array, is_own = found[id(other), number], False
        else:
            # Of an input that occurs twice, like a shared step count, only one can be donated.
            array, is_own = source, id(source) in own and last[id(source)] is node
            if is_own:
                own.discard(id(source))
        if position < node.operation.donated and not is_own:
            array = jnp.copy(array)
        arrays.append(array)
    return arrays


def _placements(arrays: list[Any]) -> Any:
    """On which devices they are, if that can differ."""
    if not has_placements:
        return None
    return tuple([getattr(array, "sharding", None) for array in arrays])


Lines = tuple["Place | None", ...]


def _program(
    plan: Plan, donated: tuple[int, ...], placements: Any, lines: Lines
) -> "_Program | None":
    """The program, if it is worth compiling: it has occurred before, its operations haven't, or
    there are few others that ran only once. ``lines``: of a new one."""
    if len(plan) == 1:
        return None
    key = plan, donated, placements
    program = _programs.get(key)
    if program is not None:
        _programs.move_to_end(key)
        return program
    unused = sum(known.calls < 2 for known in _programs.values())
    program = _programs[key] = _Program(plan, donated, lines)
    if len(_programs) > MOST:
        _programs.popitem(last=False)
    # To compile many new operations one by one would take longer than as one program.
    is_new = sum(not operation.is_known for operation, *_ in plan) > len(plan) / 4
    for operation, *_ in plan:
        operation.is_known = True
    return program if is_new or unused < UNUSED else None


class _Program:
    """Operations that run as one program."""

    def __init__(self, plan: Plan, donated: tuple[int, ...], lines: Lines) -> None:
        self.plan, self._lines = plan, lines
        # JAX gives a result the memory of the first donated input of its form. So an optimizer's,
        # which come last, are in front: they take that of what they replace, others need a copy.
        last = [*enumerate(plan)][::-1]
        inputs = [s for _, (operation, sources, _) in last for s in sources[: operation.donated]]
        every = {s for _, sources, _ in plan for s in sources if type(s) is int}
        self.donated = [place for place in dict.fromkeys(inputs) if place in donated]
        self._rest = sorted(every.difference(donated))
        first: dict[tuple[int, int], tuple[int, int]] = {}  # of equal results
        for number, (operation, sources, wanted) in enumerate(plan):
            equal = operation.equal_results(sources)
            first |= {(number, result): (number, equal.get(result, result)) for result in wanted}
        self._results = [*dict.fromkeys(first[n, i] for n, (*_, wanted) in last for i in wanted)]
        places = {result: place for place, result in enumerate(self._results)}
        self._order = [places[result] for result in first.values()]
        self.calls = 0
        self._compiled: Any = None
        self._is_divided = False

    def __call__(self, given: list[Any], wanted: list[LazyArray]) -> list[Any] | None:
        """The wanted arrays; None if they can't be computed as one program."""
        if self._compiled is None and not self._is_divided:
            self._compile(given, wanted)
        self.calls += 1
        if self._is_divided:
            return None
        record.calls += 1
        results = self._compiled(*self._sorted(given))
        return [results[place] for place in self._order]

    def _compile(self, given: list[Any], wanted: list[LazyArray]) -> None:
        try:
            with warnings.catch_warnings():
                # The memory of an update that nothing needs is not reused.
                warnings.filterwarnings("ignore", "Some donated buffers were not usable")
                name = _name(self.plan)
                program = jax.jit(with_program_name(self._step, name), donate_argnums=0)
                owners = functools.partial(self._owners, given, wanted)
                self._compiled = _compiled(program.trace(*self._sorted(given)), name, owners)
            record.programs += 1
        except Exception:  # for example if it is too large for the device
            self._is_divided = True

    def _owners(self, given: list[Any], wanted: list[LazyArray]) -> dict[str, Any]:
        """What its arrays are for: ``given`` by the name of an argument, ``results`` in order.

        The array that an update replaces is no longer anyone's: it is what its result is.
        """
        known = owners()
        results = [OTHERS] * len(self._results)
        for place, array in zip(self._order, wanted, strict=True):
            results[place] = known.get(id(array), results[place])
        names = {
            f"args[{part}][{number}]": known[id(array)]
            for part, arrays in enumerate(self._sorted(given))
            for number, array in enumerate(arrays)
            if id(array) in known
        }
        return {"given": names, "results": results}

    def _sorted(self, given: list[Any]) -> tuple[list[Any], list[Any]]:
        """The donated inputs, and the others."""
        return [given[place] for place in self.donated], [given[place] for place in self._rest]

    def _step(self, own: list[Array], rest: list[Array]) -> list[Array]:
        given = dict(zip([*self.donated, *self._rest], [*own, *rest], strict=True))
        found: list[Any] = []
        for (operation, sources, _), line in zip(self.plan, self._lines, strict=True):
            arrays = [given[s] if type(s) is int else found[s[0]][s[1]] for s in sources]
            found.append(operation.run_at(line, arrays))
        return [found[number][result] for number, result in self._results]


def _name(plan: Plan) -> str:
    """The first model or optimizer in a program names it."""
    return next((operation.name for operation, *_ in plan if operation.name), "step")


_programs: OrderedDict[Any, _Program] = OrderedDict()  # the last used one is last
record = report.record("recorded steps")
