"""Code that only a launcher's processes reach: `if ddp:`, where `ddp` tests its variables.

Without a launcher these aren't set, so such conditions have a fixed outcome, and one of the two
branches is never reached.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import cached_property
from typing import Any

from migrator.analysis.ranks.rank_expressions import RankExpressions
from migrator.analysis.syntax.nodes import argument

_UNKNOWN = object()
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_CONVERTED: dict[str, Callable[[Any], Any]] = {"int": int, "bool": bool, "str": str}
_DEPTH = 5  # of names assigned from names


class Launched:
    """The code of one file that only a launcher's processes reach."""

    def __init__(self, ranks: RankExpressions) -> None:
        self.ranks, self.names = ranks, ranks.names

    @cached_property
    def holds_all(self) -> bool:
        """Whether all code that concerns ranks is of this kind, so that a process started without
        a launcher does what a program for one GPU does."""
        return all(
            self.holds(node)
            for node in self.names.order
            if self.ranks.is_for_several(node) or self.ranks.needs_launcher(node)
        )

    def holds(self, node: ast.AST) -> bool:
        """Whether a node is in such code."""
        below = node
        while (parent := self.names.parents.get(below)) is not None:
            match parent:
                case ast.If(test=test) if below is not test:
                    inside = isinstance(below, ast.stmt) and below in parent.body
                    if self._has_answer(test, not inside):
                        return True
                case ast.IfExp(test=test) if below is not test:
                    if self._has_answer(test, below is parent.orelse):
                        return True
                case ast.BoolOp(op=op, values=values):
                    place = next(i for i, value in enumerate(values) if value is below)
                    if any(
                        self._has_answer(value, isinstance(op, ast.Or)) for value in values[:place]
                    ):
                        return True
            below = parent
        return False

    def _has_answer(self, test: ast.expr, answer: bool) -> bool:
        """Whether a condition has this outcome without a launcher, and tests for one."""
        value = self._value(test) if self._asks(test) else _UNKNOWN
        return value is not _UNKNOWN and bool(value) is answer

    def _asks(self, test: ast.expr, depth: int = 0) -> bool:
        """Whether a value depends on the launcher's variables."""
        for node in ast.walk(test):
            if self.ranks.asks_launcher(node):
                return True
            value = self._assigned(node) if depth < _DEPTH else None
            if value is not None and self._asks(value, depth + 1):
                return True
        return False

    def _assigned(self, node: ast.AST) -> ast.expr | None:
        """The only value of a name."""
        bindings = self.names.lookup(node) if isinstance(node, ast.Name) else []
        return bindings[0].value if len(bindings) == 1 and bindings[0].kind == "assign" else None

    def _value(self, node: ast.expr, depth: int = 0) -> Any:
        """The value of an expression without a launcher."""
        asked = self.ranks.asks_launcher(node)
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Call() if asked:
                default = argument(node, 1, "default")
                return self._value(default, depth) if default is not None else None
            case ast.Compare(ops=[operation]) if asked:
                return isinstance(operation, ast.NotIn)
            case ast.Call(func=ast.Name(id=name), args=[only], keywords=[]) if name in _CONVERTED:
                return self._applied(_CONVERTED[name], self._value(only, depth))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._applied(operator.neg, self._value(operand, depth))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._applied(operator.not_, self._value(operand, depth))
            case ast.Compare(left=left, ops=[operation], comparators=[right]):
                compare = _COMPARED.get(type(operation))
                values = self._value(left, depth), self._value(right, depth)
                return self._applied(compare, *values) if compare is not None else _UNKNOWN
            case ast.BoolOp(op=op, values=parts):
                known = [self._value(part, depth) for part in parts]
                ends = isinstance(op, ast.Or)
                if any(v is not _UNKNOWN and bool(v) is ends for v in known):
                    return ends
                return _UNKNOWN if any(v is _UNKNOWN for v in known) else not ends
            case ast.Name() if depth < _DEPTH:
                assigned = self._assigned(node)
                return self._value(assigned, depth + 1) if assigned is not None else _UNKNOWN
        return _UNKNOWN

    @staticmethod
    def _applied(function: Callable[..., Any], *values: Any) -> Any:
        if any(value is _UNKNOWN for value in values):
            return _UNKNOWN
        try:
            return function(*values)
        except (TypeError, ValueError):
            return _UNKNOWN
