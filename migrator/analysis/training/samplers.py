"""Models whose forward pass is a loop that samples: it counts down, and calls another model."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names
from migrator.analysis.training.find_optimizer_steps import reaches_model, round_of
from migrator.analysis.values.callees import Callees
from migrator.analysis.values.device_tensors import own_nodes
from migrator.analysis.values.flow import Flow


def samples(names: Names, flow: Flow, loop: ast.For) -> bool:
    """`for t in reversed(range(self.T)): x = self.model(x, t)`, in a method."""
    if names.function(loop) is None or not _counts_down(loop.iter):
        return False
    calls = (node for node in own_nodes(loop.body) if isinstance(node, ast.Call))
    return any(reaches_model(flow, call) for call in calls)


def _counts_down(node: ast.expr) -> bool:
    """`reversed(range(n))`, `range(n, 0, -1)`"""
    match node:
        case ast.Call(func=ast.Name(id="reversed")):
            return True
        case ast.Call(func=ast.Name(id="range"), args=[_, _, ast.UnaryOp(op=ast.USub())]):
            return True
    return False


def samplers_without_gradients(names: Names, flow: Flow) -> Iterator[ast.For]:
    """Such loops of models that this file calls, each time without recording gradients."""
    code = Callees(names, flow)
    for loop in names.all(ast.For):
        owner, method = names.enclosing_class(loop), names.function(loop)
        if owner is None or method is None or not samples(names, flow, loop):
            continue
        called = [
            round_of(names, call)[1]
            for call in names.all(ast.Call)
            if _called(code, call, method.name) is owner
        ]
        if called and all(called):
            yield loop


def _called(code: Callees, call: ast.Call, method: str) -> ast.ClassDef | None:
    """The class whose object is called, or whose method of this name."""
    called = call.func
    if method != "forward":
        if not isinstance(called, ast.Attribute) or called.attr != method:
            return None
        called = called.value
    made = code.class_of(called)
    return made[1] if made is not None else None
