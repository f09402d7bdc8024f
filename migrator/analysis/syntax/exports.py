"""Exports: the names that a module offers to others."""

from __future__ import annotations

import ast

from migrator.analysis.syntax.names import Names


def exported(names: Names) -> set[str]:
    """The names in `__all__`."""
    values = [b.value for b in names.top.bindings.get("__all__", ()) if b.value is not None]
    return {
        node.value
        for value in values
        for node in ast.walk(value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
