"""Tests for CUDA, and the code that runs only if they are true, or only if they are false."""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from migrator.analysis import name_heuristics
from migrator.analysis.devices.choices import AVAILABLE, device_call, texts_of
from migrator.analysis.devices.device_selection import question
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import CUDA_STRING

_OWNERS = ("self", "args", "opt", "opts", "cfg", "config")


@dataclass(frozen=True, order=True)
class CodePlace:
    """A place that decides how a guard is treated."""

    line: int
    column: int
    kind: str  # kernel; wrapper: a function that runs one; move: a move to the device
    text: str = ""


def code_place(node: ast.AST, kind: str = "", text: str = "") -> CodePlace:
    return CodePlace(node.lineno, node.col_offset, kind, text)  # type: ignore[attr-defined]


def end_of(node: ast.AST) -> CodePlace:
    return CodePlace(node.end_lineno, node.end_col_offset, "")  # type: ignore[attr-defined]


class Questions:
    """The tests of one file."""

    def __init__(self, names: Names, flow: Flow) -> None:
        self.names, self.flow = names, flow

    def asked(self, node: ast.AST) -> tuple[ast.expr, bool, bool] | None:
        """The whole test, whether true means CUDA, and whether it tests a tensor."""
        names = self.names
        match node:
            case ast.Attribute(attr="is_cuda"):
                return (node, True, True) if names.call_of(node) is None else None
            case ast.Attribute() | ast.Name():
                call = names.call_of(node)
                asks = call is not None and names.qualified(node) in AVAILABLE
                return (question(names, call), True, False) if call is not None and asks else None
            case ast.Constant(value=str(text)) if CUDA_STRING.match(text):
                return self._comparison(node)
        return None

    def _comparison(self, node: ast.expr) -> tuple[ast.expr, bool, bool] | None:
        named: ast.expr = device_call(self.names, node) or node
        above = self.names.parents.get(named)
        if isinstance(above, ast.Tuple | ast.List | ast.Set):
            if "cpu" in texts_of(above):
                return None
            named, above = above, self.names.parents.get(above)
        match above:
            case ast.Compare(left=left, comparators=[other], ops=[op]):
                asked = other if left is named else left
                holds = not isinstance(op, ast.NotEq | ast.NotIn | ast.IsNot)
                return above, holds, is_of_tensor(asked)
            case ast.Call(func=ast.Attribute(attr="startswith", value=asked)):
                return above, True, is_of_tensor(asked)
        return None

    def guarded(self, test: ast.expr, holds: bool) -> list[tuple[Sequence[ast.AST], int]]:
        """The code that a test decides about: nodes of a block, from an index on."""
        return list(self._parts(test, holds, not holds))

    def _parts(
        self, test: ast.AST, holds: bool, fails: bool, depth: int = 0
    ) -> Iterator[tuple[Sequence[ast.AST], int]]:
        """The code that runs only if a test `holds`, or `fails`: nodes of a block, from an index
        on."""
        names = self.names
        above = names.parents.get(test)
        while True:
            match above:
                case ast.UnaryOp(op=ast.Not()):
                    holds, fails = fails, holds
                case ast.BoolOp(op=op, values=values):
                    if holds if isinstance(op, ast.And) else fails:
                        yield values, values.index(test) + 1  # type: ignore[arg-type]
                    if not all(value is test or _asks_for_another(value) for value in values):
                        holds = holds and isinstance(op, ast.And)
                        fails = fails and isinstance(op, ast.Or)
                case ast.NamedExpr(target=target):
                    yield from self._of_uses(target, holds, fails, depth)
                case _:
                    break
            assert above is not None
            test, above = above, names.parents.get(above)
        if not holds and not fails:
            return
        match above:
            case ast.IfExp() if above.test is test:
                yield [above.body if holds else above.orelse], 0
            case ast.If(body=body, orelse=orelse) if above.test is test:
                yes, no = (body, orelse) if holds else (orelse, body)
                yield yes, 0
                if no and self._leaves(no):
                    yield self._behind(above)
                if _returns_answer(no, False) or _returns_answer(yes, True):
                    yield from self._of_calls(names.function(above), depth)
            case ast.While(body=body) if above.test is test and holds:
                yield body, 0
            case ast.Assert() if above.test is test and holds:
                yield self._behind(above)
            case ast.comprehension() if holds:
                whole = names.parents.get(above)
                parts = (getattr(whole, name, None) for name in ("elt", "key", "value"))
                yield [part for part in parts if part is not None], 0
            case ast.Assign(targets=targets):
                for each in targets:
                    yield from self._of_uses(each, holds, fails, depth)
            case ast.AnnAssign(target=ast.Name() | ast.Attribute() as stored):
                yield from self._of_uses(stored, holds, fails, depth)
            case ast.Return() if holds:
                yield from self._of_calls(names.function(above), depth)
            case ast.Call(func=func) if test in above.args:
                skips = (dotted(func) or "").rpartition(".")[2].lower()
                if skips == ("skipunless" if holds else "skipif"):
                    yield from self._of_mark(above)

    def otherwise(self, test: ast.expr, holds: bool) -> Sequence[ast.AST]:
        """The code that runs in place of what a test decides about; empty if there is none, or if
        the test alone does not decide."""
        names, below = self.names, test
        above = names.parents.get(test)
        while isinstance(above, ast.UnaryOp | ast.BoolOp):
            if isinstance(above, ast.BoolOp) and holds is not isinstance(above.op, ast.And):
                return ()
            holds = holds is not isinstance(getattr(above, "op", None), ast.Not)
            below, above = above, names.parents.get(above)
        match above:
            case ast.IfExp(body=body, orelse=orelse) if above.test is below:
                return [orelse if holds else body]
            case ast.If(body=yes, orelse=no) if above.test is below:
                if not holds or no:
                    return no if holds else yes
                block, start = self._behind(above)
                return block[start:] if self._leaves(yes) else ()
        return ()

    def _behind(self, statement: ast.stmt) -> tuple[Sequence[ast.AST], int]:
        block = self.names.block(statement)
        return block, self._index(block, statement) + 1 if block else 0

    def _index(self, block: Sequence[ast.stmt], statement: ast.stmt) -> int:
        """Like `block.index`, but fast for long blocks."""
        key = (statement.lineno, statement.col_offset)
        return bisect_left(block, key, key=lambda s: (s.lineno, s.col_offset))

    def _of_uses(
        self, target: ast.expr, holds: bool, fails: bool, depth: int
    ) -> Iterator[tuple[Sequence[ast.AST], int]]:
        for use in self.names.loads(target) if depth < 2 else ():
            yield from self._parts(use, holds, fails, depth + 1)

    def _of_calls(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef | None, depth: int
    ) -> Iterator[tuple[Sequence[ast.AST], int]]:
        if function is None or depth >= 2:
            return
        uses: list[ast.expr] = list(self.names.by_id.get(function.name, ()))
        uses += self._attributes.get(function.name, ())
        for use in uses:
            if self.flow.definition(use) is function:
                yield from self._parts(self.names.call_of(use) or use, True, False, depth + 1)

    def _of_mark(self, mark: ast.Call) -> Iterator[tuple[Sequence[ast.AST], int]]:
        """The test that a decorator such as `skipif` guards."""
        above = self.names.parents.get(mark)
        uses: list[ast.expr] = [mark]
        if isinstance(above, ast.Assign):
            uses = [use for target in above.targets for use in self.names.loads(target)]
        for use in uses:
            match self.names.parents.get(use):
                case ast.FunctionDef(body=body) | ast.ClassDef(body=body):
                    yield body, 0

    def _leaves(self, body: list[ast.stmt]) -> bool:
        """Whether control never passes beyond these statements."""
        if isinstance(body[-1], ast.Return | ast.Continue | ast.Break) or self.names.ends(body):
            return True
        match body[-1]:
            case ast.Expr(value=ast.Call(func=func)):
                return (dotted(func) or "").endswith((".skip", ".skipTest"))
        return False

    @cached_property
    def _attributes(self) -> dict[str, list[ast.expr]]:
        found: dict[str, list[ast.expr]] = {}
        for node in self.names.order:
            if isinstance(node, ast.Attribute):
                found.setdefault(node.attr, []).append(node)
        return found

    def is_guarded(self, node: ast.AST, *, holds: bool = True) -> bool:
        """Whether code only runs with CUDA; or only without, if that ``holds`` not."""
        where, spans = code_place(node), self._spans if holds else self._spans_without
        at = bisect_right(spans, where, key=lambda span: span[0])
        return any(start <= where < end for start, end in spans[:at])

    @cached_property
    def _spans(self) -> list[tuple[CodePlace, CodePlace]]:
        """The spans of code that the tests of this file guard."""
        return self._spans_of(True)

    @cached_property
    def _spans_without(self) -> list[tuple[CodePlace, CodePlace]]:
        """The same for what runs where they fail."""
        return self._spans_of(False)

    def _spans_of(self, asked: bool) -> list[tuple[CodePlace, CodePlace]]:
        spans = []
        for node in self.names.order:
            if isinstance(node, ast.Attribute | ast.Name | ast.Constant):
                found = self.asked(node)
                if found is not None:
                    for block, start in self.guarded(found[0], found[1] is asked):
                        if start < len(block):
                            spans.append((code_place(block[start]), end_of(block[-1])))
        return sorted(spans)


def is_of_tensor(node: ast.AST) -> bool:
    """`x.device.type`, `str(x.device)`; not `self.device`, `args.device`"""
    return any(
        isinstance(part, ast.Attribute)
        and part.attr == "device"
        and not (isinstance(part.value, ast.Name) and part.value.id in _OWNERS)
        for part in ast.walk(node)
    )


def _asks_for_another(node: ast.expr) -> bool:
    """Whether a condition tests for another kind of accelerator."""
    names = (
        n.attr if isinstance(n, ast.Attribute) else getattr(n, "value", "") for n in ast.walk(node)
    )
    return any(
        isinstance(name, str) and name_heuristics.is_other_accelerator_name(name) for name in names
    )


def _returns_answer(body: Sequence[ast.stmt], answer: bool) -> bool:
    """`return True`, or a return of something false"""
    match body[-1] if body else None:
        case ast.Return(value=ast.Constant(value=value)):
            return value is True if answer else not value
    return False
