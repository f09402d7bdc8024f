"""Edits: what a rule can ask for, in terms of `ast` nodes. `migrator.tree` makes them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from migrator.diagnostics import START, Range, SourceMap


@dataclass(frozen=True, eq=False)
class Replace:
    """Put `template` in the place of an expression; `{name}` in it stands for a part that stays."""

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
    """Put several elements in the place of one of a list, in the list's layout."""

    node: ast.Constant
    elements: Sequence[str]


@dataclass(frozen=True, eq=False)
class EditCall:
    """Change a call in place: its name, single arguments; what is not named stays as written.

    `method` renames an attribute (`x.cuda(…)` to `x.to(…)`), `function` replaces the whole callee.
    `put` sets keyword arguments, replacing those that are there; `rename` gives them other names,
    and `first` is put before all others.
    """

    node: ast.Call
    method: str | None = None
    function: str | None = None
    drop: Sequence[ast.expr | ast.keyword] = ()
    first: str | None = None
    put: dict[str, str] = field(default_factory=dict)
    rename: dict[str, str] = field(default_factory=dict)
    parts: Sequence[EditCall] = ()  # what it was joined from


@dataclass(frozen=True, eq=False)
class Delete:
    """Remove a statement, or one decorator; comments above it stay."""

    node: ast.stmt | ast.expr


@dataclass(frozen=True, eq=False)
class ReplaceStatement:
    """Put one simple statement in the place of another; holes as in `Replace`."""

    node: ast.stmt
    template: str
    holes: dict[str, ast.expr] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Unwrap:
    """Take items out of a `with`; without any left, its body moves one level out, as an `if`'s."""

    node: ast.With | ast.AsyncWith | ast.If
    items: Sequence[ast.withitem] = ()


@dataclass(frozen=True, eq=False)
class Insert:
    """New lines behind `anchor` (or before it; at the top without one); "" is a blank line."""

    node: ast.Module
    anchor: ast.stmt | None
    lines: Sequence[str]
    before: bool = False


@dataclass(frozen=True, eq=False)
class EditImport:
    """Take names out of an import that keeps others, put others in their place, or its module."""

    node: ast.Import | ast.ImportFrom
    drop: Sequence[ast.alias] = ()
    rename: Mapping[ast.alias, str] = field(default_factory=dict)  # to `name` or `name as local`
    module: str | None = None


@dataclass(frozen=True, eq=False)
class Hoist:
    """Move `statements` into a function in front of `anchor`, and call it in their place."""

    node: ast.stmt  # the one of them that the call takes the place of
    statements: Sequence[ast.stmt]
    anchor: ast.stmt
    decorator: str
    name: str
    parameters: Sequence[str]
    arguments: Sequence[str]
    results: Sequence[str]
    targets: Sequence[str]  # what the results are called outside
    behind: Sequence[str]  # lines behind the call
    lifted: Sequence[ast.stmt]  # what does not move with the block around it: it comes behind, too
    blanks: int  # lines above the function
    conditions: Mapping[ast.stmt, str]  # names under which single statements stand in it


@dataclass(frozen=True, eq=False)
class Decorate:
    """Put a decorator in front of those that a function has."""

    node: ast.FunctionDef
    decorator: str


@dataclass(frozen=True, eq=False)
class AddBranch:
    """A branch in front of an `if`, which becomes its `elif` if it has an `else` or `elif`."""

    node: ast.If
    test: str
    body: str


Edit = (
    Replace | SetString | Spread | EditCall | Delete | ReplaceStatement | Unwrap | Insert
    | EditImport | Hoist | Decorate | AddBranch
)  # fmt: skip


def code(edit: Edit) -> str:
    """The text that an edit brings."""
    match edit:
        case Replace() | ReplaceStatement():
            return edit.template
        case SetString():
            return edit.value
        case EditCall():
            return " ".join([edit.function or "", edit.first or "", *edit.put.values()])
        case Insert():
            return "\n".join(edit.lines)
        case AddBranch():
            return f"{edit.test} {edit.body}"
        case Hoist() | Decorate():
            return edit.decorator
    return ""


def joined(edits: Iterable[Edit]) -> list[Edit]:
    """The edits with those of one call as one; where they contradict each other, the first is."""
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
    """None where both change the same of a call."""
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
    """Every node that an edit removes from the source or rewrites."""
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
    """Where the source changes for an edit; a range of no width is where something is put in."""
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
        case Hoist():
            yield _start(source.range(edit.anchor))
            yield from map(source.range, (*edit.statements, *edit.lifted))
        case Decorate():
            yield _start(source.range(next(iter(edit.node.decorator_list), edit.node)))
        case AddBranch():
            yield _start(source.range(edit.node))
            yield source.range(edit.node.test)
        case _:
            yield source.range(edit.node)


def places(edits: Iterable[Edit], source: SourceMap) -> tuple[Range, ...]:
    """Where the source changes for edits, each place once."""
    return tuple(dict.fromkeys(place for edit in edits for place in touched(edit, source)))


def _start(where: Range) -> Range:
    return replace(where, end_line=where.line, end_column=where.column)


def _end(where: Range) -> Range:
    return replace(where, line=where.end_line, column=where.end_column)
