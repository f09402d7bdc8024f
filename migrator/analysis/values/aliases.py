"""Aliases: which variables of a file may hold the same objects, or parts of them.

An assignment anywhere counts, in any order. What a parameter holds, what is imported, and what a
call of unknown code got or returned may be held by other code as well.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from functools import cached_property

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.scopes import COMPREHENSIONS, Scope
from migrator.analysis.values.effects import Effects
from migrator.analysis.values.torch_functions import (
    is_new,
    is_of_tensor,
    is_of_torch,
    writes_elsewhere,
)
from migrator.analysis.values.value_kinds import Kind

Variable = tuple[int, str]  # a scope and a name in it
_OUTSIDE: Variable = (0, "")
_LIBRARIES = ("math", "numpy", "os", "random", "torch")
_VALUES = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.UnaryOp, ast.Compare)
_ACTING = (
    ast.AugAssign, ast.Global, ast.Nonlocal, ast.Delete, ast.With, ast.AsyncWith, ast.AsyncFor,
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda,
    ast.Await, ast.Yield, ast.YieldFrom, ast.Raise, ast.Assert, ast.Try,
)  # fmt: skip
_IMMUTABLE = Kind.INT | Kind.STRING | Kind.BOOL | Kind.DTYPE | Kind.DEVICE


class Aliases:
    def __init__(
        self,
        names: Names,
        effects: Effects,
        is_tensor: Callable[[ast.expr], bool],
        computing: Collection[ast.Call],
    ) -> None:
        self.names, self.effects = names, effects
        self._is_tensor, self._computing = is_tensor, set(computing)
        self._above: dict[Variable, Variable] = {}
        self._known: dict[ast.Call, bool] = {}
        self._tensors: dict[ast.expr, bool] = {}
        self._linked = False

    def variable(self, name: ast.Name) -> Variable:
        scope: Scope | None = self.names.scope_of(name)
        while scope is not None and name.id not in scope.bindings:
            scope = scope.parent
        return (id(scope), name.id) if scope is not None else (-1, name.id)

    def held_by(self, value: ast.expr) -> set[Variable]:
        """The objects that a value may be, or may be a part of."""
        self._link()
        return {self._first(source) for source in self._sources(value)}

    @property
    def outside(self) -> set[Variable]:
        """The objects that other code may hold."""
        self._link()
        return {self._first(_OUTSIDE)}

    def is_alone(self, name: ast.Name) -> bool:
        """Whether an object is new where it is assigned to a variable, and has no other name."""
        self._link()
        mine = self.variable(name)
        first = self._first(mine)
        if first == self._first(_OUTSIDE) or self.is_shared(mine):
            return False
        bound = self.names.lookup(name)
        new = all(b.kind == "assign" and self._sources(b.value) <= {mine} for b in bound)
        return (
            bool(bound)
            and new
            and not any(self._first(other) == first for other in self._above if other != mine)
        )

    def is_library(self, node: ast.expr) -> bool:
        """Whether it is a builtin, or a part of a library whose parts are known by their names."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        if not isinstance(node, ast.Name) or (name := self.names.qualified(node)) is None:
            return False
        return not self.names.lookup(node) or name.partition(".")[0] in _LIBRARIES

    def is_shared(self, variable: Variable) -> bool:
        """Whether code of another function may read or assign a variable."""
        return variable[0] == -1 or variable in self._shared

    @cached_property
    def _shared(self) -> set[Variable]:
        found = set()
        for each in self.names.scopes.values():
            found |= {(id(self.names.top), name) for name in each.outer_names}
        for uses in self.names.by_id.values():
            for use in uses:
                scope: Scope | None = self.names.scope_of(use)
                inner = False
                while scope is not None and use.id not in scope.bindings:
                    inner |= not isinstance(scope.node, COMPREHENSIONS)
                    scope = scope.parent
                if inner and scope is not None:
                    found.add((id(scope), use.id))
        return found

    # ---- calls -----------------------------------------------------------------------------------

    def computes(self, call: ast.Call) -> bool:
        """Whether a call is shown to only compute a value: it writes nothing that it is given."""
        if call in self._computing:
            return True
        if call not in self._known:
            self._known[call] = False  # a function that calls itself
            self._known[call] = self._only_computes(call)
        return self._known[call]

    def _only_computes(self, call: ast.Call) -> bool:
        if self.effects.first([call]) is None:
            return True
        if writes_elsewhere(call):
            return False
        name = self.names.qualified(call.func)
        if name is not None:
            return is_of_torch(name)
        function = self.effects.flow.definition(call.func)
        if isinstance(function, ast.FunctionDef) and not function.decorator_list:
            return all(map(self._is_quiet, ast.walk(ast.Module(function.body, []))))
        method = call.func
        return (
            isinstance(method, ast.Attribute)
            and is_of_tensor(method.attr)
            and self.is_tensor(method.value)
        )

    def _is_quiet(self, node: ast.AST) -> bool:
        """Whether a node in a function's body does nothing but compute, and assign to variables."""
        match node:
            case ast.Call():
                return self.computes(node)
            case ast.Attribute(ctx=context) | ast.Subscript(ctx=context):
                return isinstance(context, ast.Load)
            case ast.For(iter=source) | ast.comprehension(iter=source):
                return not self.may_run_out(source)
        return not isinstance(node, _ACTING)

    def is_tensor(self, value: ast.expr | None) -> bool:
        """Whether a value is known to be a tensor, or to consist of tensors."""
        if value is None:
            return False
        if value not in self._tensors:
            self._tensors[value] = False  # a value that is computed from itself
            self._tensors[value] = self._consists_of_tensors(value)
        return self._tensors[value]

    def _consists_of_tensors(self, value: ast.expr) -> bool:
        if self.effects.flow.kind(value) == Kind.TENSOR or self._is_tensor(value):
            return True
        match value:
            case ast.Call() if value in self._computing:
                return True
            case ast.Call(func=ast.Attribute(value=owner)) if self.computes(value):
                return is_of_torch(self.names.qualified(value.func)) or self.is_tensor(owner)
            case ast.Subscript(value=owner) | ast.Attribute(value=owner):
                return self.is_tensor(owner)
            case ast.BinOp(left=left, right=right):
                return self.is_tensor(left) or self.is_tensor(right)
            case ast.Name() if self._computing:
                bound = self.names.lookup(value)
                known = [b.value for b in bound if b.kind in ("assign", "item")]
                known = [v for v in known if v is not None and not _names(v, value.id)]
                plain = all(b.kind in ("assign", "item") for b in bound)
                return plain and bool(known) and all(map(self.is_tensor, known))
        return False

    def may_run_out(self, source: ast.expr) -> bool:
        """Whether iterating may change what is iterated over, as it does an iterator."""
        return self.effects.may_run_out(source) and not self.is_tensor(source)

    # ---- which variables hold the same -----------------------------------------------------------

    def _first(self, variable: Variable) -> Variable:
        while (above := self._above.get(variable, variable)) != variable:
            variable = above
        return variable

    def _join(self, *variables: Variable) -> None:
        first, *others = map(self._first, variables)
        for other in others:
            if other != first:
                self._above[other] = first
                first = self._first(first)
        for variable in variables:
            self._above.setdefault(variable, self._first(variable))

    def _sources(self, value: ast.AST | None) -> set[Variable]:
        match value:
            case None | ast.Lambda():
                return {_OUTSIDE} if value is not None else set()
            case ast.Name():
                if self.is_library(value) or self._is_immutable(value):
                    return set()
                variable = self.variable(value)
                return {variable, _OUTSIDE} if self.is_shared(variable) else {variable}
            case ast.Attribute() if self.is_library(value):
                return {_OUTSIDE}
            case ast.Attribute(value=owner) | ast.Subscript(value=owner):
                return self._sources(owner)
            case ast.Starred(value=inner) | ast.NamedExpr(value=inner):
                return self._sources(inner)
            case ast.Call():
                return self._returned(value)
            case ast.IfExp(body=one, orelse=other):
                return self._sources(one) | self._sources(other)
            case _ if isinstance(value, _VALUES):
                return set()
            case ast.Await() | ast.Yield() | ast.YieldFrom():
                return {_OUTSIDE}
        found: set[Variable] = set()
        for part in ast.iter_child_nodes(value):
            found |= self._sources(part)
        return found

    def _is_immutable(self, name: ast.Name) -> bool:
        kind = self.effects.flow.kind(name)
        bound = self.names.lookup(name)
        told = all(b.kind == "assign" or b.annotation is not None for b in bound)
        return bool(kind) and not kind & ~_IMMUTABLE and told and bool(bound)

    def _returned(self, call: ast.Call) -> set[Variable]:
        if call in self._computing:
            return set()
        given = [*call.args, *(k.value for k in call.keywords)]
        if isinstance(call.func, ast.Attribute) and not self.names.qualified(call.func):
            given.append(call.func.value)
        if not self.computes(call):
            return {_OUTSIDE}.union(*map(self._sources, given))
        if is_new(self.names, call) and (self._is_tensor_function(call)):
            return set()
        return set().union(*map(self._sources, given))

    def _is_tensor_function(self, call: ast.Call) -> bool:
        name = self.names.qualified(call.func)
        return is_of_torch(name) if name is not None else self.is_tensor(call)

    def _link(self) -> None:
        if self._linked:
            return
        self._linked = True
        for node in self.names.order:
            for target, value in _assigned(node):
                self._assign(target, self._sources(value))
            match node:
                case ast.withitem(optional_vars=ast.expr() as target):
                    self._assign(target, {_OUTSIDE, *self._sources(node.context_expr)})
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                    self._let_out(node)
                case ast.Call() if not self.computes(node):
                    if self.names.qualified(node.func) != "print":
                        self._join(_OUTSIDE, *self._sources(node))
                case ast.Yield(value=value) | ast.YieldFrom(value=value):
                    self._join(_OUTSIDE, *self._sources(value))

    def _let_out(self, function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """What a parameter holds is its caller's."""
        given, scope = function.args, id(self.names.scopes[function])
        for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
            if each is not None:
                self._join(_OUTSIDE, (scope, each.arg))

    def _assign(self, target: ast.expr, sources: set[Variable]) -> None:
        match target:
            case ast.Name():
                self._join(self.variable(target), *sources)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._assign(part, sources)
            case ast.Starred(value=inner):
                self._assign(inner, sources)
            case ast.Attribute() | ast.Subscript():
                held = self._sources(target)
                if held and sources:
                    self._join(*held, *sources)


def _names(value: ast.expr, name: str) -> bool:
    """`logits[:, -1]`: a part of what the same variable held."""
    while isinstance(value, ast.Subscript | ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name) and value.id == name


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _pairs(target, value)
        case ast.AnnAssign(target=target, value=value) | ast.AugAssign(target=target, value=value):
            yield target, value
        case ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            yield target, value
        case ast.comprehension(target=target, iter=value):
            yield target, value


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """`a, b = c, d` as two assignments."""
    match target, value:
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for one, other in zip(targets, values, strict=True):
                yield from _pairs(one, other)
        case _:
            yield target, value
