"""Scopes: one walk over a file's tree that records parents, scopes and bindings."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from migrator.analysis.syntax.nodes import dotted, parameters, taken_by

Node = TypeVar("Node", bound=ast.AST)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BINDING = frozenset({
    ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.NamedExpr,
    ast.For, ast.AsyncFor, ast.withitem, ast.ExceptHandler, ast.Global, ast.Nonlocal, ast.MatchAs,
    ast.MatchStar,
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Binding:
    """One binding of a name in a scope."""

    kind: str  # import, assign, item, loop, with, param, def, class, except, other
    node: ast.AST
    value: ast.expr | None = None  # the value assigned, iterated over, or entered, or the default
    annotation: ast.expr | None = None
    qualname: str | None = None  # imports only
    index: int | None = None  # items only: the position in the unpacked value


@dataclass(eq=False)
class Scope:
    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    outer_names: set[str] = field(default_factory=set)  # global and nonlocal declarations

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    def bind(self, name: str, binding: Binding) -> None:
        scope = self
        if name in self.outer_names:
            while scope.parent is not None:
                scope = scope.parent
        scope.bindings.setdefault(name, []).append(binding)


class Scopes:
    """Parents, scopes and bindings of one parsed file."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        # every node but operators and contexts, in source order, outer before inner
        self.order: list[ast.AST] = []
        self.top = Scope(tree, None)
        self.scopes: dict[ast.AST, Scope] = {tree: self.top}
        self.star_imports: list[str] = []
        self.imports: list[ast.Import | ast.ImportFrom] = []
        # what is stored on `self` by class, and on other dotted names ("args.device") by file
        self.class_attributes: dict[ast.ClassDef, dict[str, list[ast.expr | None]]] = {}
        self.dotted_assignments: dict[str, list[ast.expr]] = {}
        self.by_id: dict[str, list[ast.Name]] = {}
        self._scope_of: dict[ast.AST, Scope] = {}
        for statement in tree.body:
            self._visit(statement, tree, self.top)

    def _visit(self, node: ast.AST, parent: ast.AST, scope: Scope) -> None:
        self.parents[node] = parent
        self.order.append(node)
        kind = type(node)
        if kind is ast.Name:
            assert isinstance(node, ast.Name)
            self._scope_of[node] = scope
            self.by_id.setdefault(node.id, []).append(node)
            return
        if kind is ast.Constant:
            return
        if isinstance(node, DEFINITIONS) or kind is ast.Lambda:
            self._definition(node, scope)
            return
        if isinstance(node, COMPREHENSIONS):
            inner = self._open(node, scope)
            for i, generator in enumerate(node.generators):
                self._bind_target(inner, generator.target, "loop", generator.iter)
                self.parents[generator] = node
                self.order.append(generator)
                # the first iterable is evaluated outside the comprehension
                self._visit(generator.iter, generator, scope if i == 0 else inner)
                self._visit(generator.target, generator, inner)
                for test in generator.ifs:
                    self._visit(test, generator, inner)
            for part in ("elt", "key", "value"):
                child = getattr(node, part, None)
                if child is not None:
                    self._visit(child, node, inner)
            return
        if kind in _BINDING:
            self._bind(node, scope)
        for name in _HOLDING.get(kind) or _fields(kind):
            value = getattr(node, name, None)  # like `children`, without a generator for each node
            if isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        self._visit(item, node, scope)
            elif isinstance(value, ast.AST):
                self._visit(value, node, scope)

    def _open(self, node: ast.AST, scope: Scope) -> Scope:
        self.scopes[node] = inner = Scope(node, scope)
        return inner

    def _definition(self, node: ast.AST, scope: Scope) -> None:
        """Decorators, defaults, annotations and bases belong to the scope around a definition."""
        inner = self._open(node, scope)
        if isinstance(node, ast.ClassDef):
            scope.bind(node.name, Binding("class", node))
            self.class_attributes[node] = {}
            outside: list[ast.AST] = [*node.decorator_list, *node.bases, *node.keywords]
            body: list[ast.stmt] | list[ast.expr] = node.body
        else:
            assert isinstance(node, FUNCTIONS)
            arguments = node.args
            outside = [d for d in [*arguments.defaults, *arguments.kw_defaults] if d is not None]
            if isinstance(node, ast.Lambda):
                body = [node.body]
            else:
                scope.bind(node.name, Binding("def", node))
                outside = [*node.decorator_list, *outside]
                body = node.body
                if node.returns is not None:
                    outside.append(node.returns)
            for argument, default in parameters(arguments):
                inner.bind(argument.arg, Binding("param", argument, default, argument.annotation))
                self.parents[argument] = node
                if argument.annotation is not None:
                    outside.append(argument.annotation)
        for child in outside:
            self._visit(child, node, scope)
        for child in body:
            self._visit(child, node, inner)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        """Bind what a node of these classes (`_BINDING`) binds."""
        match node:
            case ast.Import():
                self.imports.append(node)
                for alias in node.names:
                    name = alias.asname or alias.name.split(".")[0]
                    meaning = alias.name if alias.asname else name
                    scope.bind(name, Binding("import", node, qualname=meaning))
            case ast.ImportFrom():
                self.imports.append(node)
                for alias in node.names:
                    if alias.name == "*":
                        self.star_imports.append("." * node.level + (node.module or ""))
                    else:
                        binding = Binding("import", node, qualname=taken_by(node, alias))
                        scope.bind(alias.asname or alias.name, binding)
            case ast.Assign():
                for target in node.targets:
                    self._bind_target(scope, target, "assign", node.value)
            case ast.AnnAssign():
                self._bind_target(scope, node.target, "assign", node.value, node.annotation)
            case ast.AugAssign() | ast.Delete():
                targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
                for target in targets:
                    self._bind_target(scope, target, "other", None)
            case ast.NamedExpr():
                while isinstance(scope.node, COMPREHENSIONS) and scope.parent:
                    scope = scope.parent
                self._bind_target(scope, node.target, "assign", node.value)
            case ast.For() | ast.AsyncFor():
                self._bind_target(scope, node.target, "loop", node.iter)
            case ast.withitem() if node.optional_vars is not None:
                self._bind_target(scope, node.optional_vars, "with", node.context_expr)
            case ast.ExceptHandler() if node.name:
                scope.bind(node.name, Binding("except", node))
            case ast.Global() | ast.Nonlocal():
                scope.outer_names.update(node.names)
            case ast.MatchAs() | ast.MatchStar() if node.name:
                scope.bind(node.name, Binding("other", node))

    def _bind_target(
        self,
        scope: Scope,
        target: ast.expr,
        kind: str,
        value: ast.expr | None,
        annotation: ast.expr | None = None,
    ) -> None:
        match target:
            case ast.Name():
                scope.bind(target.id, Binding(kind, target, value, annotation))
            case ast.Attribute():
                self._bind_attribute(scope, target, value if kind == "assign" else None)
            case ast.Starred():
                self._bind_target(scope, target.value, "other", None)
            case ast.Tuple() | ast.List():
                values: list[ast.expr | None] = [None] * len(target.elts)
                starred = any(isinstance(e, ast.Starred) for e in target.elts)
                if kind == "assign" and isinstance(value, ast.Tuple | ast.List) and not starred:
                    if len(value.elts) == len(values):
                        values = list(value.elts)
                for index, (element, part) in enumerate(zip(target.elts, values, strict=True)):
                    if part is None and kind in ("assign", "loop") and not starred:
                        if isinstance(element, ast.Name):
                            binding = Binding("item", element, value, index=index)
                            scope.bind(element.id, binding)
                            continue
                    self._bind_target(scope, element, kind if part else "other", part)

    def _bind_attribute(self, scope: Scope, target: ast.Attribute, value: ast.expr | None) -> None:
        if isinstance(target.value, ast.Name):
            owner = self._owner_class(scope, target.value.id)
            if owner is not None:
                self.class_attributes[owner].setdefault(target.attr, []).append(value)
                return
        name = dotted(target)
        if name and value is not None:
            self.dotted_assignments.setdefault(name, []).append(value)

    def _owner_class(self, scope: Scope, name: str) -> ast.ClassDef | None:
        """The class whose method has `name` as its first parameter (usually `self`)."""
        at: Scope | None = scope
        while at is not None:
            node = at.node
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name in at.bindings:
                first = (node.args.posonlyargs + node.args.args)[:1]
                parent = at.parent.node if at.parent else None
                if first and first[0].arg == name and isinstance(parent, ast.ClassDef):
                    return parent
                return None
            at = at.parent
        return None

    @cached_property
    def owners(self) -> dict[str, list[ast.ClassDef]]:
        """The classes of this file that have a method or a property, by its name."""
        found: dict[str, list[ast.ClassDef]] = {}
        for owner in self.class_attributes:
            for name, bindings in self.scopes[owner].bindings.items():
                if any(binding.kind == "def" for binding in bindings):
                    found.setdefault(name, []).append(owner)
        return found

    @cached_property
    def by_attribute(self) -> dict[str, list[ast.Attribute]]:
        """The attributes in the file, by name, in source order."""
        found: dict[str, list[ast.Attribute]] = {}
        for node in self.all(ast.Attribute):
            found.setdefault(node.attr, []).append(node)
        return found

    def all(self, kind: type[Node]) -> Sequence[Node]:
        """The nodes of one class, in source order."""
        found: Sequence[Node] = self._by_class.get(kind, ())  # type: ignore[assignment]
        return found

    @cached_property
    def _by_class(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = {}
        for node in self.order:
            found.setdefault(type(node), []).append(node)
        return found

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope in which `node` is evaluated."""
        at: ast.AST | None = node
        while at is not None:
            if at in self._scope_of:
                return self._scope_of[at]
            parent = self.parents.get(at)
            if parent in self.scopes and parent is not None:
                return self.scopes[parent]
            at = parent
        return self.top

    def lookup(self, name: ast.Name) -> list[Binding]:
        """All bindings of a name in the scope that Python would read it from."""
        return self.lookup_id(name.id, self.scope_of(name))

    def lookup_id(self, identifier: str, scope: Scope) -> list[Binding]:
        at: Scope | None = scope
        while at is not None:
            if identifier in at.bindings and not (at.is_class and at is not scope):
                return at.bindings[identifier]
            at = at.parent
        return []


def children(node: ast.AST) -> Iterator[ast.AST]:
    """A node's children, except those that carry no meaning by themselves: `Load()`, `Add()`."""
    kind = type(node)
    for name in _HOLDING.get(kind) or _fields(kind):
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            yield value
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, ast.AST):
                    yield item


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a class of nodes that may hold nodes."""
    if kind not in _HOLDING:
        _HOLDING[kind] = tuple(name for name in kind._fields if name not in _PLAIN)
    return _HOLDING[kind]


_HOLDING: dict[type, tuple[str, ...]] = {}
_PLAIN = frozenset({
    "ctx", "op", "ops", "id", "attr", "arg", "asname", "module", "level", "kind", "type_comment",
    "type_ignores", "conversion", "simple", "is_async", "kwd_attrs",
})  # fmt: skip
