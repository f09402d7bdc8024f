"""Imports of names that are gone, and that nothing uses: they go."""

import ast
from collections.abc import Callable, Sequence

from migrator.analysis.syntax.exports import exported, spoken
from migrator.analysis.syntax.nodes import imported_names
from migrator.rule_api import Context, Decision, Delete, EditImport, Keep, Rewrite


def unused_names(
    ctx: Context,
    statement: ast.AST,
    is_gone: Callable[[str], bool],
    is_replaced: Callable[[ast.expr], bool] = lambda use: False,
) -> list[ast.alias]:
    """The names of an import that are gone and that nobody uses; uses that are replaced don't
    count."""
    if not isinstance(statement, ast.Import | ast.ImportFrom):
        return []
    return [
        each
        for name, each in imported_names(statement)
        if is_gone(name) and _is_unused(ctx, each, statement, is_replaced)
    ]


def without_unused(
    alias: ast.AST, statement: ast.Import | ast.ImportFrom, drop: Sequence[ast.alias]
) -> Decision:
    """The import without these names, of which this is one."""
    if drop[0] is not alias:
        return Keep("goes with what is imported with it")
    whole = len(drop) == len(statement.names)
    return Rewrite(
        [Delete(statement) if whole else EditImport(statement, drop)], note="nothing uses it"
    )


def _is_unused(
    ctx: Context,
    alias: ast.alias,
    statement: ast.Import | ast.ImportFrom,
    is_replaced: Callable[[ast.expr], bool],
) -> bool:
    names, local = ctx.names, alias.asname or alias.name.partition(".")[0]
    scope = names.scope_of(statement)
    others = [b for b in scope.bindings.get(local, ()) if b.node not in (statement, alias)]
    if not all(map(is_replaced, names.uses(local, scope))):
        package = alias.asname is None and "." in alias.name  # which another import binds, too
        if not package or not any(b.kind == "import" for b in others):
            return False
    if local in exported(names) or local in spoken(names):
        return False
    if ctx.project is None:
        return True
    taken = ctx.project.taken_names()
    return ctx.project.path.stem != "__init__" and taken.isdisjoint((local, "*"))
