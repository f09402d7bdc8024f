"""The names that a module offers to others, or mentions in texts."""

from __future__ import annotations

import ast
import re

from migrator.analysis.syntax.names import Names
from migrator.formats import embedded_text


def exported(names: Names) -> set[str]:
    """The names in `__all__`."""
    values = [b.value for b in names.top.bindings.get("__all__", ()) if b.value is not None]
    return {
        node.value
        for value in values
        for node in ast.walk(value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def spoken(names: Names) -> frozenset[str]:
    """All words of the texts in a module: names in them count as used."""
    uses = (n for function in embedded_text.FUNCTIONS for n in names.by_id.get(function, ()))
    calls = (names.parents[n] for n in uses)
    return frozenset(word for call in calls for word in re.findall(r"\w+", ast.unparse(call)))
