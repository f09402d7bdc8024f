"""Finds the step that ends with an optimizer's step."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Set
from functools import cached_property
from itertools import count

from migrator.analysis.syntax.names import Binding
from migrator.analysis.syntax.scopes import Scope
from migrator.analysis.training.loops import is_scaler, trains
from migrator.steps.blocks import loop_of, runs_repeatedly
from migrator.steps.builder import Builder
from migrator.steps.computation import Computation
from migrator.steps.evaluation import only_evaluates, trains_in_calls
from migrator.steps.passes import reads_in_passes
from migrator.steps.region import Region, Role, Split, regions, step_calls
from migrator.steps.step import NotMovable, Settled, Step
from migrator.steps.values import loaded_names, position, stored_names


class Steps:
    """The steps of one file; each is looked for once."""

    def __init__(self, code: Computation) -> None:
        self._code = code
        self._found: dict[ast.Call, Step | NotMovable] = {}
        self._named: dict[ast.Call, str] = {}

    def ending_with(self, call: ast.Call) -> Step:
        """The step that ends with the optimizer's step `call`.

        Raises:
            NotMovable: with what is in the way.
        """
        later = self._moved_with(call)
        if later is not None:
            raise Settled(f"it moves with the step in line {later}")
        found = self._complete(call)
        if isinstance(found, NotMovable):
            raise found
        return found

    def is_alone(self, call: ast.Call) -> bool:
        """Whether its scope has no other."""
        return self._in_scope[self._code.names.scope_of(call)] == 1

    def only_evaluates(self, loop: ast.For) -> bool:
        """Whether no value that a loop computes can get a backward pass, in the loop or later."""
        return only_evaluates(self._code, loop)

    def trains_in_calls(self, loop: ast.For) -> bool:
        """Whether a loop calls a function of the project that trains."""
        return trains_in_calls(self._code, loop)

    @cached_property
    def reads_in_passes(self) -> list[str]:
        """Lines of other files in which models of this one read values in a forward pass."""
        return reads_in_passes(self._code)

    def name(self, call: ast.Call, base: str) -> str:
        """A name for what moves with it: new to the file, and no other's in its scope."""
        if call not in self._named:
            scope_of = self._code.names.scope_of
            beside = {n for c, n in self._named.items() if scope_of(c) is scope_of(call)}
            base = f"training_{base}" if base in self.taken else base
            self._named[call] = next(
                name
                for name in (f"{base}_{n + 1}" if n else base for n in count(self._before[call]))
                if name not in self.taken and name not in beside
            )
        return self._named[call]

    @cached_property
    def taken(self) -> Set[str]:
        """Names that the file has already."""
        scopes = self._code.names.scopes.values()
        return {name for scope in scopes for name in scope.bindings}

    @cached_property
    def _in_scope(self) -> Counter[Scope]:
        return Counter(self._code.names.scope_of(call) for call in self._calls)

    @cached_property
    def _before(self) -> dict[ast.Call, int]:
        seen = Counter[tuple[Scope, str]]()
        before = {}
        for call in sorted(self._calls, key=position):
            optimizer = self._code.names.scope_of(call), ast.unparse(call.func)
            before[call] = seen[optimizer]
            seen[optimizer] += 1
        return before

    @cached_property
    def _calls(self) -> list[ast.Call]:
        return step_calls(self._code, self._code.names.tree)

    def _complete(self, call: ast.Call) -> Step | NotMovable:
        if call not in self._found:
            try:
                self._found[call] = _on_own_lines(self._code, _complete(self._code, call))
            except NotMovable as why:
                self._found[call] = why
        return self._found[call]

    def _moved_with(self, call: ast.Call) -> int | None:
        """The line of a later step that takes this one with it."""
        mover = self._movers.get(call)
        return mover.lineno if mover is not None else None

    @cached_property
    def _movers(self) -> dict[ast.Call, ast.Call]:
        """The calls that move with the step of a later one; a step that moves takes none itself."""
        names = self._code.names
        moving: dict[ast.AST, ast.Call] = {}
        found = {}
        for call in sorted(self._calls, key=position, reverse=True):
            mover = next((moving[s] for s in names.ancestors(call) if s in moving), None)
            if mover is not None:
                found[call] = mover
            elif not isinstance(step := self._complete(call), NotMovable):
                moving |= dict.fromkeys(step.statements, call)
        return found


