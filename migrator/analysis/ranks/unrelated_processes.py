"""Processes that a program starts beside its ranks, and that have nothing to do with them."""

from __future__ import annotations

import ast
import builtins
import sys

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument

# What a context of multiprocessing has beside processes and pools.
_NO_PROCESSES = frozenset({
    "Value", "Array", "RawValue", "RawArray", "Lock", "RLock", "Semaphore", "BoundedSemaphore",
    "Condition", "Event", "Barrier", "Queue", "SimpleQueue", "JoinableQueue", "Pipe", "_name",
    "get_start_method", "cpu_count",
})  # fmt: skip
# Libraries that have nothing to do with ranks.
_LIBRARIES = sys.stdlib_module_names | {
    "boto3", "fsspec", "numpy", "psutil", "requests", "tqdm", *dir(builtins),
}  # fmt: skip


def are_unrelated(names: Names, node: ast.expr) -> bool:
    """Whether no process is started, or one whose function has nothing to do with ranks."""
    call = names.call_of(node)
    if call is None:
        return False
    made = names.parents.get(call)
    if isinstance(made, ast.Attribute):  # get_context("fork").Value
        if made.attr in _NO_PROCESSES:
            return True
        outer = names.call_of(made)
        if made.attr != "Process" or outer is None:
            return False
        call = outer
    target = argument(call, 1, "target")
    return target is not None and _has_no_ranks(names, target, set())


def _has_no_ranks(names: Names, function: ast.expr, seen: set[ast.AST]) -> bool:
    """Whether a function of this file, and those that it names, say nothing of ranks."""
    bindings = names.lookup(function) if isinstance(function, ast.Name) else []
    if len(bindings) != 1 or not isinstance(bindings[0].node, ast.FunctionDef):
        return False
    definition = bindings[0].node
    if definition in seen:
        return True
    seen.add(definition)
    for part in ast.walk(definition):
        if not isinstance(part, ast.Name) or not isinstance(part.ctx, ast.Load):
            continue
        name = names.qualified(part)
        if name is not None and name.partition(".")[0] not in _LIBRARIES:
            return False
        made = [b for b in names.lookup(part) if isinstance(b.node, ast.FunctionDef)]
        if made and not _has_no_ranks(names, part, seen):
            return False
    return True
