"""Imports: add those that new code needs, remove unused ones. Runs once per file, at the end."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import pairwise

from migrator.analysis.construct_names import Vocabulary
from migrator.analysis.devices.other_accelerators import imported_heads
from migrator.analysis.syntax.names import Names
from migrator.edits import Edit, Insert
from migrator.pipeline.unused_imports import unused_imports


def statement_for(module: str) -> str:
    """The import statement for a required module (`a.b as c` keeps its alias)."""
    return f"import {module}"


def local_name(module: str) -> str:
    path, _, alias = module.partition(" as ")
    return alias or path.partition(".")[0]


def local_path(module: str) -> str:
    path, _, alias = module.partition(" as ")
    return alias or path


def qualified_name(module: str) -> str:
    path, _, alias = module.partition(" as ")
    return path if alias else path.partition(".")[0]


def taken_names(names: Names, modules: Iterable[str]) -> list[str]:
    """Local names of required modules that the file already uses for something else."""
    taken = []
    for module in modules:
        name, meaning = local_name(module), qualified_name(module)
        for scope in names.scopes.values():
            for binding in scope.bindings.get(name, ()):
                if binding.kind != "import" or binding.qualname != meaning:
                    taken.append(name)
    return taken


def edits(
    names: Names,
    modules: Sequence[str],
    removed: set[ast.AST],
    vocabulary: Vocabulary,
    framework: str,
    setup: Insert | None = None,
    ahead: Insert | None = None,
    *,
    foreign: tuple[str, ...] = (),
    taken: Callable[[], frozenset[str]] = frozenset,
) -> list[Edit]:
    """Edits that add `modules`, and those of `unused_imports`.

    New imports go after the import of `framework`, above the statements of `setup`, which need
    them, and below those of `ahead`.
    """
    result: list[Edit] = []
    unused = unused_imports(names, removed, vocabulary, foreign, taken)
    blocks = {e.node.body[0]: e.node for e in unused if isinstance(e.node, ast.Try)}
    missing = [m for m in modules if not _is_imported(names, m)]
    for module in list(missing):
        beside = _imports_below_try(names, framework, module)
        if beside:
            missing.remove(module)
            result += [
                Insert(names.tree, blocks.get(at, at), [statement_for(module)]) for at in beside
            ]
    if missing:
        anchor, before = _anchor(names, framework)
        if anchor in blocks:  # if it is in a block, everything in the block goes with it
            anchor, before = blocks[anchor], False
        if setup is not None and _is_below(anchor, setup):
            anchor, before = setup.anchor, setup.before
        groups: dict[tuple[int, bool], list[str]] = {}
        anchors: dict[int, ast.stmt | None] = {}
        for module in sorted(missing, key=_sort_key):
            lines = range(_first_line(ahead), _last_line(setup) + 1)
            at, above = _sorted_place(names, anchor, before, module, lines)
            if ahead is not None and (at is None or at.lineno < _first_line(ahead)):
                at, above = ahead.anchor, ahead.before
            anchors[id(at)] = at
            groups.setdefault((id(at), above), []).append(statement_for(module))
        for (key, above), added in groups.items():
            if _is_docstring(anchors[key]) or _is_future(anchors[key]):
                added.insert(0, "")
            result.append(Insert(names.tree, anchors[key], added, before=above))
    result.extend(unused)
    return result


def _imports_below_try(names: Names, framework: str, module: str) -> list[ast.stmt]:
    """If a library is only imported under `try`: its first import in each `try`.

    Not under `if`, since other branches may need it, too.
    """
    library = module.partition(".")[0]
    found = [
        i
        for i in names.imports
        if (_import_name(i) or "").partition(".")[0] == library and names.function(i) is None
    ]
    if library == framework or not all(isinstance(names.parents[i], ast.Try) for i in found):
        return []
    return list({names.parents[i]: i for i in reversed(found)}.values())


def _first_line(ahead: Insert | None) -> int:
    """The first source line after the insertion."""
    if ahead is None or ahead.anchor is None:
        return 0
    return ahead.anchor.lineno + (not ahead.before)


def _last_line(setup: Insert | None) -> int:
    """The last source line above the insertion."""
    if setup is None:
        return sys.maxsize
    return 0 if setup.anchor is None else setup.anchor.lineno - setup.before


def _is_below(anchor: ast.stmt | None, setup: Insert) -> bool:
    return anchor is not None and anchor.lineno > _last_line(setup)


def _is_imported(names: Names, module: str) -> bool:
    if "." in local_path(module):  # `import a.b` binds `a`, as `import a` does
        plain = [s for s in names.imports if isinstance(s, ast.Import) and s in names.tree.body]
        every = [alias.name for s in plain for alias in s.names if alias.asname is None]
        return any(f"{name}.".startswith(f"{module}.") for name in every)
    return any(
        b.kind == "import" and b.qualname == qualified_name(module)
        for b in names.top.bindings.get(local_name(module), ())
    )


def _anchor(names: Names, framework: str) -> tuple[ast.stmt | None, bool]:
    """Where imports belong, and whether they go before that statement.

    After the framework's first import outside of functions; under `try` or `if`, directly after it
    in the same block.
    """
    candidates = [
        statement
        for statement in names.imports
        if framework in imported_heads(statement)
        and names.function(statement) is None
        and names.enclosing_class(statement) is None
    ]
    # `import torch` itself, even after a `from torch…`
    plain = [s for s in candidates if isinstance(s, ast.Import) and s in names.tree.body]
    if candidates:
        statement = plain[0] if plain else candidates[0]
        return statement, _shares_line(names, statement)
    definitions: set[ast.AST] = {
        s for s in names.tree.body if isinstance(s, ast.FunctionDef | ast.ClassDef)
    }
    return last_import(names, definitions), False


def _shares_line(names: Names, statement: ast.stmt) -> bool:
    """Whether another statement follows on the line: `import torch; torch.cuda.init()`."""
    block = names.block(statement)
    return any(a is statement and b.lineno == a.end_lineno for a, b in pairwise(block))


def _sorted_place(
    names: Names, anchor: ast.stmt | None, before: bool, module: str, lines: range
) -> tuple[ast.stmt | None, bool]:
    """The place after the anchor and after imports of the same run that sort before `module`, if
    they are on these lines."""
    body = names.tree.body
    if anchor is None or before or anchor not in body:
        return anchor, before
    run = [anchor]
    for statement in body[body.index(anchor) + 1 :]:
        if _import_name(statement) is None or statement.lineno != (run[-1].end_lineno or 0) + 1:
            break
        if statement.lineno not in lines or _shares_line(names, statement):
            break
        run.append(statement)
    above = [statement for statement in _run_above(body, anchor) if statement.lineno in lines]
    if isinstance(anchor, ast.Import) and (_import_name(anchor) or "") > _sort_key(module):
        for statement in reversed(above):
            if (_import_name(statement) or "") <= _sort_key(module):
                break
            anchor = statement
        return anchor, True
    if isinstance(anchor, ast.Import):  # by convention, `import` comes before `from`
        plain = [i for i, s in enumerate(run) if isinstance(s, ast.Import)]
        run = run[: plain[-1] + 1]
    at = anchor
    for statement in run[1:]:
        if (_import_name(statement) or "") > _sort_key(module):
            break
        at = statement
    return at, False


def _run_above(body: Sequence[ast.stmt], anchor: ast.stmt) -> list[ast.stmt]:
    """Plain imports directly above the anchor."""
    run: list[ast.stmt] = []
    below = anchor
    for statement in reversed(body[: body.index(anchor)]):
        if not isinstance(statement, ast.Import) or statement.end_lineno != below.lineno - 1:
            break
        run.insert(0, statement)
        below = statement
    return run


def _import_name(statement: ast.stmt) -> str | None:
    match statement:
        case ast.Import(names=[alias, *_]):
            return alias.name.lower()
        case ast.ImportFrom(level=0, module=str(module)):
            return module.lower()
    return None


def _sort_key(module: str) -> str:
    return module.partition(" as ")[0].lower()


def _is_future(statement: ast.stmt | None) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_docstring(statement: ast.stmt | None) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def last_import(names: Names, stop: Set[ast.AST]) -> ast.stmt | None:
    """The last top-level import (or block of imports) before the first statement in `stop`."""
    last: ast.stmt | None = None
    for statement in names.tree.body:
        if statement in stop:
            break
        if holds_import(statement):
            last = statement
    if last is None and names.tree.body and _is_docstring(names.tree.body[0]):
        return names.tree.body[0]
    return last


def holds_import(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Try(body=body) | ast.If(body=body):
            return any(holds_import(s) for s in body)
    return False
