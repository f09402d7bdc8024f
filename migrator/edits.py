"""Edits that a rule can ask for, in terms of `ast` nodes. `migrator.tree` applies them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from migrator.diagnostics import START, Range, SourceMap


@dataclass(frozen=True, eq=False)
class Replace:
    """Replace an expression by `template`, in which `{name}` stands for a part that is kept."""

    node: ast.expr
    template: str
    holes: dict[str, ast.expr] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SetString:
    """Change the text of a string literal; its prefix and quotes stay."""

    node: ast.Constant
    value: str


@dataclass(frozen=True, eq=False)
class Spread:
    """Replace one element of a list by several, in the list's layout."""

    node: ast.Constant
    elements: Sequence[str]


@dataclass(frozen=True, eq=False)
class EditCall:
    """Change a call in place; everything not mentioned stays as written.

    `method` renames an attribute (`x.cuda(…)` to `x.to(…)`), `function` replaces the whole callee.
    `put` sets keyword arguments, replacing existing ones; `rename` renames them; `first` becomes
    the first argument.
    """

    node: ast.Call
    method: str | None = None
    function: str | None = None
    drop: Sequence[ast.expr | ast.keyword] = ()
    first: str | None = None
    put: dict[str, str] = field(default_factory=dict)
    rename: dict[str, str] = field(default_factory=dict)
    parts: Sequence[EditCall] = ()  # the edits that it was joined from


@dataclass(frozen=True, eq=False)
class Delete:
    """Remove a statement or a decorator; comments above it stay."""

    node: ast.stmt | ast.expr


@dataclass(frozen=True, eq=False)
class ReplaceStatement:
    """Replace a simple statement by another; holes as in `Replace`."""

    node: ast.stmt
    template: str
    holes: dict[str, ast.expr] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Unwrap:
    """Remove items of a `with`; if none is left, or for an `if`, dedent the body."""

    node: ast.With | ast.AsyncWith | ast.If
    items: Sequence[ast.withitem] = ()


@dataclass(frozen=True, eq=False)
class Wrap:
    """Put neighbouring statements, from `node` on, into a block: `with strategy.scope():`."""

    node: ast.stmt
    statements: Sequence[ast.stmt]
    header: str


@dataclass(frozen=True, eq=False)
class Insert:
    """Insert lines after `anchor` (or before it; at the top if None); "" is a blank line."""

    node: ast.Module
    anchor: ast.stmt | None
    lines: Sequence[str]
    before: bool = False
    ahead: bool = False  # imports that are added go below it, else above


@dataclass(frozen=True, eq=False)
class EditImport:
    """Remove or rename some names of an import, or change its module."""

    node: ast.Import | ast.ImportFrom
    drop: Sequence[ast.alias] = ()
    rename: Mapping[ast.alias, str] = field(default_factory=dict)  # to `name` or `name as local`
    module: str | None = None


@dataclass(frozen=True, eq=False)
class AddParameter:
    """Add a last parameter, which is None where it is not given, to a function without `*` ones."""

    node: ast.FunctionDef
    name: str
    annotation: str = ""


@dataclass(frozen=True, eq=False)
class AddBranch:
    """Add a branch before an `if`, which becomes an `elif` if it has an `else` or `elif`."""

    node: ast.If
    test: str
    body: str


Edit = (
    Replace | SetString | Spread | EditCall | Delete | ReplaceStatement | Unwrap | Wrap | Insert
    | EditImport | AddParameter | AddBranch
)  # fmt: skip


def code(edit: Edit) -> str:
    """The text that an edit adds."""
    match edit:
        case Replace() | ReplaceStatement():
            return edit.template
        case SetString():
            return edit.value
        case Wrap():
            return edit.header
        case EditCall():
            return " ".join([edit.function or "", edit.first or "", *edit.put.values()])
        case Insert():
            return "\n".join(edit.lines)
        case AddBranch():
            return f"{edit.test} {edit.body}"
        case AddParameter():
            return edit.name
    return ""


