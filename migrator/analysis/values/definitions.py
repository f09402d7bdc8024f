"""Definitions: the function, class or option of its own file that an expression refers to."""

from __future__ import annotations

import ast
from functools import cached_property

from migrator.analysis.syntax.command_line import is_option, option_name
from migrator.analysis.syntax.names import Binding, Names
from migrator.analysis.syntax.nodes import dotted


class Definitions:
    """The definitions of one file."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._returns: dict[ast.AST, list[ast.expr | None]] = {}
        self._made: dict[int, list[ast.ClassDef]] = {}

    def definition(self, func: ast.expr) -> ast.AST | None:
        """The definition in this file that an expression refers to, if there is only one."""
        if isinstance(func, ast.Name):
            bindings = self.names.lookup(func)
            if len(bindings) == 1 and bindings[0].kind in ("def", "class"):
                return bindings[0].node
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
            owner = self.names.owner_class(func.value)
            if owner is not None:
                methods = self.names.scopes[owner].bindings.get(func.attr, [])
                if len(methods) == 1 and methods[0].kind == "def":
                    return methods[0].node
        return None

    def made(self, bindings: list[Binding]) -> list[ast.ClassDef]:
        """The classes of this file of which a name is bound to an instance."""
        if id(bindings) not in self._made:
            calls = [
                self.definition(b.value.func)
                for b in bindings
                if b.kind in ("assign", "with", "param") and isinstance(b.value, ast.Call)
            ]
            self._made[id(bindings)] = [d for d in calls if isinstance(d, ast.ClassDef)]
        return self._made[id(bindings)]

    def called_definition(self, call: ast.Call) -> ast.AST | None:
        return self.definition(call.func)

    def returned(self, call: ast.Call) -> list[ast.expr | None]:
        """The expressions that a function of this file returns; methods are found by name."""
        function = self.definition(call.func)
        if function is None and isinstance(call.func, ast.Attribute):
            methods = self._methods.get(call.func.attr, ())
            function = methods[0] if len(methods) == 1 else None
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return []
        if function not in self._returns:
            self._returns[function] = [
                node.value
                for node in ast.walk(function)
                if isinstance(node, ast.Return) and self.names.function(node) is function
            ]
        return self._returns[function]

    @cached_property
    def _methods(self) -> dict[str, list[ast.AST]]:
        """The methods of all classes, by name."""
        found: dict[str, list[ast.AST]] = {}
        for owner in self.names.class_attributes:
            for name, bindings in self.names.scopes[owner].bindings.items():
                found.setdefault(name, []).extend(b.node for b in bindings if b.kind == "def")
        return found

    def is_module_class(self, node: ast.ClassDef, depth: int = 0) -> bool:
        for base in node.bases:
            name = self.names.qualified(base) or dotted(base) or ""
            if name.startswith("torch.nn.") or name.rpartition(".")[2].endswith("Module"):
                return True
            local = self.definition(base)
            if isinstance(local, ast.ClassDef) and depth < 8:
                if self.is_module_class(local, depth + 1):
                    return True
        return False

    def is_flag(self, node: ast.Attribute) -> bool:
        """Whether `self.is_cuda` is an attribute that the program sets, or `args.is_cuda` an
        option."""
        if dotted(node) in self.names.dotted_assignments or self.command_line_option(node.attr):
            return True
        owner = self.names.owner_class(node.value) if isinstance(node.value, ast.Name) else None
        return owner is not None and bool(self.names.class_attributes[owner].get(node.attr))

    def command_line_option(self, attribute: str) -> ast.Call | None:
        """The `add_argument` (or click option) call that defines `args.<attribute>`."""
        return self._options.get(attribute)

    @cached_property
    def _options(self) -> dict[str, ast.Call]:
        found: dict[str, ast.Call] = {}
        for node in self.names.order:
            if isinstance(node, ast.Call) and is_option(node):
                found.setdefault(option_name(node), node)
        return found
