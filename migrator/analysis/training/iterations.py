"""Iterations that train: in which order they call a model, go back, step, and read values.

Where operations are only recorded, an iteration is one program up to the optimizer's step. Python
needs a value that it reads at once: what was recorded before is computed first, as another program.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import cached_property

from migrator.analysis import name_heuristics
from migrator.analysis.syntax.names import DEFINITIONS
from migrator.analysis.training.find_optimizer_steps import is_backward, is_optimizer_step, round_of
from migrator.analysis.training.sync_points import Hot, Loop
from migrator.analysis.values.device_tensors import Function, last_word

_DEPTH = 4  # functions that call each other


class _Event(Enum):
    MODEL = auto()  # a call with gradients
    BACKWARD = auto()
    STEP = auto()
    TRAINING = auto()  # a loop of iterations of its own: nothing is recorded before or after it


_Order = Sequence[_Event]
_Place = tuple[int, int]


class Iterations:
    """The iterations of one file: of a loop, or the calls of a function that makes a step."""

    def __init__(self, hot: Hot) -> None:
        self._hot, self._names, self._flow = hot, hot.names, hot.flow
        self._known: dict[ast.AST, list[tuple[_Place, _Event]]] = {}

    def hold(self, node: ast.AST) -> bool:
        """Whether a node is in an iteration that steps an optimizer."""
        return self._around(node, _DEPTH) is not None

    def are_divided_by(self, node: ast.expr, *, only_steps_end: bool) -> bool:
        """Whether reading a value here divides the program of a step, in each iteration.

        `only_steps_end` a program, or else also the first call of a model after a backward pass.
        """
        around = self._around(node, _DEPTH)
        if around is None:
            return False
        before, after = around
        last = before[-1] if before else None
        if last is _Event.MODEL or only_steps_end:
            after = [event for event in after if event is not _Event.MODEL]
        return last in (_Event.MODEL, _Event.BACKWARD) and after[:1] in (
            [_Event.BACKWARD],
            [_Event.STEP],
        )

    # ---- where a node is ----------------------------------------------------------------------

    def _around(self, node: ast.AST, depth: int) -> tuple[_Order, _Order] | None:
        """What an iteration does before a node, and after it; None in none that steps.

        Nothing, where an `if` that counts iterations, say, lets only some of them come there.
        """
        place = _end(node)
        below = node
        for above in self._names.ancestors(node):
            if isinstance(above, ast.Lambda | ast.ClassDef):
                return None
            is_body = not (isinstance(above, ast.For) and below in (above.iter, above.target))
            if isinstance(above, Loop | Function) and is_body:
                events = self._events(above)
                before = [event for at, event in events if at < place]
                after = [event for at, event in events if at >= place]
                is_rare = self._hot.in_some_rounds(node, above)
                if _Event.STEP in (*before, *after):
                    return ([], []) if is_rare else (before, after)
                if isinstance(above, Function):
                    around = self._around_calls(above, before, after, depth)
                    return ([], []) if is_rare and around is not None else around
                if events:
                    return None
            below = above
        return None

    def _around_calls(
        self, function: Function, before: _Order, after: _Order, depth: int
    ) -> tuple[_Order, _Order] | None:
        """The same for a part of a function that an iteration calls."""
        for call in self._calls.get(function, ()) if depth else ():
            outer = self._around(call, depth - 1)
            if outer is not None:
                own = len(before) + len(after)  # they are among those behind the call's start
                return [*outer[0], *before], [*after, *outer[1][own:]]
        return None

    @cached_property
    def _calls(self) -> dict[Function, list[ast.Call]]:
        found: dict[Function, list[ast.Call]] = {}
        for call in self._names.all(ast.Call):
            definition = self._flow.called_definition(call)
            if isinstance(definition, Function):
                found.setdefault(definition, []).append(call)
        return found

    # ---- what iterations do -------------------------------------------------------------------

    def _events(self, owner: Loop | Function, depth: int = _DEPTH) -> list[tuple[_Place, _Event]]:
        """What the body of a loop or of a function does, in its order."""
        known = self._known.get(owner)
        if known is None:
            self._known[owner] = []  # calls itself
            known = self._known[owner] = sorted(
                self._found(owner.body, depth), key=lambda event: event[0]
            )
        return known

    def _found(self, body: Iterable[ast.AST], depth: int) -> Iterator[tuple[_Place, _Event]]:
        for node in body:
            if isinstance(node, (*DEFINITIONS, ast.Lambda)):
                continue
            if isinstance(node, Loop):
                inner = self._events(node, depth)
                trains = {_Event.MODEL, _Event.BACKWARD} & {event for _, event in inner}
                if trains and _Event.STEP in {event for _, event in inner}:
                    inner = [(_end(node), _Event.TRAINING)]
                yield from inner
                heads = [node.iter] if isinstance(node, ast.For) else [node.test]
                yield from self._found([*heads, *node.orelse], depth)
                continue
            if isinstance(node, ast.Call):
                yield from ((_end(node), event) for event in self._of_call(node, depth))
            yield from self._found(ast.iter_child_nodes(node), depth)

    def _of_call(self, call: ast.Call, depth: int) -> Iterator[_Event]:
        if is_backward(call.func):
            yield _Event.BACKWARD
            return
        if isinstance(call.func, ast.Attribute) and call.func.attr == "step":
            if is_optimizer_step(self._names, self._flow, call):
                yield _Event.STEP
                return
        if self._hot.is_model(call.func):
            if (
                not name_heuristics.is_loss_name(last_word(call))
                and not round_of(self._names, call)[1]
            ):
                yield _Event.MODEL
            return
        definition = self._flow.called_definition(call)
        if isinstance(definition, Function) and depth:
            yield from (event for _, event in self._events(definition, depth - 1))


def _end(node: ast.AST) -> _Place:
    """Where a node ends: what it is made of comes before it."""
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
