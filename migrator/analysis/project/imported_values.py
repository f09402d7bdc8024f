"""Imported values: the meaning of names that a file imports from its project."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from migrator.analysis.project.file_facts import FileFacts
from migrator.analysis.project.import_graph import ImportGraph
from migrator.analysis.syntax.exports import exported
from migrator.analysis.syntax.names import Binding
from migrator.analysis.values.value_kinds import Kind


class ImportedValues(ImportGraph):
    """What one file imports from its project."""

    def kind(self, qualname: str, depth: int = 0) -> Kind:
        """The kind of an imported project name, or of what it returns when called."""
        found = self._definition(qualname)
        if found is None or depth > 4:
            return Kind.NOTHING
        facts, name, path = found
        kinds = Kind.NOTHING
        for binding in facts.names.top.bindings.get(name, ()):
            match binding.node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    kinds |= facts.flow.returns(binding.node)
                case ast.ClassDef() if facts.flow.is_module_class(binding.node):
                    kinds |= Kind.MODULE
            if binding.kind == "assign":
                kinds |= facts.flow.kind(binding.value)
            elif binding.kind == "import" and binding.qualname:
                there = self.of(path)
                kinds |= there.kind(binding.qualname, depth + 1)
        return kinds

    def starred(self, module: str, name: str, depth: int = 0) -> str | None:
        """The torch name that `name` stands for if `from module import *` provides it."""
        path = self.resolve(module)
        if path is None or depth > 4 or not self.cache.file(path).may_lend(name):
            return None
        facts = self.cache.facts(path)
        if facts is None:
            return None
        bindings = facts.names.top.bindings.get(name, ())
        for binding in bindings:
            if binding.kind == "import" and (binding.qualname or "").split(".")[0] == "torch":
                return binding.qualname
        there = self.of(path)
        found = (there.starred(m, name, depth + 1) for m in facts.names.star_imports)
        return None if bindings else next((meaning for meaning in found if meaning), None)

    def definition(
        self, qualname: str
    ) -> tuple[FileFacts, Self, ast.FunctionDef | ast.ClassDef] | None:
        """The project's function or class for an imported name, with its file's facts."""
        match self._bound(qualname):
            case facts, there, Binding(node=ast.FunctionDef() | ast.ClassDef() as found):
                return facts, there, found
        return None

    def origin(self, qualname: str) -> tuple[FileFacts, Self, str] | None:
        """The project file that defines an imported name, and its name there."""
        found = self._definition(qualname)
        return (found[0], self.of(found[2]), found[1]) if found is not None else None

    def assigned(self, qualname: str) -> tuple[FileFacts, Self, ast.expr] | None:
        """The value of an imported project name, if it is bound only once."""
        match self._bound(qualname):
            case facts, there, Binding(kind="assign", value=ast.expr() as value):
                return facts, there, value
        return None

    def _bound(self, qualname: str, depth: int = 0) -> tuple[FileFacts, Self, Binding] | None:
        """The only binding of an imported name, in the project file that defines it."""
        found = self._definition(qualname)
        if found is None or depth > 4:
            return None
        facts, name, path = found
        there = self.of(path)
        match facts.names.top.bindings.get(name):
            case [Binding(kind="import", qualname=str(origin))]:
                return there._bound(origin, depth + 1)
            case [binding]:
                return facts, there, binding
        return None

    def _definition(self, qualname: str) -> tuple[FileFacts, str, Path] | None:
        module, _, name = qualname.rpartition(".")
        if not module or module.startswith("torch."):
            return None
        path = self.resolve(module if module.strip(".") else module + ".")
        return self._provided(path, name) if path is not None else None

    def _provided(
        self, path: Path, name: str, depth: int = 0
    ) -> tuple[FileFacts, str, Path] | None:
        """The file that a module has a name from: itself, or one of its star imports."""
        facts = self.cache.facts(path)
        if facts is None or name in facts.names.top.bindings or depth > 4:
            return (facts, name, path) if facts is not None else None
        there = self.of(path)
        for module in reversed(facts.names.star_imports):
            brought = there.resolve(module)
            if brought is None:
                break  # a library, which may have such a name, too
            found = there._provided(brought, name, depth + 1)
            if found is not None and _is_offered(found[0], name):
                return found
        return facts, name, path

    def modules_of_programs(self) -> Iterator[str]:
        """The files that this one imports, directly or not, and those that import it."""
        for path in (self.path, *self.importers()):
            for file in (path, *self.reached(path)):
                yield from self.cache.file(file).modules

    def naming(self, word: str) -> Iterator[FileFacts]:
        """The files that this one imports, directly or not, whose text contains a word."""
        for path in self.reached():
            file = self.cache.file(path)
            if word.encode() in file.content and file.facts is not None:
                yield file.facts

    def defining(self, attribute: str) -> Iterator[tuple[Path, FileFacts]]:
        """The files that this one imports, directly or not, with a class with this attribute."""
        for path in self.reached():
            file = self.cache.file(path)
            if file.may_define(attribute) and file.facts is not None:
                if attribute in file.facts.names.owners:
                    yield path, file.facts


def _is_offered(facts: FileFacts, name: str) -> bool:
    """Whether a star import brings a name that the module has."""
    bound = facts.names.top.bindings
    public = name in exported(facts.names) if "__all__" in bound else not name.startswith("_")
    return name in bound and public
