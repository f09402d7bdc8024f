"""Computation: whether code does nothing but compute, and which values get a graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from migrator.analysis import name_heuristics
from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.nodes import dotted, stored_names
from migrator.analysis.training.find_optimizer_steps import (
    READING_FUNCTIONS,
    READING_METHODS,
    is_model,
    is_optimizer_step,
    is_scaler,
)
from migrator.analysis.training.known_calls import CHANGING, DRAWS, METHODS, PURE
from migrator.analysis.training.later_reads import LaterReads
from migrator.analysis.values.callees import Callees
from migrator.analysis.values.value_kinds import Kind

# What a function that only computes does not contain.
_MORE = (
    ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom,
    ast.Try, ast.Delete, ast.AsyncFunctionDef, ast.ClassDef, ast.NamedExpr,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Computation(Callees):
    """What the code of one file computes."""

    @cached_property
    def reads(self) -> LaterReads:
        return LaterReads(self.names)

    def changed(self, statement: ast.stmt) -> Iterator[str]:
        """Names of containers that a statement changes."""
        for node in ast.walk(statement):
            match node:
                case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                    yield name
                case ast.Call(func=ast.Attribute(attr=method, value=ast.Name(id=name) as owner)):
                    if method in CHANGING and not is_scaler(self.flow, owner):
                        yield name

    def may_do_more(self, call: ast.Call, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether a call may do more than compute; `seen` are the functions that it is in."""
        function = call.func
        qualname = self.names.qualified(function) or ""
        is_method = isinstance(function, ast.Attribute)
        name = function.attr if isinstance(function, ast.Attribute) else dotted(function) or ""
        if name in READING_METHODS or (name in READING_FUNCTIONS and not is_method):
            return True
        if qualname.startswith(DRAWS) and not qualname.endswith("_like"):
            return all(keyword.arg != "device" for keyword in call.keywords)
        if qualname.startswith(("torch.", "math.", "tpu_runtime.", "einops.")):
            return False
        if name in PURE and not is_method:
            return False
        if self.flow.kind(function) & Kind.MODULE or self._is_tensor_type(function):
            return False
        if called := self.definitions(function):
            return any(where._body_does_more(definition, seen) for where, definition in called)
        if (made := self.called_lambda(function)) is not None:
            where, body = made
            inner = (node for node in ast.walk(body) if isinstance(node, ast.Call))
            return body not in seen and any(where.may_do_more(c, seen | {body}) for c in inner)
        named = is_model(self.flow, function) or name_heuristics.speaks_of_loss(name)
        if named and not name_heuristics.is_action_name(name) and self._is_variable(function):
            return False
        return not (isinstance(function, ast.Attribute) and self._only_computes(call, function))

    def _only_computes(self, call: ast.Call, method: ast.Attribute) -> bool:
        """The same for a method of an object of which no more is known."""
        name, owner = method.attr, method.value
        if name == "step":
            return bool(is_optimizer_step(self.names, self.flow, call))
        if name == "update" and is_scaler(self.flow, owner):
            return True
        if name in METHODS and not self._is_module(owner):
            return True
        if self._is_torchs(owner):
            return True
        return name in CHANGING and isinstance(owner, ast.Name) and name != "update"

    def _body_does_more(self, function: ast.FunctionDef, seen: frozenset[ast.AST]) -> bool:
        """The same for a function that is called; what it makes itself it may change."""
        if function in seen:
            return False  # calls itself
        seen |= {function}
        own = stored_names([function])
        for node in ast.walk(function):
            if isinstance(node, _MORE):
                return True
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                return True
            if isinstance(node, ast.Call) and self.may_do_more(node, seen):
                return True
        return not all(own.issuperset(self.changed(statement)) for statement in function.body)

    def _is_variable(self, function: ast.expr) -> bool:
        """True for what holds a model or a loss, False for a function."""
        names = self.names
        if names.qualified(function):
            return False
        root = function
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(function, ast.Attribute) and isinstance(root, ast.Name):
            owner = names.owner_class(root)
            if owner is not None:
                return not any(
                    b.kind == "def" for b in names.scopes[owner].bindings.get(function.attr, ())
                )
            return True
        kinds = {b.kind for b in names.lookup(root)} if isinstance(root, ast.Name) else set()
        return not kinds & {"def", "class", "import"}

    @once_in
    def has_graph(self, node: ast.AST) -> bool:
        """True for code in which a model or a loss is called, or a gradient is taken."""
        return self._has_graph(node, frozenset())

    def _has_graph(self, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                name = (dotted(part.func) or "").rpartition(".")[2]
                if (
                    is_model(self.flow, part.func)
                    or name_heuristics.speaks_of_loss(name)
                    or name == "forward"
                ):
                    return True
                if self.names.qualified(part.func) == "torch.autograd.grad":
                    return True
                for where, definition in self.definitions(part.func):
                    if definition not in seen and where._has_graph(definition, seen | {definition}):
                        return True
        return False

    def _is_torchs(self, node: ast.expr) -> bool:
        """True for an object of torch's, as a distribution is."""
        values = [binding.value for binding in self.bindings(node)]
        return bool(values) and all(
            isinstance(value, ast.Call)
            and (self.names.qualified(value.func) or "").startswith("torch.distributions.")
            for value in values
        )

    def _is_module(self, node: ast.expr) -> bool:
        """True for `np` of `import numpy as np`: its functions are no methods of tensors."""
        return isinstance(node, ast.Name) and any(
            isinstance(binding.node, ast.Import) for binding in self.names.lookup(node)
        )

    def _is_tensor_type(self, function: ast.expr) -> bool:
        """`Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor`."""
        if not isinstance(function, ast.Name):
            return False
        return any(
            (self.names.qualified(part) or "").endswith("Tensor")
            for binding in self.names.lookup(function)
            if binding.value is not None
            for part in ast.walk(binding.value)
            if isinstance(part, ast.Attribute)
        )