def join_edits(edits: Iterable[Edit]) -> list[Edit]:
    """The edits, with those of one call joined; edits that conflict stay apart."""
    found: dict[object, Edit] = {}
    for edit in edits:
        before = found.get(edit.node)
        if isinstance(edit, EditCall) and isinstance(before, EditCall):
            both = _both(before, edit)
            found[edit.node if both is not None else edit] = both or edit
        else:
            found[edit.node if isinstance(edit, EditCall) else edit] = edit
    return list(found.values())


def _both(one: EditCall, other: EditCall) -> EditCall | None:
    """Both edits as one; None if they change the same part of a call."""
    for name in ("method", "function", "first"):
        if getattr(one, name) is not None and getattr(other, name) is not None:
            return None
    said = [
        {*edit.put, *edit.rename, *(k.arg for k in edit.drop if isinstance(k, ast.keyword))}
        for edit in (one, other)
    ]
    if said[0] & said[1]:
        return None
    return EditCall(
        one.node, one.method or other.method, one.function or other.function,
        [*one.drop, *other.drop], one.first or other.first, {**one.put, **other.put},
        {**one.rename, **other.rename}, [*(one.parts or [one]), other],
    )  # fmt: skip


def covered(edit: Edit) -> Iterator[ast.AST]:
    """Every node that an edit removes or rewrites."""
    match edit:
        case Replace() | ReplaceStatement():
            holes = set(edit.holes.values())
            stack: list[ast.AST] = [edit.node]
            while stack:
                node = stack.pop()
                if node not in holes:
                    yield node
                    stack.extend(ast.iter_child_nodes(node))
        case SetString() | Spread():
            yield edit.node
        case EditCall():
            yield edit.node
            at: ast.expr = edit.node.func
            yield at
            if edit.function is not None:
                yield from ast.walk(at)
            gone = [k for k in edit.node.keywords if k.arg in edit.put]
            for part in [*edit.drop, *gone]:
                yield from ast.walk(part)
            yield from (k for k in edit.node.keywords if k.arg in edit.rename)
        case Delete():
            yield from ast.walk(edit.node)
        case Unwrap():
            for item in edit.items:
                yield from ast.walk(item)
            if isinstance(edit.node, ast.If):
                yield from ast.walk(edit.node.test)
        case EditImport():
            yield from (*edit.drop, *edit.rename)


def touched(edit: Edit, source: SourceMap) -> Iterator[Range]:
    """The ranges that an edit changes; an empty one is where it inserts."""
    match edit:
        case EditCall():
            if edit.method or edit.function:
                yield _end(source.range(edit.node.func))
            yield from map(source.range, edit.drop)
            old = [k for k in edit.node.keywords if k.arg in {**edit.put, **edit.rename}]
            yield from map(source.range, old)
            if edit.first or len(old) < len(edit.put) + len(edit.rename):
                yield _end(source.range(edit.node))
        case Unwrap() if edit.items and len(edit.items) < len(getattr(edit.node, "items", ())):
            yield from (source.range(item.context_expr) for item in edit.items)
        case Insert(anchor=None):
            yield START
        case Insert(anchor=ast.stmt() as anchor):
            where = source.range(anchor)
            yield _start(where) if edit.before else _end(where)
        case Wrap():
            yield _start(source.range(edit.node))
        case AddParameter():
            yield _end(source.range(edit.node.args.args[-1]))
        case AddBranch():
            yield _start(source.range(edit.node))
            yield source.range(edit.node.test)
        case _:
            yield source.range(edit.node)


def edited_ranges(edits: Iterable[Edit], source: SourceMap) -> tuple[Range, ...]:
    """The ranges that edits change, each once."""
    return tuple(dict.fromkeys(place for edit in edits for place in touched(edit, source)))


def _start(where: Range) -> Range:
    return replace(where, end_line=where.line, end_column=where.column)


def _end(where: Range) -> Range:
    return replace(where, line=where.end_line, column=where.end_column)
