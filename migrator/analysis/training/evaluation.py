"""Loops that evaluate a model and record gradients: whether a backward pass can come later."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Set

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import stored_names
from migrator.analysis.training.computation import Computation
from migrator.analysis.training.find_optimizer_steps import reads, trains

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
        later = code.reads.later(name, loop)
        if any(_is_kept(code, use) for use in later) or _is_trained(code, later, backward):
            return False
    return True


def _is_kept(code: Computation, use: ast.Name) -> bool:
    """`self.total = total`"""
    statement = code.names.statement(use)
    return (
        isinstance(statement, ast.Assign | ast.AugAssign)
        and _keeps(statement)
        and not _is_harmless(code.names, use)
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
        isinstance(n, ast.Name) and n.id in made and not _is_harmless(code.names, n)
        for n in ast.walk(value)
    )


def _keeps(value: ast.AST) -> bool:
    return any(
        isinstance(n, _KEEPING) or (isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
        for n in ast.walk(value)
    )


def _calls_unknown(code: Computation, value: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) and code.may_do_more(n) for n in ast.walk(value))


def _are_own(code: Computation, loop: ast.For, changed: set[str]) -> bool:
    """Whether nothing outside of the loop's function holds some lists."""
    bindings = code.names.scope_of(loop).bindings
    return all(bound and bound[0].kind != "param" for bound in map(bindings.get, changed))


def _is_trained(code: Computation, uses: Iterable[ast.Name], backward: Set[ast.AST]) -> bool:
    """Whether a use of a value, or of what is made of it, gets a backward pass or is kept."""
    names = code.names
    seen: set[ast.Name] = set()
    waiting = [*uses]
    while waiting:
        use = waiting.pop()
        statement = names.statement(use)
        if use in seen or statement is None or _is_harmless(names, use) or reads(statement):
            continue
        seen.add(use)
        if any(n in backward for n in ast.walk(statement)) or _escapes(statement):
            return True
        for made in stored_names([statement]):
            waiting += code.reads.later(made, statement)
    return False


def _escapes(statement: ast.stmt) -> bool:
    """`losses.append(loss)`, `return loss`"""
    match statement:
        case ast.Return():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append" | "extend"))):
            return True
    return False


_DETACHING = frozenset({"detach", "data", "item", "numpy", "cpu", "tolist", "shape", "size",
                        "dtype", "device", "ndim", "dim", "numel", "detach_"})  # fmt: skip
_READING = frozenset({"print", "float", "int", "bool", "str", "format"})


def _is_harmless(names: Names, use: ast.Name) -> bool:
    """Whether a use reads, detaches or compares a value, so that no gradient flows through it."""
    parent = names.parents.get(use)
    if isinstance(parent, ast.Attribute) and parent.attr in _DETACHING:
        return True
    for above in names.ancestors(use):
        match above:
            case ast.Compare() | ast.FormattedValue():
                return True
            case ast.Call(func=ast.Name(id=function)) if function in _READING:
                return True
            case ast.Call(func=ast.Attribute(attr="item" | "format")):
                return True
            case ast.Attribute(attr="item" | "detach" | "data" | "cpu"):
                return True
            case ast.With(items=items):
                if any("no_grad" in ast.unparse(item.context_expr) for item in items):
                    return True
            case ast.For() | ast.While() | ast.FunctionDef():
                return False
    return False
