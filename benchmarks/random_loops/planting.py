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
    from tpu_runtime import holding

    calls = 0
    before = holding._Followed.hold
    with_input = holding._with_input

    def hold(self: Any, given: list[Any]) -> Any:
        nonlocal calls
        calls += 1
        arrays = [tensor.__dict__.get("_elem") for tensor in given]
        result = before(self, given)
        if self._written and not calls % 3:
            for n in self._written:
                given[n].__dict__["_elem"] = arrays[n]
        return result

    if fault == "write":  # is lost
        holding._Followed.hold = hold
    elif fault == "number":  # that changes keeps its first value
        known: dict[Any, Any] = {}

        def first(env: Any, function: Any, args: Any) -> Any:
            if len(args) == 2 and type(args[1]) is float:
                args = args[0], known.setdefault((function, args[0].shape), args[1])
            return with_input(env, function, args)

        holding._with_input = first
