"""Code that stays because the target doesn't support it and no program reaches it."""

from __future__ import annotations

import ast

from migrator.analysis.project.reachability import around
from migrator.context import Context
from migrator.decision import Report


def why(context: Context, node: ast.AST) -> Report | None:
    """Why a node stays: it is unsupported, or is in a branch or function with unsupported code.

    Such a function must not be rewritten in part; the rest of the program is right without it.
    """
    if not context.distributed.unserved:
        return None
    parts = (node, *context.names.ancestors(node))
    for cause, reason in context.distributed.unserved.items():
        text = f"{reason}; the program does not reach it by default"
        if cause is node:
            return Report(text)
        if cause in parts or any(part in parts for part in around(context.names.parents, cause)):
            return Report(f"stays with line {getattr(cause, 'lineno', 0)}, where {text}")
    return None
