"""Names: which import, parameter or assignment a name refers to.

Once the scopes are known, `qualified` resolves a dotted expression through aliases, local
imports and shadowing (`th.cuda`, `from torch import cuda`).
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable, Iterator, Set
from functools import cached_property

from migrator.analysis.syntax.canonical import canonical
from migrator.analysis.syntax.nodes import dotted, fails_silently, is_for, taken_by
from migrator.analysis.syntax.scopes import (
    COMPREHENSIONS,
    DEFINITIONS,
    FUNCTIONS,
    Binding,
    Scope,
    Scopes,
    children,
)

__all__ = [
    "COMPREHENSIONS", "DEFINITIONS", "FUNCTIONS", "Binding", "Names", "Scope", "children",
]  # fmt: skip


_AMP = ("torch.cuda.amp.", "torch.amp.")
_REFERRING = frozenset({ast.Attribute, ast.Name})
_EXITS = ("sys.exit", "exit", "quit", "os._exit", "os.abort")


class Names(Scopes):
    """Qualified names of one parsed file.

    `starred` gives the meaning of a name from a star import of the project: (module, name).
    """

    def __init__(
        self, tree: ast.Module, starred: Callable[[str, str], str | None] | None = None
    ) -> None:
        super().__init__(tree)
        self._starred = starred
        self._others: dict[str, str] = {}
        self._qualified: dict[ast.AST, str | None] = {}
        self._meanings: dict[Scope, dict[str, str | None]] = {}
        self._uses: dict[str, dict[Scope | None, list[ast.Name]]] = {}
        self._kinds: dict[int, tuple[set[str | None], list[Binding]]] = {}

    def in_project(self, starred: Callable[[str, str], str | None]) -> Names:
        """The same file, with the names that other files provide; it isn't walked again."""
        if not self.star_imports and not any(
            starred(module, last) for module, last in self._taken_from_others()
        ):
            return self  # they provide nothing relevant
        other = copy.copy(self)
        other._starred, other._others = starred, {}
        other._qualified, other._meanings = {}, {}
        for cached in ("meant", "words"):
            other.__dict__.pop(cached, None)
        return other

    def _taken_from_others(self) -> Iterator[tuple[str, str]]:
        """Modules other than torch's, and names that are imported from them."""
        for statement in self.imports:
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    module, _, last = taken_by(statement, alias).rpartition(".")
                    if module.partition(".")[0] != "torch" and last != "*":
                        yield module or ".", last

    @cached_property
    def bound(self) -> Set[str]:
        """All names that the file binds."""
        return frozenset(name for scope in self.scopes.values() for name in scope.bindings)

    @cached_property
    def words(self) -> Set[str]:
        """TargetApi without which nothing in the file has a qualified name that ends with them."""
        found = {*self.by_id, *self.by_attribute}
        found.update(alias.name.rpartition(".")[2] for each in self.imports for alias in each.names)
        if "getattr" in found:
            found.update(n.value for n in self.all(ast.Constant) if isinstance(n.value, str))
        if self._starred is not None:
            meant = [self._starred(module, last) for module, last in self._taken_from_others()]
            if self.star_imports:
                meant += map(self._brought, self.by_id)
            found.update(name.rpartition(".")[2] for name in meant if name)
        return found

    @cached_property
    def meant(self) -> list[tuple[ast.expr, str]]:
        """All names and attributes in the file that have a qualified name, with it, in order."""
        referring = (node for node in self.order if type(node) in _REFERRING)
        found = ((node, self.qualified(node)) for node in referring)
        return [(node, name) for node, name in found if name is not None]  # type: ignore[misc]

    def qualified(self, node: ast.AST) -> str | None:
        """`torch.cuda.amp.autocast` for any spelling of it, None if no import provides it."""
        if type(node) is ast.Name:
            return self._meaning(node)
        if node in self._qualified:
            return self._qualified[node]
        self._qualified[node] = None  # a name defined by itself has no meaning
        result: str | None = None
        if isinstance(node, ast.Attribute):
            base = self.qualified(node.value)
            result = canonical(f"{base}.{node.attr}") if base else None
        elif isinstance(node, ast.Call | ast.Subscript):
            result = canonical(self._named_by_text(node))
        self._qualified[node] = result
        return result

    def _meaning(self, node: ast.Name) -> str | None:
        """The qualified name of a name: the same everywhere in a scope."""
        known = self._meanings.setdefault(self.scope_of(node), {})
        if node.id not in known:
            known[node.id] = None  # a name defined by itself has no meaning
            known[node.id] = canonical(self._qualified_name(node))
        return known[node.id]

    def _named_by_text(self, node: ast.Call | ast.Subscript) -> str | None:
        """`getattr(torch, "cuda")`, `importlib.import_module("torch.cuda")`"""
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name))]):
                base = self.qualified(owner) or ""
                return f"{base}.{name}" if f"{base}.".startswith("torch.") else None
            case ast.Call(func=function, args=[ast.Constant(value=str(name))]):
                imports = self.qualified(function) == "importlib.import_module"
                return name if imports and name.startswith("torch.") else None
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(name))):
                holds = name.startswith("torch.") and self.qualified(owner) == "sys.modules"
                return name if holds else None
        return None

    def spelled(self, module: str) -> str | None:
        """The local name of a module that is imported at the top level, None if it isn't."""
        for name, bindings in self.top.bindings.items():
            if any(b.kind == "import" and b.qualname == module for b in bindings):
                return name
        return module if module in self.by_id and self._brought(module) == module else None

    def _brought(self, name: str) -> str | None:
        """The meaning of a name that isn't bound in this file: a star import provides it."""
        for module in reversed(self.star_imports):
            if module == "torch" and name in ("cuda", "device", "backends"):
                return f"torch.{name}"
            meaning = self._starred(module, name) if self._starred is not None else None
            if meaning is not None:
                return meaning
        return name if self.star_imports and name == "torch" else None

    def _sorted(self, bindings: list[Binding]) -> tuple[set[str | None], list[Binding]]:
        """The imports and the other bindings of a name: computed once for each list of a scope."""
        if id(bindings) not in self._kinds:
            imported = {b.qualname for b in bindings if b.kind == "import"}
            others = [b for b in bindings if b.kind != "import"]
            self._kinds[id(bindings)] = (imported, others)
        return self._kinds[id(bindings)]

    def _qualified_name(self, node: ast.Name) -> str | None:
        bindings = self.lookup(node)
        if not bindings:
            return node.id if hasattr(builtins, node.id) else self._brought(node.id)
        imported, others = self._sorted(bindings)
        if len(imported) > 1:  # try: from torch.cuda.amp … except: from torch.amp …
            first = next(b.qualname for b in bindings if b.kind == "import")
            return first if len({q.rpartition(".")[2] for q in imported if q}) == 1 else None
        if imported:
            meant = next(b for b in bindings if b.kind == "import")
            alternatives = all(self._are_alternatives(meant.node, b.node) for b in others)
            return self._passed_on(meant) if alternatives else None
        if len(others) == 1 and others[0].kind == "assign" and others[0].value is not None:
            meaning = self.qualified(others[0].value)  # cuda = torch.cuda
            if meaning in ("torch.cuda", "torch.cuda.amp", "torch.amp", "torch.backends.cudnn"):
                return meaning
        return None

    def _passed_on(self, imported: Binding) -> str | None:
        """The torch name that a project file re-exports under a name that is imported from it."""
        name = imported.qualname or ""
        module, _, last = name.rpartition(".")
        of_project = (
            isinstance(imported.node, ast.ImportFrom) and module.partition(".")[0] != "torch"
        )
        if not of_project or self._starred is None:
            return imported.qualname
        if name not in self._others:
            self._others[name] = self._starred(module or ".", last) or name
        return self._others[name]

    def _are_alternatives(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two definitions are branches of one `try` or `if`: an import and its fallback."""
        branching = {a for a in self.ancestors(one) if isinstance(a, ast.Try | ast.If)}
        return any(a in branching for a in self.ancestors(other))

    def is_guarded_import(self, node: ast.AST) -> bool:
        """True if a failing import is caught, so that the file runs without the library."""
        return any(
            isinstance(a, ast.ExceptHandler) or (isinstance(a, ast.Try) and self._goes_on(a))
            for a in self.ancestors(node)
        )

    def _goes_on(self, block: ast.Try) -> bool:
        """Whether code after a `try` is reached when it fails.

        A handler that only raises under a condition is taken to raise.
        """
        return any(map(self._handles, block.handlers))

    def _handles(self, handler: ast.ExceptHandler) -> bool:
        return not self.ends(handler.body) and not _only_raises(handler)

    def is_caught(self, node: ast.AST, error: str) -> bool:
        """Whether an error of a statement, by its class, is caught, so that the program goes on."""
        inner = node
        for above in self.ancestors(node):
            if isinstance(above, ast.Try) and inner in above.body:
                first = [h for h in above.handlers if is_for(h, error)][:1]
                if any(map(self._handles, first)):
                    return True
            inner = above
        return False

    def ends(self, body: list[ast.stmt]) -> bool:
        """Whether statements always raise an exception, or end the program."""
        match body[-1] if body else None:
            case ast.Raise():
                return True
            case ast.Expr(value=ast.Call(func=func)):
                return self.qualified(func) in _EXITS
            case ast.If(body=then, orelse=orelse):
                return self.ends(then) and self.ends(orelse)
        return False

    def never_fails(self, node: ast.AST) -> ast.Try | None:
        """The `try` around an import that could only fail in a PyTorch without torch.cuda.amp."""
        match self.parents.get(node):
            case ast.Try(body=[ast.ImportFrom(module=str(module), level=0)]) as block:
                own = block.body[0] is node and not block.orelse and not block.finalbody
                return block if own and f"{module}.".startswith(_AMP) else None
        return None

    def never_runs(self, node: ast.AST) -> bool:
        """True for code for a PyTorch without torch.cuda.amp, in the `except` of an import."""
        return any(
            isinstance(a, ast.ExceptHandler)
            and isinstance(block := self.parents[a], ast.Try)
            and self.never_fails(block.body[0]) is block
            for a in self.ancestors(node)
        )

    def is_plain_import(self, node: ast.AST) -> bool:
        """True for an import that always runs, in the file or when its function is called."""
        return isinstance(self.parents.get(node), (ast.Module, *FUNCTIONS))

    def is_without_fallback(self, node: ast.expr) -> bool:
        """True if only imports bind the first name of a dotted one, and nothing notes that one
        fails: plain ones, or `try: import apex` and `except ImportError: pass`."""
        bindings, above = self._first(node), [*self.ancestors(node)]
        blocks = [self.parents.get(b.node) for b in bindings if not self.is_plain_import(b.node)]
        silent = (isinstance(b, ast.Try) and b not in above and fails_silently(b) for b in blocks)
        return bool(bindings) and all(b.kind == "import" for b in bindings) and all(silent)

    def is_question(self, node: ast.AST) -> bool:
        """True for a name that is only imported in `try`, `if` or a function."""
        return any(b.kind == "import" and b.node not in self.tree.body for b in self._first(node))

    def ends_without(self, node: ast.AST) -> bool:
        """True for a name that is imported in a `try` that ends the program if it fails."""
        return any(
            b.kind == "import"
            and isinstance(self.parents.get(b.node), ast.Try)
            and not self.is_guarded_import(b.node)
            for b in self._first(node)
        )

    def _first(self, node: ast.AST) -> list[Binding]:
        """The import that binds the first name of a dotted one."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return self.lookup(node) if isinstance(node, ast.Name) else []

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        at = self.parents.get(node)
        while at is not None:
            yield at
            at = self.parents.get(at)

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.parents.get(node)

    def is_statement(self, node: ast.expr) -> bool:
        return isinstance(self.parents.get(node), ast.Expr)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement that contains `node` (or is it)."""
        at: ast.AST | None = node
        while at is not None and not isinstance(at, ast.stmt):
            at = self.parents.get(at)
        return at

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that contains one, empty if there is no such list."""
        parent = self.parents.get(statement)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and statement in block:
                return block
        return []

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        for ancestor in self.ancestors(node):
            if isinstance(ancestor, ast.FunctionDef | ast.AsyncFunctionDef):
                return ancestor
        return None

    def enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        for ancestor in self.ancestors(node):
            if isinstance(ancestor, ast.ClassDef):
                return ancestor
        return None

    def owner_class(self, name: ast.Name) -> ast.ClassDef | None:
        """The class that `self` refers to."""
        return self._owner_class(self.scope_of(name), name.id)

    def call_of(self, node: ast.AST) -> ast.Call | None:
        """The call whose function is `node`."""
        parent = self.parents.get(node)
        return parent if isinstance(parent, ast.Call) and parent.func is node else None

    def partial_of(self, node: ast.AST) -> ast.Call | None:
        """`functools.partial(f, …)` for its function `f`."""
        call = self.parents.get(node)
        if isinstance(call, ast.Call) and call.args[:1] == [node]:
            return call if self.qualified(call.func) == "functools.partial" else None
        return None

    def calls(self, node: ast.expr, depth: int = 0) -> Iterator[tuple[ast.Call, list[ast.expr]]]:
        """The known calls of a function in this file, with the positional arguments given before.

        Also through a `partial`, and through a name or an attribute that it is assigned to.
        """
        call = self.call_of(node)
        if call is not None:
            yield call, call.args
        bound = self.partial_of(node)
        if bound is not None:
            yield bound, bound.args[1:]
            for call, given in self.calls(bound, depth):
                yield call, [*bound.args[1:], *given]
        whole: ast.AST = node
        while isinstance(above := self.parents.get(whole), ast.IfExp | ast.BoolOp):
            whole = above
        if depth < 4 and isinstance(above, ast.Assign | ast.AnnAssign) and above.value is whole:
            for target in above.targets if isinstance(above, ast.Assign) else [above.target]:
                for use in self.loads(target):
                    yield from self.calls(use, depth + 1)

    def loads(self, target: ast.expr) -> Iterator[ast.expr]:
        """Where a name or an attribute that is assigned to is read."""
        if isinstance(target, ast.Name):
            yield from self.uses(target.id, self.scope_of(target))
        elif isinstance(target, ast.Attribute) and (name := dotted(target)):
            for node in self.by_attribute.get(target.attr, ()):
                if isinstance(node.ctx, ast.Load) and dotted(node) == name:
                    yield node

    def only_value(self, node: ast.expr) -> ast.expr:
        """The value of a name, if it is bound only once; otherwise the expression itself."""
        bound = self.lookup(node) if isinstance(node, ast.Name) else []
        value = bound[0].value if len(bound) == 1 and bound[0].kind == "assign" else None
        return value or node

    def uses(self, name: str, scope: Scope) -> Iterator[ast.Name]:
        """Loads of a name that is bound in `scope`."""
        if name not in self._uses:
            uses: dict[Scope | None, list[ast.Name]] = {}
            for node in self.by_id.get(name, ()):
                if isinstance(node.ctx, ast.Load):
                    at: Scope | None = self._scope_of[node]
                    while at is not None and name not in at.bindings:
                        at = at.parent
                    uses.setdefault(at, []).append(node)
            self._uses[name] = uses
        yield from self._uses[name].get(scope, ())


def _only_raises(handler: ast.ExceptHandler) -> bool:
    match handler.body:
        case [ast.If(body=[*_, ast.Raise()], orelse=[])]:
            return True
    return False