def _on_own_lines(code: Computation, step: Step) -> Step:
    """A step of whose statements none shares its line with another: what moves are lines."""
    lines: dict[int, Counter[int]] = {}  # for each block
    for statement in step.statements:
        block = code.names.block(statement)
        if id(block) not in lines:
            lines[id(block)] = Counter(s.lineno for s in block)
        if lines[id(block)][statement.lineno] > 1:
            raise NotMovable(
                f"line {statement.lineno} holds several statements", "put each on its own line"
            )
    return step


def _complete(code: Computation, call: ast.Call) -> Step:
    """The statements that have to move with a call, whatever other steps there are."""
    names = code.names
    assert isinstance(call.func, ast.Attribute)
    at = names.statement(call)
    assert at is not None
    if call.args and not is_scaler(code.flow, call.func.value):
        return _closure(code, call.args[0])
    if not isinstance(at, ast.Expr):
        raise NotMovable("the optimizer's step is part of an expression")
    loop = loop_of(names, at)
    while isinstance(loop, ast.For) and stored_names([loop.target]) & set(loaded_names(call.func)):
        loop = loop_of(names, loop)  # for optimizer in optimizers: optimizer.step()
    if loop is None and not runs_repeatedly(names, at):
        raise Settled("it runs once")
    split = None
    while True:
        region, found = _shortest(code, at, split)
        if isinstance(found, Step):
            return found
        if any(map(trains, region.statements)):
            raise found or NotMovable(region.why or _NO_BACKWARD)
        parent = names.parents.get(at)
        if region.why or not isinstance(parent, ast.If | ast.With | ast.For) or parent is loop:
            raise NotMovable(region.why or _NO_BACKWARD)
        split = _split(code, parent, region) if code.obstacle(parent) else None
        at = parent


_NO_BACKWARD = "there is no backward pass before it"


def _shortest(
    code: Computation, at: ast.stmt, split: Split | None
) -> tuple[Region, Step | NotMovable | None]:
    """The step of the shortest region that is complete in itself, or why the last is not."""
    found: NotMovable | None = None
    for region in regions(code, at, split):
        if any(map(trains, region.of(Role.MOVES, Role.STEPS))):
            try:
                return region, Builder(code, region).step()
            except NotMovable as why:
                found = why
    return region, found


def _split(code: Computation, block: ast.If | ast.With | ast.For, region: Region) -> Split:
    """`if (i + 1) % n == 0:` of which the beginning moves, and the rest stays."""
    moving = region.of(Role.MOVES, Role.STEPS)
    if not isinstance(block, ast.If) or block.orelse or moving != block.body[: len(moving)]:
        raise NotMovable(code.obstacle(block))
    return Split(ast.copy_location(ast.If(block.test, moving, []), block), [])


def _closure(code: Computation, argument: ast.expr) -> Step:
    """The function that an optimizer calls in its step: forward and backward pass are compiled."""
    bindings = code.names.lookup(argument) if isinstance(argument, ast.Name) else []
    match bindings:
        case [Binding(node=ast.FunctionDef(decorator_list=[]) as closure)]:
            body = [s for s in closure.body if not isinstance(s, ast.Return)]
            obstacle = next(filter(None, map(code.obstacle, body)), "")
            changed = [name for s in body for name in code.changed(s)]
            if obstacle or changed:
                raise NotMovable(obstacle or f"its closure keeps a value in {changed[0]}")
            if any(map(trains, body)) and isinstance(closure.body[-1], ast.Return):
                return Step(body, call=body[0], anchor=closure, function=closure)
    raise NotMovable("the optimizer's step has a closure that is not known")
