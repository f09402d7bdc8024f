"""The guard: checks that a result is the source with the requested edits, and nothing else.

It compares the `ast` trees of source and result, and knows nothing of how edits are applied. So it
notices edits at a wrong place, and lost or duplicated statements.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from migrator.edits import (
    AddBranch,
    AddParameter,
    Delete,
    Edit,
    EditCall,
    EditImport,
    Insert,
    Replace,
    ReplaceStatement,
    SetString,
    Spread,
    Unwrap,
    Wrap,
)


class Differs(Exception):
    """The first line of the source, or of the result, at which the two differ."""

    def __init__(self, node: ast.AST | None) -> None:
        self.line = getattr(node, "lineno", 1)
        super().__init__(f"line {self.line}")


def check(
    before: ast.Module,
    after: ast.Module,
    parents: Mapping[ast.AST, ast.AST],
    edits: Sequence[Edit],
    texts: tuple[Sequence[str], Sequence[str]],
    kept: Collection[ast.AST] = (),
) -> None:
    """Raise Differs if the result is anything other than the source with the edits.

    `texts` are the lines of both; unchanged text is not compared again. `kept` are the statements
    that `after` may share with `before`.
    """
    guard = _Guard(parents, edits, texts, kept)
    guard.block(before.body, after.body)
    if +guard.added:
        raise Differs(None)


class _Guard:
    def __init__(
        self,
        parents: Mapping[ast.AST, ast.AST],
        edits: Sequence[Edit],
        texts: tuple[Sequence[str], Sequence[str]],
        kept: Collection[ast.AST],
    ) -> None:
        (self.old, self.new), self.kept = texts, kept
        self.edits: dict[ast.AST, Edit] = {}
        self.parameters: dict[ast.AST, ast.arg] = {}  # that are added
        self.added: Counter[str] = Counter()  # statements that may be anywhere, by their dumps
        self.wrapped: dict[ast.AST, Wrap] = {}  # statements that get a block around them
        self.blocks: dict[ast.AST, Wrap] = {}
        self.touched: set[ast.AST] = set()
        self.holes: dict[str, ast.expr] = {}
        self.why: Differs | None = None
        for edit in edits:
            self._add(edit)
            for node in _changed(edit):
                at: ast.AST | None = node
                while at is not None and at not in self.touched:
                    self.touched.add(at)
                    at = parents.get(at)

    def _add(self, edit: Edit) -> None:
        match edit:
            case Insert():
                self.added.update(_dumps(edit.lines))
            case Wrap():
                self.wrapped.update(dict.fromkeys(edit.statements, edit))
            case AddParameter():
                said = _expression(edit.annotation) if edit.annotation else None
                self.parameters[edit.node.args] = ast.arg(edit.name, said)
            case _:
                self.edits[edit.node] = edit

    # ---- statements ---------------------------------------------------------------------------

    def block(self, old: Sequence[ast.AST], new: Sequence[ast.AST]) -> None:
        expected = [s for statement in old for s in self._expected(statement)]
        at = 0
        for statement in new:
            if at < len(expected) and self._is_same(expected[at], statement):
                at += 1
            elif not self._may_be_added(statement):
                raise self.why or Differs(statement)
        if at < len(expected):
            raise Differs(expected[at])

    def _expected(self, statement: ast.AST) -> list[ast.AST]:
        """What a statement becomes in its block."""
        if (wrap := self.wrapped.get(statement)) is not None:
            return [self._block(wrap)] if statement is wrap.node else []
        return self._left(statement)

    def _block(self, edit: Wrap) -> ast.AST:
        """The block that is put around statements."""
        (made,) = _statements([f"{edit.header} pass"])
        assert isinstance(made, ast.With | ast.If)
        made.body = [*edit.statements]
        self.touched.add(made)
        self.blocks[made] = edit
        return made

    def _left(self, statement: ast.AST) -> list[ast.AST]:
        """What edits leave of a statement."""
        edit = self.edits.get(statement)
        if isinstance(edit, Delete):
            return []
        if isinstance(edit, Unwrap) and isinstance(edit.node, ast.If):
            return [s for inner in edit.node.body for s in self._expected(inner)]
        if isinstance(edit, Unwrap) and len(edit.items) == len(edit.node.items):  # type: ignore[union-attr]
            return [s for inner in edit.node.body for s in self._expected(inner)]
        return [statement]

    def _is_same(self, old: ast.AST, new: ast.AST) -> bool:
        if new in self.kept:  # its line numbers are those of `before`
            return old is new and old not in self.touched
        if old not in self.touched and self._reads_the_same(old, new):
            return True
        added = self.added.copy()
        try:
            self.node(old, new)
        except Differs as why:
            self.added, self.why = added, why
            return False
        return True

    def _reads_the_same(self, old: ast.AST, new: ast.AST) -> bool:
        assert isinstance(old, ast.stmt) and isinstance(new, ast.stmt)
        columns = (old.col_offset, old.end_col_offset)
        lines = self.old[old.lineno - 1 : old.end_lineno]
        return (
            columns == (new.col_offset, new.end_col_offset)
            and lines == self.new[new.lineno - 1 : new.end_lineno]
        )

    def _may_be_added(self, statement: ast.AST) -> bool:
        match statement:
            case ast.Pass():  # in a block that would otherwise be empty
                return True
        dump = ast.dump(statement)
        if self.added[dump]:
            self.added[dump] -= 1
            return True
        return self._is_branch(statement)

    def _is_branch(self, statement: ast.AST) -> bool:
        """A new `if` before an `if` without `else`."""
        return isinstance(statement, ast.If) and any(
            isinstance(edit, AddBranch) and _same_text(edit.test, statement.test)
            for edit in self.edits.values()
        )

    # ---- nodes ----------------------------------------------------------------------------------

    def node(self, old: ast.AST, new: ast.AST) -> None:
        """Raise Differs if a node is anything other than the old one with its edits."""
        if isinstance(old, ast.Name) and old.id in self.holes:
            old = self.holes[old.id]
            around = self.edits.get(old)
            if isinstance(around, Replace) and old in around.holes.values():
                self.fields(old, new)  # one part replaces the whole node
                return
        match self.edits.get(old):
            case Replace() as edit:
                self._template(edit, edit.node, new)
            case ReplaceStatement() as edit:
                if not isinstance(new, ast.Expr):
                    raise Differs(old)
                self._template(edit, edit.node, new.value)
            case SetString():
                if not isinstance(new, ast.Constant) or not isinstance(new.value, str | bytes):
                    raise Differs(old)
            case EditCall() as edit:
                self._call(edit, new)
            case EditImport() as edit:
                self._import(edit, new)
            case None if old in self.blocks:
                wrapped, own = self.wrapped, self.blocks[old].statements
                self.wrapped = {s: wrap for s, wrap in wrapped.items() if s not in own}
                try:
                    self.fields(old, new)
                finally:
                    self.wrapped = wrapped
            case AddBranch() as edit if isinstance(new, ast.If) and _same_text(edit.test, new.test):
                self.fields(old, new.orelse[0] if new.orelse else new)
            case _:
                self.fields(old, new)

    def fields(self, old: ast.AST, new: ast.AST) -> None:
        if type(old) is not type(new):
            raise Differs(old)
        for name in old._fields:
            self._field(old, name, getattr(old, name, None), getattr(new, name, None))

    def _field(self, owner: ast.AST, name: str, old: object, new: object) -> None:
        if isinstance(old, ast.AST):
            if not isinstance(new, ast.AST):
                raise Differs(old)
            self.node(old, new)
        elif isinstance(old, list):
            if not isinstance(new, list):
                raise Differs(owner)
            self._list(owner, name, old, new)
        elif old != new or type(old) is not type(new):
            raise Differs(owner)

    def _list(self, owner: ast.AST, name: str, old: list[ast.AST], new: list[ast.AST]) -> None:
        if name in ("body", "orelse", "finalbody") and (not old or isinstance(old[0], ast.stmt)):
            self.block(old, new)
            return
        edit = self.edits.get(owner)
        if name == "items" and isinstance(edit, Unwrap):
            old = [item for item in old if item not in edit.items]
        if name == "decorator_list":
            old = [d for d in old if not isinstance(self.edits.get(d), Delete)]
        added = self.parameters.get(owner)
        if added is not None and name in ("args", "defaults"):
            old = [*old, added if name == "args" else ast.Constant(None)]
        spread: list[ast.AST] = []
        for part in old:
            found = self.edits.get(part) if isinstance(part, ast.AST) else None
            spread += map(_expression, found.elements) if isinstance(found, Spread) else [part]
        if len(spread) != len(new):
            raise Differs(owner)
        for one, other in zip(spread, new, strict=True):
            self._field(owner, "", one, other)

    def _template(self, edit: Replace | ReplaceStatement, node: ast.AST, new: ast.AST) -> None:
        code = edit.template
        for name, hole in edit.holes.items():
            code = code.replace("{" + name + "}", f"_hole_{name}_{id(hole)}")
            self.holes[f"_hole_{name}_{id(hole)}"] = hole
        expected = _expression(code)
        is_stored = isinstance(getattr(node, "ctx", None), ast.Store)
        if is_stored and isinstance(expected, ast.Subscript):
            expected.ctx = ast.Store()  # `cache[:, start:end] = …` that is written elsewhere
        try:
            self.node(expected, new)
        except Differs:
            raise Differs(node) from None

    def _call(self, edit: EditCall, new: ast.AST) -> None:
        old = edit.node
        if not isinstance(new, ast.Call):
            raise Differs(old)
        if edit.function is not None:
            self.node(_expression(edit.function), new.func)
        elif edit.method is not None:
            if not isinstance(new.func, ast.Attribute) or new.func.attr != edit.method:
                raise Differs(old)
            assert isinstance(old.func, ast.Attribute)
            self.node(old.func.value, new.func.value)
        else:
            self.node(old.func, new.func)
        put = dict(edit.put)
        args: list[ast.AST] = [a for a in old.args if a not in edit.drop]
        if edit.first is not None:
            args.insert(0, _expression(edit.first))
        keywords: list[tuple[str | None, ast.AST]] = [
            (
                edit.rename.get(k.arg or "", k.arg),
                _expression(put.pop(k.arg)) if k.arg in put else k.value,
            )
            for k in old.keywords
            if k not in edit.drop
        ]
        keywords += [(name, _expression(value)) for name, value in put.items()]
        if len(args) != len(new.args) or [k.arg for k in new.keywords] != [n for n, _ in keywords]:
            raise Differs(old)
        for one, other in zip(args, new.args, strict=True):
            self.node(one, other)
        for (_, value), keyword in zip(keywords, new.keywords, strict=True):
            self.node(value, keyword.value)

    def _import(self, edit: EditImport, new: ast.AST) -> None:
        wanted = [
            edit.rename.get(a, f"{a.name} as {a.asname}" if a.asname else a.name)
            for a in edit.node.names
            if a not in edit.drop
        ]
        if type(new) is not type(edit.node) or not isinstance(new, ast.Import | ast.ImportFrom):
            raise Differs(edit.node)
        found = [f"{a.name} as {a.asname}" if a.asname else a.name for a in new.names]
        if isinstance(new, ast.ImportFrom) and isinstance(edit.node, ast.ImportFrom):
            if new.module != (edit.module or edit.node.module):
                raise Differs(edit.node)
        if [name.partition(" as ")[0] for name in wanted] != [
            n.partition(" as ")[0] for n in found
        ]:
            raise Differs(edit.node)


def _changed(edit: Edit) -> Sequence[ast.AST]:
    """The nodes that an edit changes or moves."""
    if isinstance(edit, Wrap):
        return edit.statements
    return (edit.node,) if edit.node is not None else ()


def _statements(lines: Sequence[str]) -> list[ast.stmt]:
    return [statement for line in lines for statement in ast.parse(line).body]


def _dumps(lines: Sequence[str]) -> list[str]:
    return [ast.dump(statement) for statement in _statements(lines)]


def _expression(code: str) -> ast.expr:
    return ast.parse(f"({code}\n)", mode="eval").body


def _same_text(code: str, node: ast.expr) -> bool:
    return ast.dump(_expression(code)) == ast.dump(node)
