"""Computation: statements that only compute, so that they may run inside a compiled step.

Those that keep, read or print a value, or call unknown code, stay; so does anything in doubt.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from keyword import iskeyword

from migrator.analysis import hints
from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.syntax.once import once_in
from migrator.analysis.training.loops import (
    READING_FUNCTIONS,
    READING_METHODS,
    is_model,
    is_optimizer_step,
    is_scaler,
    may_bring_batches,
)
from migrator.analysis.values.kinds import Kind
from migrator.steps.callees import Callees
from migrator.steps.known import CHANGING, COMPUTED, CREATION, DATA, DRAWS, METHODS, PURE
from migrator.steps.reads import Reads
from migrator.steps.values import stored_names

_MOVABLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.With, ast.For, ast.If)
_FORBIDDEN = (
    ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Break, ast.Continue, ast.Global,
    ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Try, ast.Raise, ast.Assert, ast.Delete,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.While, ast.NamedExpr,
)  # fmt: skip
# In a function that is called, these are no obstacle: they depend on shapes, or cannot be traced.
_ALLOWED_INSIDE = (ast.Return, ast.FunctionDef, ast.Assert, ast.Raise, ast.Lambda, ast.Break,
                   ast.Continue, ast.While)  # fmt: skip


_LINE = re.compile(r"\bin line \d+\b(?! of)")  # of this file


@dataclass(frozen=True, eq=False)
class Computation(Callees):
    """What the statements of one file do."""

    @cached_property
    def reads(self) -> Reads:
        return Reads(self.names)

    @once_in
    def obstacle(self, statement: ast.stmt) -> str:
        """Why a statement cannot be moved into a step; "" where it is nothing but computation."""
        line, why = next(self.obstacles(statement), (0, ""))
        return f"line {line} {why}" if why else ""

    def obstacles(self, statement: ast.stmt) -> Iterator[tuple[int, str]]:
        """All that keeps a statement from moving into a step: lines, and what each does."""
        if not isinstance(statement, _MOVABLE) or (
            isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Call)
        ):
            yield statement.lineno, _beyond(statement)
        for node in ast.walk(statement):
            if why := self._node_obstacle(node):
                yield getattr(node, "lineno", statement.lineno), why

    def _node_obstacle(self, node: ast.AST) -> str:
        match node:
            case ast.Attribute(ctx=ast.Store()):
                return "" if self._is_of_self(node) else "keeps a value in an object"
            case ast.Subscript(ctx=ast.Store(), value=value):
                return "" if isinstance(value, ast.Name) else "keeps a value in an object"
            case ast.For(iter=items) if may_bring_batches(self.flow, items):
                return "loops over a loader"
            case ast.Call():
                return self.call_obstacle(node)
        return _beyond(node) if isinstance(node, _FORBIDDEN) else ""

    def changed(self, statement: ast.stmt) -> Iterator[str]:
        """Names of objects that a statement changes: they have to be the step's own."""
        for node in ast.walk(statement):
            match node:
                case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                    yield name
                case ast.Call(func=ast.Attribute(attr=method, value=ast.Name(id=name) as owner)):
                    if method in CHANGING and not is_scaler(self.flow, owner):
                        yield name

    def _is_of_self(self, node: ast.Attribute) -> bool:
        """True for `self.name`."""
        owner = node.value
        return isinstance(owner, ast.Name) and self.names.owner_class(owner) is not None

    def calls_own_methods(self, statement: ast.stmt) -> bool:
        """True where a method of the same object is called, which may look at its attributes."""
        return any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(self.flow.called_definition(node), ast.FunctionDef)
            for node in ast.walk(statement)
        )

    def call_obstacle(self, call: ast.Call, seen: frozenset[ast.AST] = frozenset()) -> str:
        """Why a call is no computation; `seen` are the functions that it is looked for in."""
        function = call.func
        qualname = self.names.qualified(function) or ""
        is_method = isinstance(function, ast.Attribute)
        name = function.attr if isinstance(function, ast.Attribute) else dotted(function) or ""
        if name in READING_METHODS or (name in READING_FUNCTIONS and not is_method):
            return f"reads a value ({name})"
        if qualname.startswith(DRAWS) and not qualname.endswith("_like"):
            return "" if _names_device(call) else "draws random numbers"
        if qualname.startswith(("torch.", "math.", "tpu_runtime.", "einops.")):
            return ""
        if name in PURE and not is_method:
            return ""
        if self.flow.kind(function) & Kind.MODULE:
            return ""
        if self._is_tensor_type(function):
            return ""
        called = self.definitions(function)
        if called:
            for where, definition in called:
                if why := where._body_obstacle(definition, seen):
                    return why if where is self else _LINE.sub(rf"\g<0> of {where.file}", why)
            return ""
        if (made := self.called_lambda(function)) is not None:
            where, body = made
            inner = (node for node in ast.walk(body) if isinstance(node, ast.Call))
            whys = (where.call_obstacle(node, seen | {body}) for node in inner)
            return "" if body in seen else next(filter(None, whys), "")
        named = is_model(self.flow, function) or hints.speaks_of_loss(name)
        if named and not hints.is_action_name(name) and self._is_variable(function):
            return ""
        if isinstance(function, ast.Attribute):
            if name == "step":
                moves = is_optimizer_step(self.names, self.flow, call)
                return "" if moves else "steps something else"
            if name == "update" and is_scaler(self.flow, function.value):
                return ""
            if name in METHODS and not self._is_module(function.value):
                return ""
            if self._is_torchs(function.value):
                return ""
            if name in CHANGING and isinstance(function.value, ast.Name):
                return "" if name != "update" else "updates a meter"
        return f"calls {name or 'a function'}(), which may do more than compute"

    def _body_obstacle(self, function: ast.FunctionDef, seen: frozenset[ast.AST]) -> str:
        """The same for a function that a step calls; what it makes itself it may change."""
        if function in seen:
            return ""  # calls itself
        seen |= {function}
        own = stored_names([function])
        for node in ast.walk(function):
            if isinstance(node, _FORBIDDEN) and not isinstance(node, _ALLOWED_INSIDE):
                return f"calls {function.name}(), which may do more than compute"
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                return f"calls {function.name}(), which keeps a value"
            inner = self.call_obstacle(node, seen) if isinstance(node, ast.Call) else ""
            if inner and isinstance(node, ast.Call):
                return f"calls {function.name}(), which in line {node.lineno} {inner}"
        for statement in function.body:
            if not own.issuperset(self.changed(statement)):
                return f"calls {function.name}(), which keeps a value"
        return ""

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

    # ---- data -----------------------------------------------------------------------------------

    def is_data(self, node: ast.expr) -> bool:
        """True for an expression that is made of data by moves and shapes alone: no graph."""
        match node:
            case ast.Name() | ast.Constant() | ast.Attribute():
                return True
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return all(self.is_data(item) for item in items)
            case (
                ast.ListComp(elt=item, generators=[ast.comprehension(iter=source)])
                | ast.GeneratorExp(elt=item, generators=[ast.comprehension(iter=source)])
                | ast.DictComp(value=item, generators=[ast.comprehension(iter=source)])
            ):
                return self.is_data(item) and self.is_data(source)
            case ast.Subscript(value=value) | ast.Starred(value=value):
                return self.is_data(value)
            case ast.Compare() | ast.BoolOp():
                return True
            case ast.BinOp(left=left, right=right):
                return self.is_data(left) and self.is_data(right)
            case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in DATA:
                return self.is_data(value)
            case ast.Call(func=function, args=args):
                made = self.names.qualified(function) or ""
                makes = (
                    made.startswith(("numpy.", "random."))
                    or CREATION.match(made)
                    or made.endswith("Variable")
                    or made in PURE
                    or self._is_tensor_type(function)
                )
                return bool(makes) and all(self.is_data(a) for a in args)
        return False

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
                    or hints.speaks_of_loss(name)
                    or name == "forward"
                ):
                    return True
                if self.names.qualified(part.func) == "torch.autograd.grad":
                    return True
                for where, definition in self.definitions(part.func):
                    if definition not in seen and where._has_graph(definition, seen | {definition}):
                        return True
        return False

    def is_move(self, statement: ast.stmt) -> bool:
        """`x, y = x.to(device), y.to(device)`: brings data to the device, and does nothing else."""
        if isinstance(statement, ast.If):  # if cuda: x = x.cuda()
            return not statement.orelse and all(map(self.is_move, statement.body))
        return (
            isinstance(statement, ast.Assign)
            and all(isinstance(t, ast.Name | ast.Tuple) for t in statement.targets)
            and self.is_data(statement.value)
            and not isinstance(statement.value, COMPUTED)
        )

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


def _names_device(call: ast.Call) -> bool:
    return any(keyword.arg == "device" for keyword in call.keywords)


def _beyond(node: ast.AST) -> str:
    """Why a node is no computation, by the keyword that it begins with."""
    word = ast.unparse(node).split()[0].rstrip(":")
    return f"contains `{word}`" if iskeyword(word) else "does more than compute"
