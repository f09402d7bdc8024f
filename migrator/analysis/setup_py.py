"""What is a setup.py, and what it says that has to be installed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import Names

SETUP = ("setuptools.setup", "distutils.core.setup")

_ARGUMENTS = {
    "install_requires": "dependency", "extras_require": "dependency", "tests_require": "package",
    "setup_requires": "build", "python_requires": "python",
}  # fmt: skip


def builds(names: Names) -> bool:
    """Whether it is a setup.py, which runs where a project is built, without the runtime."""
    return _builds(names, names.tree)


@once_in
def _builds(names: Names, tree: ast.Module) -> bool:
    return any(names.qualified(call.func) in SETUP for call in names.all(ast.Call))


def reads_list(listed: Path, read: Callable[[Path], bytes | None]) -> bool:
    """Whether a project is built with a list of requirements: setuptools knows no options there,
    such as `--find-links`."""
    builders = (listed.with_name(name) for name in ("setup.py", "pyproject.toml"))
    return any(listed.name.encode() in (read(path) or b"") for path in builders)


def required(names: Names, call: ast.Call) -> Iterator[tuple[str, ast.Constant]]:
    """What setup.py says that has to be installed, and for which Pythons, by what it is."""
    if (names.qualified(call.func) or "") not in SETUP:
        return
    found: dict[ast.Constant, str] = {}
    for keyword in call.keywords:
        if key := _ARGUMENTS.get(keyword.arg or ""):
            for node, plainly in _texts(names, keyword.value):
                listed = isinstance(names.parents[node], ast.List | ast.Tuple | ast.Set)
                plainly = plainly and listed and "\n" not in str(node.value)
                found.setdefault(node, key if plainly or key == "python" else "text")
    yield from ((key, node) for node, key in found.items())


def _texts(
    names: Names, value: ast.AST | None, known: frozenset[str] = frozenset(), plainly: bool = True
) -> Iterator[tuple[ast.Constant, bool]]:
    """The strings of a list, however it comes about: sums, names, dicts, what is appended later.

    With whether all of a list is meant, not what a comprehension makes of it.
    """
    parts: Sequence[ast.AST | None] = ()
    match value:
        case ast.Constant(value=str()):
            yield value, plainly
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            pass
        case ast.Dict(values=parts) | ast.JoinedStr(values=parts):
            pass
        case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
            parts = left, right
        case ast.IfExp(body=left, orelse=right):
            parts = left, right
        case ast.Starred(value=inner) | ast.Subscript(value=inner) | ast.Return(value=inner):
            parts = (inner,)
        case (
            ast.DictComp(generators=rounds)
            | ast.ListComp(generators=rounds)
            | ast.GeneratorExp(generators=rounds)
        ):
            parts, plainly = [each.iter for each in rounds], False
        case ast.Call(func=ast.Attribute(value=inner, attr="split" | "splitlines" | "copy")):
            parts = (inner,)
        case ast.Call(func=ast.Name(id="list" | "sorted" | "dict"), args=arguments):
            parts = [*arguments, *(keyword.value for keyword in value.keywords)]
        case ast.Call(func=ast.Name(id=name) as function) if name not in known:
            known |= {name}
            parts = [
                node
                for bound in names.lookup(function)
                for node in (ast.walk(bound.node) if bound.kind == "def" else ())
                if isinstance(node, ast.Return)
            ]
        case ast.Name(id=name) if name not in known:
            known |= {name}
            assigned = [b.value for b in names.lookup(value) if b.kind == "assign"]
            parts = [*assigned, *(_added(names, use) for use in names.by_id.get(name, ()))]
    for part in parts:
        yield from _texts(names, part, known, plainly)


def _added(names: Names, use: ast.AST) -> ast.expr | None:
    """What `x.append(…)`, `x += …` and `x["y"] = …` put into `x`."""
    match names.parents.get(use):
        case ast.AugAssign(target=target, value=value) if target is use:
            return value
        case ast.Attribute(attr="append" | "extend" | "update") as method:
            call = names.parents.get(method)
            return call.args[0] if isinstance(call, ast.Call) and call.args else None
        case ast.Subscript(value=inner, ctx=ast.Store()) as part if inner is use:
            stored = names.parents.get(part)
            return stored.value if isinstance(stored, ast.Assign | ast.AugAssign) else None
    return None
