"""Exports: what a module says that others take from it."""

from __future__ import annotations

import ast

from migrator.analysis.syntax.names import Names


def exported(names: Names) -> set[str]:
    """What `__all__` lists."""
    values = [b.value for b in names.top.bindings.get("__all__", ()) if b.value is not None]
    return {
        node.value
        for value in values
        for node in ast.walk(value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
