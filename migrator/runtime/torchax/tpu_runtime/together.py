"""Held operations, computed as one program: from one read of a value to the next.

In a framework's loop a model's call in training doesn't run: its results are held, with shapes
and dtypes known from its trace. So is everything computed from them: losses, backward passes,
accumulated gradients, clipping, an optimizer's step. They are computed when a value is read
(`item()`, `print`, `.cpu()`, an operator that can't be traced), after an optimizer's step, and
when a model is called again after a backward pass. Results without references are neither
computed nor kept.
"""

import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax._src.core import jaxpr_as_fun, trace_state_clean
from jax.extend.core import ClosedJaxpr, Literal

from . import report
from .held import Array, Held, settled
from .lowering import compiled as _compiled

MOST = 64  # programs kept
LONGEST = 500  # operations held
CALLS = 8  # programs among them: a cell that is called for each word should not become one with all
UNUSED = 3  # programs that only ran once, after which new ones must occur twice


class Operation:
    """A function of arrays, as traced. ``now`` runs it alone."""

    def __init__(
        self, traced: ClosedJaxpr, now: Callable[..., Any] | None = None, donated: int = 0
    ) -> None:
        self.run, self.donated = jaxpr_as_fun(traced), donated
        self.is_program = now is not None
        self.now = now or self.run
        self.avals = traced.out_avals
        given = {variable: number for number, variable in enumerate(traced.jaxpr.invars)}
        outputs = enumerate(traced.jaxpr.outvars)
        # Results that are inputs: statistics that stay, the key if no numbers are drawn.
        self.passed = {n: given[v] for n, v in outputs if type(v) is not Literal and v in given}


class _Node:
    """An operation that hasn't run. It refers to its inputs, but not to its results."""

    __slots__ = ("__weakref__", "inputs", "operation", "results")

    def __init__(self, operation: Operation, inputs: list[Any]) -> None:
        self.operation = operation
        self.inputs = inputs  # arrays, or nodes with result numbers
        self.results: list[weakref.ref[Held]] = []

    def compute(self) -> None:
        run()


_pending: "list[weakref.ref[_Node]]" = []
_calls = 0  # of programs that are held
_is_back = False  # whether one of those is a backward pass


def hold(operation: Operation, arrays: Sequence[Array]) -> list[Array]:
    """The results of an operation that runs later."""
    global _calls
    if len(_pending) >= LONGEST or _calls >= CALLS:
        run()
    _calls += operation.is_program
    arrays = list(map(settled, arrays))
    node = _Node(operation, [(a.node, a.number) if type(a) is Held else a for a in arrays])
    results: list[Array] = []
    for number, aval in enumerate(operation.avals):
        if number in operation.passed:
            results.append(arrays[operation.passed[number]])
        else:
            results.append(Held(aval, node, number))
            node.results.append(weakref.ref(results[-1]))
    _pending.append(weakref.ref(node))
    return results


def is_waiting() -> bool:
    """Whether there may be something to compute."""
    return bool(_pending)


def forward() -> None:
    """A model is called: an earlier call with its backward pass becomes a program of its own."""
    if _is_back:
        run()


def backward() -> None:
    """A backward pass is held."""
    global _is_back
    _is_back = True


def run() -> None:
    """Compute the held operations whose results have references."""
    global _is_back, _calls
    nodes = [node for ref in _pending if (node := ref()) is not None]
    _pending.clear()
    _is_back, _calls = False, 0
    if nodes and trace_state_clean():
        _run(nodes)
    elif nodes:
        with jax.ensure_compile_time_eval():
            _run(nodes)


def _run(nodes: list[_Node]) -> None:
    numbers = {id(node): number for number, node in enumerate(nodes)}
    given: list[Any] = []
    places: dict[int, int] = {}
    donated: set[int] = set()
    wanted: list[Held] = []
    plan = []
    for node in nodes:
        sources: list[Any] = []
        for position, source in enumerate(node.inputs):
            if type(source) is tuple:
                sources.append((numbers[id(source[0])], source[1]))
                continue
            place = places.setdefault(id(source), len(given))
            if place == len(given):
                given.append(source)
            sources.append(place)
            if position < node.operation.donated:
                donated.add(place)
        found = [held for ref in node.results if (held := ref()) is not None]
        wanted += found
        plan.append((node.operation, tuple(sources), tuple(held.number for held in found)))
    for node in nodes:
        node.inputs = []
    del source, node
    # An array that has another owner, like an EMA or a copy, must outlive the step.
    own = [place for place in sorted(donated) if sys.getrefcount(given[place]) == 2]
    for held, array in zip(wanted, _program(tuple(plan), tuple(own))(given), strict=True):
        held.value, held.node = array, None


# For each operation, where its inputs come from, and which of its results are needed.
Plan = tuple[tuple[Operation, tuple[Any, ...], tuple[int, ...]], ...]


def _program(plan: Plan, donated: tuple[int, ...]) -> Callable[[list[Any]], list[Any]]:
    """How to run it: as one program, if it has occurred before, or if few new ones have."""
    if len(plan) == 1:
        return _Program(plan, donated).in_parts
    program = _programs.get((plan, donated))
    if program is not None:
        _programs.move_to_end((plan, donated))
        return program
    unused = sum(known.calls < 2 for known in _programs.values())
    program = _programs[plan, donated] = _Program(plan, donated)
    if len(_programs) > MOST:
        _programs.popitem(last=False)
    return program if unused < UNUSED else program.in_parts


class _Program:
    """Operations that run as one program."""

    def __init__(self, plan: Plan, donated: tuple[int, ...]) -> None:
        self.plan, self.donated = plan, frozenset(donated)
        self.calls = 0
        self._compiled: Any = None
        self._is_divided = False

    def __call__(self, given: list[Any]) -> list[Any]:
        if self._compiled is None and not self._is_divided:
            self._compile(given)
        self.calls += 1
        if self._is_divided:
            return self.in_parts(given)
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
        return self._follow(given, lambda operation, arrays, _: operation.run(*arrays))

    def in_parts(self, given: list[Any]) -> list[Any]:
        """Run one operation after another."""
        last = {p: n for n, (_, sources, _) in enumerate(self.plan) for p in sources}
        numbers = iter(range(len(self.plan)))

        def now(operation: Operation, arrays: list[Any], sources: tuple[Any, ...]) -> Any:
            number = next(numbers)
            for i, source in enumerate(sources[: operation.donated]):
                if source not in self.donated or last[source] != number:
                    arrays[i] = jnp.copy(arrays[i])
            return operation.now(*arrays)

        return self._follow(given, now)

    def _follow(self, given: list[Any], how: Callable[..., Any]) -> list[Any]:
        found: list[Any] = []
        for operation, sources, _ in self.plan:
            arrays = [given[s] if type(s) is int else found[s[0]][s[1]] for s in sources]
            found.append(how(operation, arrays, sources))
        return [found[n][i] for n, (*_, wanted) in enumerate(self.plan) for i in wanted]


_programs: OrderedDict[Any, _Program] = OrderedDict()  # the last used one is last
record = report.Record("steps in the loops of frameworks")
