"""Imports that are unused once their constructs are rewritten."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial

from migrator.analysis.construct_names import Vocabulary
from migrator.analysis.syntax.exports import exported, spoken
from migrator.analysis.syntax.names import Names
from migrator.edits import Delete, Edit, EditImport


def unused_imports(
    names: Names,
    removed: set[ast.AST],
    vocabulary: Vocabulary,
    foreign: tuple[str, ...],
    taken: Callable[[], frozenset[str]],
) -> list[Edit]:
    """Edits that remove imports whose every use is in `removed`.

    Imports of `foreign` libraries, which the target lacks, are removed even if they were never
    used. Otherwise only imports that constructs of `vocabulary` come from may be removed. Names
    that other files import from this one (`taken`) stay.
    """
    found = _unused(names, removed, foreign, vocabulary)
    if not found:
        return []
    kept = taken()
    return [edit for edit in map(partial(_edit_without, kept), found) if edit is not None]


def _unused(
    names: Names, removed: set[ast.AST], foreign: tuple[str, ...], vocabulary: Vocabulary
) -> list[Edit]:
    result: list[Edit] = []
    # under `try` or `if`, an import is a test; it stays unless its outcome is known
    answered = {s: block for s in names.imports if (block := _with_fallback(names, s))}
    plain = [s for s in names.imports if s in answered or names.is_plain_import(s)]
    gone = {
        s: [a for a in s.names if _lost_all_uses(names, s, a, removed, foreign, vocabulary)]
        for s in plain
        if removed.isdisjoint(s.names)  # otherwise it is already edited
    }
    libraries = {_library(vocabulary, s, a) for s, aliases in gone.items() for a in aliases} - {
        None
    }
    for statement, unused in gone.items():
        aliases = [
            alias
            for alias in statement.names
            if alias in unused
            or (
                _library(vocabulary, statement, alias) in libraries
                and _is_never_used(names, statement, alias)
            )
        ]
        if len(aliases) == len(statement.names):
            result.append(Delete(answered.get(statement, statement)))
        elif aliases and statement not in answered:
            result.append(EditImport(statement, drop=aliases))
    return result


def _with_fallback(names: Names, statement: ast.Import | ast.ImportFrom) -> ast.Try | None:
    """`try: from torch.cuda.amp import GradScaler`, `except ImportError: class GradScaler: …`"""
    block = names.never_fails(statement)
    bound = {alias.asname or alias.name for alias in statement.names}
    for other in (s for handler in block.handlers for s in handler.body) if block else ():
        match other:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) if name in bound:
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant()) if name in bound:
                continue
            case ast.ImportFrom(names=aliases) if bound >= {a.asname or a.name for a in aliases}:
                continue
            case ast.Pass():
                continue
        return None
    return block


def _edit_without(taken: frozenset[str], edit: Edit) -> Edit | None:
    """The edit, except for names that other files import from here."""
    node = edit.node.body[0] if isinstance(edit.node, ast.Try) else edit.node
    aliases = edit.drop if isinstance(edit, EditImport) else getattr(node, "names", ())
    gone = [a for a in aliases if not {a.asname or a.name, "*"} & taken]
    if len(gone) == len(aliases):
        return edit
    if node is not edit.node:
        return None
    assert isinstance(node, ast.Import | ast.ImportFrom)
    return EditImport(node, drop=gone) if gone else None


def _meaning(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """The full name that an import binds; "" for a relative import."""
    if isinstance(statement, ast.Import):
        return alias.name
    return f"{statement.module}.{alias.name}" if not statement.level else ""


def _library(
    vocabulary: Vocabulary, statement: ast.Import | ast.ImportFrom, alias: ast.alias
) -> str | None:
    """The CUDA-only library that a name comes from, if its uses are rewritten."""
    meaning = _meaning(statement, alias)
    return next((name for name in vocabulary.libraries if f"{meaning}.".startswith(name)), None)


def _is_never_used(names: Names, statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
    """`import xformers` beside `import xformers.ops as xops`."""
    name, scope = alias.asname or alias.name, names.scope_of(statement)
    plain = isinstance(statement, ast.Import) and "." not in name and name not in exported(names)
    return plain and name not in spoken(names) and not any(names.uses(name, scope))


def _lost_all_uses(
    names: Names,
    statement: ast.Import | ast.ImportFrom,
    alias: ast.alias,
    removed: set[ast.AST],
    foreign: tuple[str, ...],
    vocabulary: Vocabulary,
) -> bool:
    meaning = _meaning(statement, alias)
    scope, name = names.scope_of(statement), alias.asname or alias.name
    library = _library(vocabulary, statement, alias) is not None
    is_foreign = meaning.startswith(foreign)
    of_framework = "." in meaning and meaning.partition(".")[0] in vocabulary.packages
    binds_package = isinstance(statement, ast.Import) and "." in name
    if library:  # it cannot be installed anywhere, so remove it inside functions, too
        name = alias.asname or alias.name.partition(".")[0]
    elif scope is not names.top:
        return False
    elif is_foreign and binds_package:
        return all(use in removed for use in names.uses(meaning.partition(".")[0], names.top))
    elif not is_foreign and not of_framework and not vocabulary.lends(meaning):
        return False
    elif binds_package:
        if meaning.startswith(vocabulary.packages):
            return False  # `import torch.cuda` binds torch
        name = name.partition(".")[0]
    if name in exported(names):
        return False
    bindings = scope.bindings.get(name, ())
    if block := _with_fallback(names, statement):
        fallback = {node for handler in block.handlers for node in ast.walk(handler)}
        bindings = [b for b in bindings if b.node not in fallback]
    if is_foreign:
        if name != meaning.partition(".")[0] and name in spoken(names):
            return False
        if any(b.kind != "import" for b in bindings):
            return False
    else:
        several = library and all(names.is_plain_import(b.node) for b in bindings)
        if (len(bindings) != 1 and not several) or name in spoken(names):
            return False
    if (meaning == "os" or of_framework) and not {"eval", "exec"}.isdisjoint(names.by_id):
        return False
    uses = list(names.uses(name, scope))
    return (bool(uses) or is_foreign) and all(use in removed for use in uses)
