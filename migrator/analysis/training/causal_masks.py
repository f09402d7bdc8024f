"""Masks that a model creates for several tokens, so that none attends to a later one.

mask = None
if length > 1:
    mask = torch.full((length, length), float("-inf"), device=tokens.device)
    mask = torch.triu(mask, diagonal=1)
    mask = torch.hstack([torch.zeros((length, start), device=tokens.device), mask])
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument, dotted

_MINUS_INFINITY = (
    "float('-inf')", "-float('inf')", "float('-infinity')", "-torch.inf", "-math.inf", "-np.inf",
)  # fmt: skip
_JOINS = ("torch.hstack", "torch.cat", "torch.concat")


def causal_mask(names: Names, function: ast.FunctionDef, start: str) -> ast.If | None:
    """The statement that creates the mask, which is None before and then only passed on."""
    for number, statement in enumerate(function.body):
        match statement:
            case ast.If(ast.Compare(length, [ast.Gt()], [ast.Constant(value=1)]), body, []):
                name = _assigned(body[0])
            case _:
                continue
        reader = _MaskReader(names, name, start, length)
        none = [s for s in function.body[:number] if _assigned(s) == name]
        if not name or len(none) != 1 or not _is_none(none[0]) or not reader.is_causal(body):
            continue
        inside = {*ast.walk(statement), *ast.walk(none[0])}
        uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
        if all(n in inside or _is_given(names, n) for n in uses):
            return statement
    return None


def _assigned(statement: ast.stmt) -> str:
    match statement:
        case ast.Assign([ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
            return name
    return ""


def _is_none(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Constant) and value.value is None


def _is_given(names: Names, use: ast.Name) -> bool:
    """Whether it is an argument of a call to the program's own code."""
    above = names.parents.get(use)
    call = names.parents.get(above) if isinstance(above, ast.keyword) else above
    return isinstance(call, ast.Call) and names.qualified(call.func) is None


@dataclass(frozen=True)
class MaskTable:
    """A buffer with a row for each position, which marks what comes after it."""

    call: ast.Call  # register_buffer
    shows: bool  # 1 where a key is visible, not where it is hidden


def causal_table(names: Names, owner: ast.ClassDef, table: str) -> MaskTable | None:
    """`self.register_buffer("mask", torch.triu(torch.ones(length, length), diagonal=1))`"""
    made: list[tuple[ast.Call, ast.expr]] = []
    for node in ast.walk(owner):
        match node:
            case ast.Attribute(ctx=ast.Store()) if dotted(node) == table:
                return None  # anything but a buffer stays on the device where it was created
            case ast.Call(
                ast.Attribute(ast.Name("self"), "register_buffer"),
                [ast.Constant(str(name)), value, *_],
            ) if f"self.{name}" == table:
                made.append((node, value))
    if len(made) != 1:
        return None
    call, value = made[0]
    match value:
        case ast.Call(ast.Attribute(inner, "bool"), [], []):
            value = inner
        case ast.Call(ast.Attribute(inner, "view"), [one, two, rows, columns], []):
            if [ast.unparse(one), ast.unparse(two)] != ["1", "1"] or not _is_square(inner, rows):
                return None
            value = inner if ast.dump(rows) == ast.dump(columns) else value
    match value:
        case ast.Call(func, [ast.Call(ones, [rows, columns], keywords), *_]):
            diagonal = argument(value, 1, "diagonal")
            square = ast.dump(rows) == ast.dump(columns) and {k.arg for k in keywords} <= {"dtype"}
            if not square or names.qualified(ones) != "torch.ones":
                return None
            if names.qualified(func) == "torch.tril" and diagonal is None:
                return MaskTable(call, True)
            if names.qualified(func) == "torch.triu" and diagonal is not None:
                return MaskTable(call, False) if ast.unparse(diagonal) == "1" else None
    return None


def _is_square(made: ast.expr, rows: ast.expr) -> bool:
    """Whether a view as (1, 1, rows, columns) keeps both dimensions of the table."""
    match made:
        case ast.Call(_, [ast.Call(_, [one, *_]), *_]):
            return ast.dump(one) == ast.dump(rows)
    return False


class _MaskReader:
    """Follows a mask from statement to statement."""

    def __init__(self, names: Names, name: str, start: str, length: ast.expr) -> None:
        self._names, self._name, self._start = names, name, start
        self._length = ast.dump(length)
        self._is = ""  # the mask's state: "full" of minus infinity, or "upper"

    def is_causal(self, body: list[ast.stmt]) -> bool:
        for statement in body:
            if not isinstance(statement, ast.Assign) or _assigned(statement) != self._name:
                return False
            self._is = self._value(statement.value)
            if not self._is:
                return False
        return self._is == "upper"

    def _value(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=name):
                return self._is if name == self._name else ""
            case ast.Call(func=ast.Attribute(value, "type_as" | "to")):
                return self._value(value)
            case ast.Call():
                return self._called(node)
        return ""

    def _called(self, call: ast.Call) -> str:
        name = self._names.qualified(call.func) or ""
        if name == "torch.full":
            return "full" if self._is_full(call) else ""
        if name == "torch.triu" and call.args:
            return self._upper(self._value(call.args[0]), argument(call, 1, "diagonal"))
        if name in _JOINS and call.args:
            return "upper" if self._is_behind_zeros(call, name) else ""
        if isinstance(call.func, ast.Attribute) and call.func.attr == "triu":
            return self._upper(self._value(call.func.value), argument(call, 0, "diagonal"))
        return ""

    def _is_full(self, call: ast.Call) -> bool:
        size, value = argument(call, 0, "size"), argument(call, 1, "fill_value")
        if not isinstance(size, ast.Tuple | ast.List) or len(size.elts) < 2 or value is None:
            return False
        *others, rows, columns = map(ast.dump, size.elts)
        ones = {ast.dump(ast.Constant(1))}
        square = rows == columns == self._length and {*others} <= ones
        return square and ast.unparse(value) in _MINUS_INFINITY

    def _upper(self, value: str, diagonal: ast.expr | None) -> str:
        """`triu(mask, 1)`; for a square mask also `start + 1`, which is 1 if shapes match at all"""
        known = ("1", f"{self._start} + 1", f"1 + {self._start}")
        right = value == "full" and diagonal is not None and ast.unparse(diagonal) in known
        return "upper" if right else ""

    def _is_behind_zeros(self, call: ast.Call, name: str) -> bool:
        """`hstack([zeros(length, start), mask])`: all earlier tokens are visible."""
        along = argument(call, 1, "dim")
        if name != "torch.hstack" and (along is None or ast.unparse(along) not in ("1", "-1")):
            return False
        match call.args[0]:
            case ast.List([ast.Call() as zeros, mask]) | ast.Tuple([ast.Call() as zeros, mask]):
                pass
            case _:
                return False
        size = zeros.args
        if len(size) == 1 and isinstance(size[0], ast.Tuple | ast.List):
            size = size[0].elts
        return (
            self._names.qualified(zeros.func) == "torch.zeros"
            and len(size) == 2
            and ast.dump(size[0]) == self._length
            and dotted(size[1]) == self._start
            and self._value(mask) == "upper"
        )
