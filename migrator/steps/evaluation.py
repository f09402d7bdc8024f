"""Loops that evaluate a model and record gradients: whether a backward pass can come later."""

from __future__ import annotations

import ast

from migrator.analysis.training.loops import reads, trains
from migrator.steps.blocks import loop_of
from migrator.steps.computation import Computation
from migrator.steps.graphs import is_harmless, trained_use
from migrator.steps.values import stored_names

_KEEPING = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await)
_BLOCKS = (ast.If, ast.With, ast.While, ast.Try, ast.FunctionDef, ast.ClassDef)


def trains_in_calls(code: Computation, loop: ast.For) -> bool:
    """Whether a loop calls a function of the project that trains."""
    calls = (node for node in ast.walk(loop) if isinstance(node, ast.Call))
    return any(trains(called) for call in calls for called in code.called(call))


def only_evaluates(code: Computation, loop: ast.For) -> bool:
    """Whether no value that a loop computes can get a backward pass, in the loop or later."""
    names = code.names
    made = None if trains_in_calls(code, loop) else _with_gradients(code, loop)
    if made is None:
        return False
    backward = code.reads.backward(names.scope_of(loop))
    for name in made:
        later = code.reads.later(name, loop, loop_of(names, loop), [loop])
        if any(_is_kept(code, use) for use in later) or trained_use(code, later, backward):
            return False
    return True


def _is_kept(code: Computation, use: ast.Name) -> bool:
    """`self.total = total`"""
    statement = code.names.statement(use)
    return (
        isinstance(statement, ast.Assign | ast.AugAssign)
        and _keeps(statement)
        and not is_harmless(code.names, use)
    )


def _with_gradients(code: Computation, loop: ast.For) -> set[str] | None:
    """Names that a loop gives a value with gradients; None if such a value may go elsewhere."""
    parts = [n for s in loop.body for n in ast.walk(s) if isinstance(n, ast.stmt)]
    parts = [part for part in parts if not isinstance(part, _BLOCKS)]
    made: set[str] = set()
    while True:
        before = len(made)
        for part in parts:
            value = part.iter if isinstance(part, ast.For) else part
            if reads(value) or not _carries(code, value, made):
                continue
            changed = {*code.changed(value)} if isinstance(value, ast.stmt) else set()
            if _keeps(value) or _calls_unknown(code, value) or not _are_own(code, loop, changed):
                return None
            made |= changed | stored_names([part.target if isinstance(part, ast.For) else part])
        if len(made) == before:
            return made


def _carries(code: Computation, value: ast.AST, made: set[str]) -> bool:
    return code.has_graph(value) or any(
        isinstance(n, ast.Name) and n.id in made and not is_harmless(code.names, n)
        for n in ast.walk(value)
    )


def _keeps(value: ast.AST) -> bool:
    return any(
        isinstance(n, _KEEPING) or (isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
        for n in ast.walk(value)
    )


def _calls_unknown(code: Computation, value: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) and code.call_obstacle(n) for n in ast.walk(value))


def _are_own(code: Computation, loop: ast.For, changed: set[str]) -> bool:
    """Whether nothing outside of the loop's function holds some lists."""
    bindings = code.names.scope_of(loop).bindings
    return all(bound and bound[0].kind != "param" for bound in map(bindings.get, changed))
