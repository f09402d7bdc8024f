"""Decorators of a project: what they do with the decorated function."""

from __future__ import annotations

import ast

from migrator.analysis.syntax.memoize import once
from migrator.analysis.syntax.nodes import dotted


@once
def only_wraps(decorator: ast.AST) -> bool:
    """Whether a decorator of the project only calls or returns the decorated function."""
    if not isinstance(decorator, ast.FunctionDef) or len(decorator.args.args) != 1:
        return False
    given = decorator.args.args[0].arg
    parents = {child: node for node in ast.walk(decorator) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(decorator):
        if not isinstance(node, ast.Name) or node.id != given:
            continue
        match parents[node]:
            case ast.Return() | ast.Attribute(ctx=ast.Load()):
                continue
            case ast.Call(func=func) if func is node:
                continue
            case ast.Call(func=func) as call:
                name = dotted(func) or ""
                if name.rpartition(".")[2] == "wraps" or isinstance(parents[call], ast.Return):
                    if not name.rpartition(".")[2].startswith(("register", "append", "add")):
                        continue
        return False
    return True
