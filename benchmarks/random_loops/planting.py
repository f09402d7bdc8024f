"""Faults that the comparison has to find: of the runtime, and of the migrated text."""

from __future__ import annotations

import ast
import random
from typing import Any

OF_TEXT = ("moved", "dropped")
OF_RUNTIME = ("write", "number")
FAULTS = (*OF_TEXT, *OF_RUNTIME)


def in_text(text: str, fault: str, seed: int) -> str:
    """The program with two statements of its loop exchanged, or with one of them missing."""
    tree, chance = ast.parse(text), random.Random(seed)
    loops = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.While) and "step" in ast.unparse(_head(node))
    ]  # fmt: skip
    [loop] = loops
    body = loop.body
    first = chance.randrange(len(body) - 1)
    if fault == "moved":
        body[first], body[first + 1] = body[first + 1], body[first]
    else:
        del body[first]
    return ast.unparse(tree)


def _head(loop: ast.For | ast.While) -> ast.AST:
    return loop.target if isinstance(loop, ast.For) else loop.test


def in_runtime(fault: str) -> None:
    """Let the runtime of this process do something wrong now and then."""
    from tpu_runtime.lazy import lazy_operators

    calls = 0
    traced, form = lazy_operators._Traced, lazy_operators._Form
    before, has_changed = traced.record, form._has_changed

    def record(self: Any, tensors: list[Any], numbers: list[Any], place: Any) -> Any:
        nonlocal calls
        calls += 1
        arrays = [tensor.__dict__.get("_elem") for tensor in tensors]
        result = before(self, tensors, numbers, place)
        if self._written and not calls % 3:
            for n in self._written:
                tensors[n].__dict__["_elem"] = arrays[n]
        return result

    def changed(self: Any, key: Any, place: Any) -> bool:
        if has_changed(self, key, place):
            self._fixed = dict.fromkeys([key, *self._fixed], next(iter(self._fixed.values())))
        return False

    if fault == "write":  # is lost
        traced.record = record
    elif fault == "number":  # that changes keeps its first value
        form._has_changed = changed
