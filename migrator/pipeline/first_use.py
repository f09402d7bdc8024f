"""The first statement of a module that may use a device: set-up has to be above it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.scripts import is_main_guard
from migrator.analysis.values.evidence import is_on_torch
from migrator.pipeline.imports import holds_import, last_import
from migrator.targets import RUNTIME


def above_first_use(names: Names, is_own: Callable[[str], bool]) -> tuple[ast.stmt | None, bool]:
    """The last import above the first use of a device, and whether set-up goes before that import.

    It does if the first use is on the same line. `is_own` says whether a qualified name is the
    project's.
    """
    uses = _first_use(names, is_own)
    anchor = last_import(names, uses)
    return anchor, anchor is None or any(use.lineno == anchor.end_lineno for use in uses)


def _first_use(names: Names, is_own: Callable[[str], bool]) -> set[ast.stmt]:
    """The first top-level statement that may use a device."""
    for statement in names.tree.body:
        if isinstance(statement, ast.For | ast.While | ast.With) or is_main_guard(statement):
            return {statement}
        if any(_may_use_device(names, called, is_own) for called in _called(statement)):
            return {statement}
    return set()


def _called(statement: ast.stmt) -> Iterator[ast.expr]:
    """Functions called when a module is loaded, without those called inside of its functions."""
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        match node:
            case ast.Call(func=func):
                yield func
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
                decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
                yield from decorators
                stack += [*defaults, *decorators]
                continue
            case ast.ClassDef(decorator_list=decorators):
                yield from decorators
            case ast.Try() if holds_import(node):  # the handlers don't count
                stack += [*node.body, *node.orelse, *node.finalbody]
                continue
        stack.extend(ast.iter_child_nodes(node))


def _may_use_device(
    names: Names, called: ast.expr, is_own: Callable[[str], bool], depth: int = 0
) -> bool:
    """Whether a call may reach code of torch, of a library based on torch, or of the project."""
    name = names.qualified(called)
    if name is not None:
        of_torch = name.startswith(("torch.", RUNTIME, ".")) or is_on_torch(name)
        return of_torch or name in _RUNS or is_own(name)
    if isinstance(called, ast.Attribute) and called.attr in ("to", "cuda"):
        return True
    owner = called
    while isinstance(owner, ast.Attribute | ast.Subscript):
        owner = owner.value
    if isinstance(owner, ast.Call) and depth < _DEPTH:
        return _may_use_device(names, owner.func, is_own, depth + 1)
    if not isinstance(owner, ast.Name):
        return not isinstance(owner, ast.Constant | ast.JoinedStr)
    bound = names.lookup(owner)
    if not bound:  # unless it comes from a star import, it is a notebook's text
        return bool(names.star_imports) and not owner.id.startswith("__")
    values = [binding.value for binding in bound]
    return depth >= _DEPTH or not all(
        isinstance(value, ast.Call) and not _may_use_device(names, value.func, is_own, depth + 1)
        for value in values
    )


_RUNS = ("exec", "eval", "__import__", "importlib.import_module", "runpy.run_path")
_DEPTH = 5  # length of a chain of names assigned from calls
