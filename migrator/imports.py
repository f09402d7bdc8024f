"""Imports: add what new code needs, take out what nothing uses any more. Runs last, once a file."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial
from itertools import pairwise

from migrator.analysis.accelerators import imported_heads
from migrator.analysis.names import Names
from migrator.analysis.scripts import is_main_guard
from migrator.edits import Delete, Edit, EditImport, Insert
from migrator.formats.embedded import spoken
from migrator.targets import RUNTIME
from migrator.vocabulary import Vocabulary


def statement_for(module: str) -> str:
    """The import statement of a required module (`a.b as c` keeps its alias)."""
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
    *,
    foreign: tuple[str, ...] = (),
    taken: Callable[[], frozenset[str]] = frozenset,
) -> list[Edit]:
    """Edits that add `modules` and take out imports whose every use is in `removed`.

    `framework` is the module behind whose import new ones go; `setup` are statements that need the
    imports: these stand above them. Imports of `foreign` libraries, which the target does not have,
    go even if they never had a use. Only what constructs of `vocabulary` are taken from may go.
    What other files take from this one (`taken`) stays.
    """
    result: list[Edit] = []
    unused = _unused(names, removed, foreign, vocabulary)
    if unused:
        kept = taken()
        unused = [edit for edit in map(partial(_without, kept), unused) if edit is not None]
    blocks = {e.node.body[0]: e.node for e in unused if isinstance(e.node, ast.Try)}
    missing = [m for m in modules if not _is_imported(names, m)]
    for module in list(missing):
        beside = _beside(names, framework, module)
        if beside:
            missing.remove(module)
            result += [
                Insert(names.tree, blocks.get(at, at), [statement_for(module)]) for at in beside
            ]
    if missing:
        anchor, before = _anchor(names, framework)
        if anchor in blocks:  # what stands in a block goes with it
            anchor, before = blocks[anchor], False
        if setup is not None and _is_below(anchor, setup):
            anchor, before = setup.anchor, setup.before
        groups: dict[tuple[int, bool], list[str]] = {}
        anchors: dict[int, ast.stmt | None] = {}
        for module in sorted(missing, key=_sort_key):
            at, ahead = _sorted_place(names, anchor, before, module)
            anchors[id(at)] = at
            groups.setdefault((id(at), ahead), []).append(statement_for(module))
        for (key, ahead), lines in groups.items():
            if _is_docstring(anchors[key]) or _is_future(anchors[key]):
                lines.insert(0, "")
            result.append(Insert(names.tree, anchors[key], lines, before=ahead))
    result.extend(unused)
    return result


def _beside(names: Names, framework: str, module: str) -> list[ast.stmt]:
    """Where a library is only imported below `try`: its first import in each.

    Below `if`, other branches may need it, too.
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


def _is_below(anchor: ast.stmt | None, setup: Insert) -> bool:
    if anchor is None:
        return False
    return setup.anchor is None or anchor.lineno > setup.anchor.lineno


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
    """Where imports belong, and whether before that statement.

    Behind the first import of the framework that is not inside a function; below `try` or `if`,
    right behind it in the same block.
    """
    candidates = [
        statement
        for statement in names.imports
        if framework in imported_heads(statement)
        and names.function(statement) is None
        and names.enclosing_class(statement) is None
    ]
    # `import torch` itself, even if a `from torch…` stands above it
    plain = [s for s in candidates if isinstance(s, ast.Import) and s in names.tree.body]
    if candidates:
        statement = plain[0] if plain else candidates[0]
        return statement, _shares_line(names, statement)
    definitions: set[ast.AST] = {
        s for s in names.tree.body if isinstance(s, ast.FunctionDef | ast.ClassDef)
    }
    return last_import(names, definitions), False


def _shares_line(names: Names, statement: ast.stmt) -> bool:
    """True where more statements follow on the line: `import torch; torch.cuda.init()`."""
    block = names.block(statement)
    return any(a is statement and b.lineno == a.end_lineno for a, b in pairwise(block))


def _sorted_place(
    names: Names, anchor: ast.stmt | None, before: bool, module: str
) -> tuple[ast.stmt | None, bool]:
    """Behind the anchor, past the imports of the same run that sort before `module`."""
    body = names.tree.body
    if anchor is None or before or anchor not in body:
        return anchor, before
    run = [anchor]
    for statement in body[body.index(anchor) + 1 :]:
        if _import_name(statement) is None or statement.lineno != (run[-1].end_lineno or 0) + 1:
            break
        run.append(statement)
    above = _run_above(body, anchor)
    if isinstance(anchor, ast.Import) and (_import_name(anchor) or "") > _sort_key(module):
        for statement in reversed(above):
            if (_import_name(statement) or "") <= _sort_key(module):
                break
            anchor = statement
        return anchor, True
    if isinstance(anchor, ast.Import):  # in the usual style, `import` stands before `from`
        plain = [i for i, s in enumerate(run) if isinstance(s, ast.Import)]
        run = run[: plain[-1] + 1]
    at = anchor
    for statement in run[1:]:
        if (_import_name(statement) or "") > _sort_key(module):
            break
        at = statement
    return at, False


