"""Names that have become others."""

import ast
from collections.abc import Mapping, Sequence

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Edit,
    EditImport,
    Insert,
    Keep,
    Replace,
    Report,
    Rewrite,
)
from migrator.rule_api.libraries import imported_name
from migrator.rule_api.python import exported, spoken


def renamed(ctx: Context, node: ast.Attribute, old: str, new: str) -> Decision:
    """A name that is reached through its module, by its new full name."""
    module, _, name = new.rpartition(".")
    if not isinstance(node.ctx, ast.Load):
        return Report(f"is assigned to; use {new} instead")
    if old.rpartition(".")[0] == module:
        return Rewrite([Replace(node, f"{{owner}}.{name}", {"owner": node.value})])
    spelled, requires = ctx.code.module(module)
    return Rewrite([Replace(node, f"{spelled}.{name}")], requires)


def with_new_names(ctx: Context, found: Construct, table: Mapping[str, str]) -> Decision:
    """All names of its import that have a new one, and their uses, in one step."""
    statement = ctx.names.parent(found.node)
    assert isinstance(found.node, ast.alias)
    if found.node.name == "*":
        return Report("a star import does not show which names it brings; import the names")
    if not isinstance(statement, ast.ImportFrom):
        return Report(f"a module as a whole; use {table[found.key]} instead")
    names = {a: imported_name(statement, a, ctx.file.package) for a in statement.names}
    new = {alias: table[name] for alias, name in names.items() if name in table}
    if found.node is not next(iter(new)):
        return Keep("stays, as what is imported with it")
    edits: list[Edit] = []
    rename: dict[ast.alias, str] = {}
    elsewhere: dict[ast.alias, tuple[str, str]] = {}
    for alias, full in new.items():
        module, _, name = full.rpartition(".")
        local = alias.asname or alias.name
        uses = _renamed(ctx, statement, alias, name)
        edits += [Replace(use, name) for use in uses]
        text = name if uses or local == name else f"{name} as {local}"
        if module == names[alias].rpartition(".")[0]:
            rename[alias] = text
        else:
            elsewhere[alias] = module, text
    other = None
    if len(elsewhere) == len(statement.names):  # the last module replaces the statement
        *_, (other, _) = elsewhere.values()
        for alias in [each for each, (module, _) in elsewhere.items() if module == other]:
            _, rename[alias] = elsewhere.pop(alias)
    edits.append(EditImport(statement, [*elsewhere], rename, other))
    taken: dict[str, list[str]] = {}
    for module, text in elsewhere.values():
        taken.setdefault(module, []).append(text)
    if taken:
        lines = [f"from {module} import {', '.join(texts)}" for module, texts in taken.items()]
        edits.append(Insert(ctx.names.tree, statement, lines))
    return Rewrite(edits)


def _renamed(
    ctx: Context, statement: ast.ImportFrom, alias: ast.alias, name: str
) -> Sequence[ast.Name]:
    """The uses of an imported name that can be renamed; none: it keeps its name."""
    names = ctx.names
    scope = names.scope_of(statement)
    if alias.asname is not None or len(scope.bindings.get(alias.name, ())) != 1:
        return ()
    if alias.name in exported(names) | spoken(names) or name in names.by_id:
        return ()
    if any(name in each.bindings for each in names.scopes.values()):
        return ()
    if ctx.project is not None and ctx.project.path.name == "__init__.py":
        return ()  # other files import it from here
    return list(names.uses(alias.name, scope))
