"""Strings that name an attribute: `getattr(x, "cuda" if fast else "cpu")()`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.command_line import is_option, option_name
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import parameters

_TAKES_NAME = {"getattr": 1, "hasattr": 1, "methodcaller": 0, "attrgetter": 0}
_INNER = (ast.IfExp, ast.BoolOp, ast.Tuple, ast.List, ast.Set, ast.Starred)


def names_attribute(names: Names, node: ast.expr) -> bool:
    """Whether a string, or the variable that holds it, is used as an attribute's name."""
    asked = [*_asked(names)]
    if not asked:
        return False
    at: ast.AST = node
    while isinstance(above := names.parents.get(at), _INNER):
        at = above
    if at in asked:
        return at is not node or not isinstance(at, ast.Constant)
    said = {_last(name) for name in asked} - {""}
    return not said.isdisjoint(_stored_under(names, at, above))


def _asked(names: Names) -> Iterator[ast.expr]:
    """The arguments of `getattr` and similar functions that are names of attributes."""
    for function, place in _TAKES_NAME.items():
        for use in (*names.by_id.get(function, ()), *names.by_id.get("operator", ())):
            called: ast.AST = use
            if use.id == "operator":
                called = names.parents[use]
                if not isinstance(called, ast.Attribute) or called.attr != function:
                    continue
            call = names.parents[called]
            if isinstance(call, ast.Call) and call.func is called and len(call.args) > place:
                yield call.args[place]


def _stored_under(names: Names, at: ast.AST, above: ast.AST | None) -> Iterator[str]:
    """The names of variables, attributes, parameters and options that hold a value."""
    match above:
        case ast.Assign(targets=targets):
            yield from (_last(target) for target in targets)
        case (
            ast.AnnAssign(target=target)
            | ast.NamedExpr(target=target)
            | ast.For(target=target)
            | ast.comprehension(target=target)
        ):
            yield from (_last(part) for part in ast.walk(target))
        case (
            ast.FunctionDef(args=taken) | ast.AsyncFunctionDef(args=taken) | ast.Lambda(args=taken)
        ):
            yield from (p.arg for p, default in parameters(taken) if default is at)
        case ast.keyword(arg=str(name)):
            call = names.parents[above]
            if isinstance(call, ast.Call) and is_option(call):
                yield option_name(call)
            elif isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                if any(b.kind in ("def", "class") for b in names.lookup(call.func)):
                    yield name


def _last(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
