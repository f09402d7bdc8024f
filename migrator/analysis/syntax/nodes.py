"""Nodes: what a node of a tree says by itself, without the rest of its file."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Set

from migrator.analysis.syntax.memoize import once


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` as written, None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else None
    return None


def said_name(node: ast.AST) -> str:
    """The name of a value: `n`, `args.n`, `cfg["n"]`, `cfg.get("n")`; "" for others."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(
            func=ast.Attribute(attr="get", value=owner), args=[ast.Constant(value=str(name)), *_]
        ):
            return "" if (dotted(owner) or "").endswith("environ") else name
    return ""


def choices(node: ast.AST) -> list[ast.expr]:
    """The expressions that it may evaluate to: `int(a)`, `max(a, 1)`, `a or b`, `a if … else b`."""
    match node:
        case ast.Call(func=ast.Name(id="int" | "float" | "str" | "max" | "min")):
            return node.args
        case ast.BoolOp(values=values):
            return values
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
    return []


def number(node: ast.expr) -> ast.expr:
    """The argument of `int(…)` and `float(…)`."""
    while isinstance(node, ast.Call) and dotted(node.func) in ("int", "float") and node.args:
        node = node.args[0]
    return node


def argument(call: ast.Call, position: int | None, *keywords: str) -> ast.expr | None:
    """An argument, by position or by any of its keywords."""
    for keyword in call.keywords:
        if keyword.arg in keywords:
            return keyword.value
    if position is None or any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return None
    return call.args[position] if position < len(call.args) else None


def is_given(call: ast.Call, name: str, place: int) -> bool:
    """Whether a call may have an argument: by its name, by its position, or unpacked."""
    return len(call.args) > place or any(k.arg in (name, None) for k in call.keywords)


def parameters(arguments: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Each parameter with its default, in order."""
    positional = arguments.posonlyargs + arguments.args
    padding = [None] * (len(positional) - len(arguments.defaults))
    yield from zip(positional, [*padding, *arguments.defaults], strict=True)
    if arguments.vararg:
        yield arguments.vararg, None
    yield from zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    if arguments.kwarg:
        yield arguments.kwarg, None


def taken_by(statement: ast.ImportFrom, alias: ast.alias) -> str:
    """What an import takes from a module, by its full name: `..ops.f` if that is relative."""
    module = "." * statement.level + (statement.module or "")
    return f"{module}{'' if module.endswith('.') else '.'}{alias.name}"


def imported_names(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, ast.alias]]:
    """What an absolute import takes, by full names; a relative one gives none."""
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            yield alias.name, alias
        elif not statement.level:
            yield taken_by(statement, alias), alias


def is_for(handler: ast.ExceptHandler, error: str) -> bool:
    """Whether a handler is for an error; a class that isn't Python's may be derived from any."""
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {dotted(each) if each is not None else error for each in types}
    own = not isinstance(getattr(builtins, error, None), type)
    bases = {"BaseException"} if error == "SystemExit" else {"Exception", "BaseException"}
    return own or not names.isdisjoint({error, *bases})


def fails_silently(block: ast.Try) -> bool:
    """Whether a `try` only imports, and its handlers only pass, or say something."""
    said = (each for handler in block.handlers for each in handler.body)
    imports = all(isinstance(each, ast.Import | ast.ImportFrom) for each in block.body)
    return imports and not block.orelse and all(isinstance(e, ast.Pass | ast.Expr) for e in said)


def stored_names(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that some code gives a value."""
    return set().union(*map(_stored, nodes))


@once
def _stored(top: ast.AST) -> Set[str]:
    return frozenset(
        node.id
        for node in ast.walk(top)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """All statements of a module; expressions, which contain none, are skipped."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt):
            yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            stack.extend(getattr(node, part, ()))
