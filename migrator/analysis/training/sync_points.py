"""Hot places: where reading a value costs time, for advice.

A hot place runs repeatedly: the forward pass of a model, an iteration of a loop that trains or
calls a model, a function of the file that such an iteration calls.
"""

from __future__ import annotations

import ast
from functools import cached_property

from migrator.analysis import name_heuristics
from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import DEFINITIONS, Names
from migrator.analysis.training.find_optimizer_steps import (
    is_backward,
    is_optimizer_step,
    may_bring_batches,
    round_of,
    runs_over_models,
    trains,
)
from migrator.analysis.values.device_tensors import Function, Tensors, last_word, own_nodes
from migrator.analysis.values.flow import Flow

Loop = ast.For | ast.While
_TYPED = ("input", "getpass.getpass", "sys.stdin", "sys.stdin.readline", "click.prompt")


def _enclosing_loop(names: Names, node: ast.AST) -> ast.AST | None:
    """The innermost loop or function around a node; None in neither."""
    closed = (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)
    return next((above for above in names.ancestors(node) if isinstance(above, closed)), None)


class Hot(Tensors):
    """Where a file uses the device in each iteration, and which of its values are tensors there."""

    def __init__(self, names: Names, flow: Flow) -> None:
        super().__init__(names, flow)
        self._works: dict[ast.AST, bool] = {}
        self._called: set[ast.AST] | None = None

    def is_hot(self, node: ast.AST) -> bool:
        if self.in_pass(node) or self.loop(node) is not None:
            return True
        return self.names.function(node) in self._called_in_rounds()

    def loop(self, node: ast.AST) -> Loop | None:
        """The innermost loop around a node, if it trains or calls a model in each iteration."""
        below = node
        for above in self.names.ancestors(node):
            if isinstance(above, (*DEFINITIONS, ast.Lambda)):
                return None
            if isinstance(above, Loop) and not (
                isinstance(above, ast.For) and below in (above.iter, above.target)
            ):
                return above if self.works(above) else None
            below = above
        return None

    def works(self, loop: Loop) -> bool:
        known = self._works.get(loop)
        if known is None:
            works = self._holds_work(loop)
            once = any(isinstance(statement, ast.Break) for statement in loop.body)
            known = self._works[loop] = works and not once and not self._runs_over_layers(loop)
        return known

    def in_some_rounds(self, node: ast.AST, loop: ast.AST) -> bool:
        """Whether a node depends on a condition in the loop that doesn't cover the loop's work."""
        below = node
        for above in self.names.ancestors(node):
            if above is loop:
                return False
            if isinstance(above, ast.If) and below is not above.test:
                if not self._holds_work(above):
                    return True
            if isinstance(above, ast.IfExp) and below is not above.test:
                return True
            if isinstance(above, ast.Try | ast.ExceptHandler) and below not in (
                getattr(above, "body", ())
            ):
                return True
            below = above
        return False

    @cached_property
    def evaluations(self) -> list[ast.For]:
        """Loops over batches that call a model, record gradients, and train nothing.

        A loop beside a backward pass, in the same block or in one around it, is part of a step.
        """
        backward = self.names.by_attribute.get("backward", ())
        steps = {_enclosing_loop(self.names, node) for node in backward}
        return [
            loop
            for loop in self.names.all(ast.For)
            if not (backward and trains(loop))
            and _enclosing_loop(self.names, loop) not in steps
            and may_bring_batches(self.flow, loop.iter)
            and self._calls_model(loop)
        ]

    def _calls_model(self, loop: ast.For) -> bool:
        return any(
            isinstance(call, ast.Call)
            and self.is_model(call.func)
            and round_of(self.names, call) == (loop, False)
            and not name_heuristics.is_loss_name(last_word(call))
            and not runs_over_models(loop, call)
            for call in own_nodes(loop.body)
        )

    @once_in
    def waits_for_a_person(self, loop: Loop) -> bool:
        """Whether each iteration waits for user input, compared to which the device is fast."""
        header = loop.iter if isinstance(loop, ast.For) else loop.test
        return any(
            self.names.qualified(node) in _TYPED
            for node in [*ast.walk(header), *own_nodes(loop.body)]
            if isinstance(node, ast.Name | ast.Attribute)
        )

    @once_in
    def _holds_work(self, node: Loop | ast.If) -> bool:
        return any(map(self._is_work, own_nodes(node.body)))

    def _is_work(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        if self._is_training(node):
            return True
        if self.is_model(node.func):
            return not name_heuristics.is_loss_name(last_word(node))
        definition = self.flow.called_definition(node)
        return isinstance(definition, Function) and self._steps(definition)

    def _is_training(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        if is_backward(node.func):
            return True
        return node.func.attr == "step" and bool(is_optimizer_step(self.names, self.flow, node))

    def _steps(self, function: Function) -> bool:
        """Whether a function trains once in each call."""
        known = self._works.get(function)
        if known is None:
            known = any(
                isinstance(n, ast.Call) and is_backward(n.func) for n in own_nodes(function.body)
            )
            self._works[function] = known
        return known

    @staticmethod
    def _runs_over_layers(loop: Loop) -> bool:
        """`for block in blocks: x = block(x)`"""
        if not isinstance(loop, ast.For):
            return False
        targets = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        return any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in targets
            for n in own_nodes(loop.body)
        )

    def _called_in_rounds(self) -> set[ast.AST]:
        if self._called is None:
            self._called = set()
            roots: list[Function] = []
            for node in self.names.order:
                if isinstance(node, ast.Call):
                    definition = self.flow.called_definition(node)
                    if isinstance(definition, Function) and self.loop(node) is not None:
                        roots.append(definition)
            self._called = self.reached(roots)
        return self._called
