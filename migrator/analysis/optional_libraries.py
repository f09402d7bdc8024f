"""Imports of a library that a file does without: the import is caught, or the file asks first
whether the library is installed."""

from __future__ import annotations

import ast
import re

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.scopes import Binding

# Their `is_xformers_available()` and the like look for an installed package.
_ASKING = ("accelerate", "diffusers", "peft", "transformers", "trl")
_AVAILABLE = re.compile(r"is_(\w+?)(?:_\d)?_available")
_SHORT = {"bnb": "bitsandbytes"}
_DEPTH = 4  # of names assigned from names


def is_optional(names: Names, node: ast.AST, library: str) -> bool:
    """Whether a file runs without a library, by its first name, that is imported at a node."""
    library = library.partition(".")[0]
    return names.is_guarded_import(node) or _is_asked_for(names, node, library)


def _is_asked_for(names: Names, node: ast.AST, library: str) -> bool:
    below = node
    for above in names.ancestors(node):
        if isinstance(above, ast.If) and below in above.body:
            if _needs(names, above.test, library, _DEPTH):
                return True
        if isinstance(above, ast.If) and below in above.orelse:
            if _is_absent(names, above.test, library):
                return True
        below = above
    return False


def _needs(names: Names, test: ast.expr, library: str, depth: int) -> bool:
    """Whether a condition is true only if a library is installed."""
    match test:
        case ast.Compare(
            left=ast.Call() as call, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]
        ):
            return _looks_for(names, call, library)
        case ast.Call(func=ast.Name(id="bool"), args=[only], keywords=[]):
            return _needs(names, only, library, depth)
        case ast.Call():
            return _looks_for(names, test, library) or _asks(names, test, library)
        case ast.BoolOp(op=op, values=values):
            needed = (_needs(names, value, library, depth) for value in values)
            return any(needed) if isinstance(op, ast.And) else all(needed)
        case ast.Name() if depth:
            bindings = names.lookup(test)
            return bool(bindings) and all(
                _is_set_with(names, each, library, depth) for each in bindings
            )
    return False


def _is_absent(names: Names, test: ast.expr, library: str) -> bool:
    """Whether a condition is true if a library is not installed."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _needs(names, operand, library, _DEPTH)
        case ast.Compare(
            left=ast.Call() as call, ops=[ast.Is()], comparators=[ast.Constant(value=None)]
        ):
            return _looks_for(names, call, library)
    return False


def _is_set_with(names: Names, bound: Binding, library: str, depth: int) -> bool:
    """Whether a flag gets a true value only with a library: from a question, or after an import
    that is caught."""
    if bound.kind != "assign" or bound.value is None:
        return False
    if isinstance(bound.value, ast.Constant):
        return not bound.value.value or _follows_import(names, bound.node, library)
    return _needs(names, bound.value, library, depth - 1)


def _follows_import(names: Names, node: ast.AST, library: str) -> bool:
    below = node
    for above in names.ancestors(node):
        if isinstance(above, ast.Try) and (below in above.body or below in above.orelse):
            before = above.body if below in above.orelse else above.body[: above.body.index(below)]
            if any(_imports(statement, library) for statement in before):
                return True
        below = above
    return False


def _imports(statement: ast.stmt, library: str) -> bool:
    match statement:
        case ast.Import(names=aliases):
            return any(alias.name.partition(".")[0] == library for alias in aliases)
        case ast.ImportFrom(module=str(module), level=0):
            return module.partition(".")[0] == library
    return False


def _looks_for(names: Names, call: ast.Call, library: str) -> bool:
    """`importlib.util.find_spec("deepspeed.ops")`"""
    match call.args:
        case [ast.Constant(value=str(module))]:
            asked = names.qualified(call.func) == "importlib.util.find_spec"
            return asked and module.partition(".")[0] == library
    return False


def _asks(names: Names, call: ast.Call, library: str) -> bool:
    """`diffusers.utils.is_xformers_available()`"""
    head, _, rest = (names.qualified(call.func) or "").partition(".")
    asked = _AVAILABLE.fullmatch(rest.rpartition(".")[2]) if head in _ASKING else None
    return asked is not None and _SHORT.get(asked[1], asked[1]) == library
