"""Constructs by their name alone: what rules are about, and what a project replaces."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.construct_names import Vocabulary
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import taken_by
from migrator.construct import Construct
from migrator.frameworks.framework import ModuleView


def by_name(view: ModuleView) -> list[Construct]:
    """All constructs of a module that are some for their names: all that some frameworks have."""
    names, vocabulary, package = view.names, view.vocabulary, view.package
    found: list[Construct] = []
    parts: set[ast.AST] = set()  # of names that were found
    for node in names.order:
        match node:
            case ast.Import() | ast.ImportFrom():
                found += own_imports(names, node, vocabulary, package)
                match node:
                    case ast.ImportFrom(level=0, module=str(module), names=[ast.alias(name="*")]):
                        if module.startswith(vocabulary.stars):
                            found.append(Construct("star", module, node))
            case ast.Attribute() | ast.Name(ctx=ast.Load()):
                if node in parts:
                    construct = None
                else:
                    construct = replaced_name(names, node, vocabulary, package)
                    construct = construct or rule_name(names, node, vocabulary)
                if construct is not None:
                    found.append(construct)
                if isinstance(node, ast.Attribute) and (construct is not None or node in parts):
                    parts.add(node.value)
    return found


def rule_name(
    names: Names, node: ast.Attribute | ast.Name, vocabulary: Vocabulary, switches: str = ""
) -> Construct | None:
    """A name that rules are about, unless its library is one whose import may fail.

    What begins like `switches` is assigned to where it is used.
    """
    qualname = names.qualified(node)
    if qualname is None or not vocabulary.includes(qualname):
        return None
    if qualname.startswith(vocabulary.libraries) and not names.is_without_fallback(node):
        return None
    stored = not isinstance(node.ctx, ast.Load)
    if stored and switches and qualname.startswith(switches):
        stored = False
    return Construct("store" if stored else "name", qualname, node)


def replaced_name(
    names: Names, node: ast.Attribute | ast.Name, vocabulary: Vocabulary, package: str
) -> Construct | None:
    """A name that the project replaces; what an import brings is a matter of that import."""
    if not vocabulary.own or not isinstance(node, ast.Attribute):
        return None
    qualname = absolute(names.qualified(node) or "", package)
    return Construct("own", qualname, node) if qualname in vocabulary.own else None


def own_imports(
    names: Names, node: ast.Import | ast.ImportFrom, vocabulary: Vocabulary, package: str
) -> Iterator[Construct]:
    for alias in node.names:
        qualname = imported_name(node, alias, package)
        if alias.name == "*":
            taken = [key for key in vocabulary.own if key.rpartition(".")[0] == qualname[:-2]]
            used = (key.rpartition(".")[2] in names.by_id for key in taken)
            if any(used):
                yield Construct("own import", qualname, alias)
        elif qualname in vocabulary.own and (alias.asname or isinstance(node, ast.ImportFrom)):
            yield Construct("own import", qualname, alias)


def imported_name(
    statement: ast.Import | ast.ImportFrom, alias: ast.alias, package: str = ""
) -> str:
    """What an import takes, by its full name."""
    if isinstance(statement, ast.Import):
        return alias.name
    return absolute(taken_by(statement, alias), package)


def absolute(qualname: str, package: str) -> str:
    """`..ops.f` as it is called from outside."""
    level = len(qualname) - len(qualname.lstrip("."))
    if not level or not package:
        return qualname
    outer = package.split(".")
    return ".".join([*outer[: len(outer) + 1 - level], qualname.lstrip(".")])
