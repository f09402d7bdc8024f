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
    """`for t in reversed(range(self.T)): x = self.model(x, t)`, in a forward pass."""
    function = names.function(loop)
    match loop.iter:
        case ast.Call(func=ast.Name(id="reversed")) if function is not None:
            calls = (node for node in own_nodes(loop.body) if isinstance(node, ast.Call))
            return function.name == "forward" and any(reaches_model(flow, call) for call in calls)
    return False


def samplers_without_gradients(names: Names, flow: Flow) -> Iterator[ast.For]:
    """Such loops of models that this file calls, each time without recording gradients."""
    code = Callees(names, flow)
    for loop in names.all(ast.For):
        owner = names.enclosing_class(loop)
        if owner is None or not samples(names, flow, loop):
            continue
        called = [
            round_of(names, call)[1]
            for call in names.all(ast.Call)
            if (made := code.class_of(call.func)) is not None and made[1] is owner
        ]
        if called and all(called):
            yield loop