def _run_above(body: Sequence[ast.stmt], anchor: ast.stmt) -> list[ast.stmt]:
    """Plain imports on the lines right above the anchor."""
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


def _unused(
    names: Names, removed: set[ast.AST], foreign: tuple[str, ...], vocabulary: Vocabulary
) -> list[Edit]:
    result: list[Edit] = []
    # below `try` or `if`, an import is a question; it stays, unless the answer is known
    answered = {s: block for s in names.imports if (block := _with_fallback(names, s))}
    plain = [s for s in names.imports if s in answered or names.is_plain_import(s)]
    gone = {
        s: [a for a in s.names if _lost_all_uses(names, s, a, removed, foreign, vocabulary)]
        for s in plain
        if removed.isdisjoint(s.names)  # else it is edited as it is
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


def _without(taken: frozenset[str], edit: Edit) -> Edit | None:
    """Less what other files take: they import it from here."""
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
    """The full name of what an import brings; "" for what comes from beside the file."""
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
    binds_package = isinstance(statement, ast.Import) and "." in name
    if library:  # it is nowhere to be had, so it goes from functions, too
        name = alias.asname or alias.name.partition(".")[0]
    elif scope is not names.top:
        return False
    elif is_foreign and binds_package:
        return all(use in removed for use in names.uses(meaning.partition(".")[0], names.top))
    elif not vocabulary.lends(meaning):
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
    if meaning == "os" and not {"eval", "exec"}.isdisjoint(names.by_id):
        return False
    uses = list(names.uses(name, scope))
    return (bool(uses) or is_foreign) and all(use in removed for use in uses)


def exported(names: Names) -> set[str]:
    """What `__all__` lists."""
    values = [b.value for b in names.top.bindings.get("__all__", ()) if b.value is not None]
    return {
        node.value
        for value in values
        for node in ast.walk(value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _is_future(statement: ast.stmt | None) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_docstring(statement: ast.stmt | None) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def top(names: Names, is_own: Callable[[str], bool]) -> tuple[ast.stmt | None, bool]:
    """The last import above what may use a device, and whether set-up comes before it.

    It does where the first use stands on the same line. `is_own` tells of a qualified name whether
    it is the project's.
    """
    uses = _first_use(names, is_own)
    anchor = last_import(names, uses)
    return anchor, anchor is None or any(use.lineno == anchor.end_lineno for use in uses)


def _first_use(names: Names, is_own: Callable[[str], bool]) -> set[ast.stmt]:
    """The first top-level statement that may use a device: set-up has to stand above it."""
    for statement in names.tree.body:
        if isinstance(statement, ast.For | ast.While | ast.With) or is_main_guard(statement):
            return {statement}
        if any(_may_use_device(names, called, is_own) for called in _called(statement)):
            return {statement}
    return set()


def _called(statement: ast.stmt) -> Iterator[ast.expr]:
    """What is called where a module is loaded: not by the functions that it defines."""
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        match node:
            case ast.Call(func=func):
                yield func
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
                decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
                yield from decorators
                stack += [*defaults, *decorators]
                continue
            case ast.ClassDef(decorator_list=decorators):
                yield from decorators
            case ast.Try() if _holds_import(node):  # what fails is another matter
                stack += [*node.body, *node.orelse, *node.finalbody]
                continue
        stack.extend(ast.iter_child_nodes(node))


def _may_use_device(
    names: Names, called: ast.expr, is_own: Callable[[str], bool], depth: int = 0
) -> bool:
    """Whether a call may reach code of torch's or of the project's; other libraries have none."""
    name = names.qualified(called)
    if name is not None:
        return name.startswith(("torch.", RUNTIME, ".")) or name in _RUNS or is_own(name)
    if isinstance(called, ast.Attribute) and called.attr in ("to", "cuda"):
        return True
    owner = called
    while isinstance(owner, ast.Attribute | ast.Subscript):
        owner = owner.value
    if isinstance(owner, ast.Call) and depth < _DEPTH:
        return _may_use_device(names, owner.func, is_own, depth + 1)
    if not isinstance(owner, ast.Name):
        return not isinstance(owner, ast.Constant | ast.JoinedStr)
    bound = names.lookup(owner)
    if not bound:  # unless a star import brings it, it is text of a notebook
        return bool(names.star_imports) and not owner.id.startswith("__")
    values = [binding.value for binding in bound]
    return depth >= _DEPTH or not all(
        isinstance(value, ast.Call) and not _may_use_device(names, value.func, is_own, depth + 1)
        for value in values
    )


_RUNS = ("exec", "eval", "__import__", "importlib.import_module", "runpy.run_path")
_DEPTH = 5  # of names that are assigned from calls


def last_import(names: Names, stop: Set[ast.AST]) -> ast.stmt | None:
    """The last top-level import (or block of imports) before the first statement in `stop`."""
    last: ast.stmt | None = None
    for statement in names.tree.body:
        if statement in stop:
            break
        if _holds_import(statement):
            last = statement
    if last is None and names.tree.body and _is_docstring(names.tree.body[0]):
        return names.tree.body[0]
    return last


def _holds_import(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Try(body=body) | ast.If(body=body):
            return any(_holds_import(s) for s in body)
    return False
