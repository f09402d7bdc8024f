"""Edits: decided on the `ast`, applied to the LibCST tree of the same source in one pruned pass.

Rules never touch LibCST. They name `ast` nodes and say what becomes of them; `apply` finds the same
nodes in the LibCST tree by their offsets, which the round-trip code generation yields for free, and
rebuilds only the branches that lead to an edit. All else, white space and comments, is not touched.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import libcst as cst
from libcst._nodes.internal import CodegenState

from migrator.diagnostics import SourceMap


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
class EditCall:
    """Change a call in place: its name, single arguments; what is not named stays as written.

    `method` renames an attribute (`x.cuda(…)` to `x.to(…)`), `function` replaces the whole callee.
    `put` sets keyword arguments, replacing those that are there; `first` is put before all others.
    """

    node: ast.Call
    method: str | None = None
    function: str | None = None
    drop: Sequence[ast.expr | ast.keyword] = ()
    first: str | None = None
    put: dict[str, str] = field(default_factory=dict)


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
    """Take items out of a `with`; without any left, its body moves one level out."""

    node: ast.With | ast.AsyncWith
    items: Sequence[ast.withitem]


@dataclass(frozen=True, eq=False)
class Insert:
    """New lines behind `anchor` (or before it; at the top without one); "" is a blank line."""

    node: ast.Module
    anchor: ast.stmt | None
    lines: Sequence[str]
    before: bool = False


@dataclass(frozen=True, eq=False)
class DropNames:
    """Take names out of an import that keeps others."""

    node: ast.Import | ast.ImportFrom
    names: Sequence[ast.alias]


Edit = Replace | SetString | EditCall | Delete | ReplaceStatement | Unwrap | Insert | DropNames


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
        case SetString():
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
        case Delete():
            yield from ast.walk(edit.node)
        case Unwrap():
            for item in edit.items:
                yield from ast.walk(item)
        case DropNames():
            yield from edit.names


# ---- application ---------------------------------------------------------------------------------


class UnplacedEdit(Exception):
    """An edit whose node could not be found in the LibCST tree (inside an f-string, usually)."""

    def __init__(self, edits: list[Edit]) -> None:
        super().__init__("source position could not be matched")
        self.edits = edits


class _Span:
    """Context manager that notes where a node's code starts and ends, in tokens."""

    __slots__ = ("end", "node", "start", "tokens")

    def __init__(self, node: cst.CSTNode, tokens: list[str]) -> None:
        self.node, self.tokens = node, tokens
        self.start = self.end = 0

    def __enter__(self) -> None:
        self.start = len(self.tokens)

    def __exit__(self, *exc: object) -> None:
        self.end = len(self.tokens)


class _RecordingState(CodegenState):
    """Code generation that remembers the span of each expression and statement."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline)
        self.spans: list[_Span] = []

    def record_syntactic_position(self, node: Any, **kwargs: Any) -> Any:
        span = _Span(node, self.tokens)
        self.spans.append(span)
        return span


class Tree:
    """A LibCST module with the offsets of its nodes."""

    def __init__(self, text: str) -> None:
        # LibCST loses blanks behind the last line end (seen in 1.9)
        self.tail = _TAIL.search(text)[0]  # type: ignore[index]
        body = text.removesuffix(self.tail)
        self.module = cst.parse_module(body)
        state = _RecordingState(self.module)
        self.module._codegen(state)
        self.round_trips = "".join(state.tokens) == body
        offsets = [0]
        for token in state.tokens:
            offsets.append(offsets[-1] + len(token))
        last = len(offsets) - 1  # code generation drops the final newline token it does not need
        self.spans = [
            (offsets[min(s.start, last)], offsets[min(s.end, last)], s.node) for s in state.spans
        ]


def apply(tree: Tree, source: SourceMap, edits: Sequence[Edit]) -> str:
    """The source text with all edits made.

    Raises:
        UnplacedEdit: for edits whose nodes have no counterpart; nothing is applied then.
    """
    places = _Places(tree, source)
    unplaced = [edit for edit in edits if not places.add(edit)]
    if unplaced:
        raise UnplacedEdit(unplaced)
    editor = _Editor(places)
    result = tree.module.visit(editor)
    missed = [edit for edit in places.edits.values() if edit not in editor.made]
    if missed:
        raise UnplacedEdit(missed)
    assert isinstance(result, cst.Module)
    return result.code + tree.tail


_TAIL = re.compile(r"(?:(?<=\n)[ \t\f]+)?\Z")
_STATEMENTS = (cst.BaseSmallStatement, cst.BaseCompoundStatement)
_PRUNED = (cst.BaseExpression, cst.BaseStatement, cst.BaseSmallStatement)  # spans hold all of them


class _Places:
    """Which LibCST nodes the edits and their holes are, and which branches lead there."""

    def __init__(self, tree: Tree, source: SourceMap) -> None:
        self.source = source
        self.body = tree.module.body
        self.expressions: dict[tuple[int, int], cst.CSTNode] = {}
        self.statements: dict[int, cst.CSTNode] = {}
        self.lines: list[cst.CSTNode] = []  # whole statements, in source order
        self.line_starts: list[int] = []
        self.span_of: dict[int, tuple[int, int]] = {}
        for start, end, node in tree.spans:
            self.span_of[id(node)] = (start, end)
            if isinstance(node, cst.BaseExpression):
                self.expressions.setdefault((start, end), node)
            elif isinstance(node, _STATEMENTS):
                self.statements.setdefault(start, node)
            if isinstance(node, cst.BaseStatement):
                self.lines.append(node)
                self.line_starts.append(start)
        self.edits: dict[int, Edit] = {}
        self.inserts: dict[int, list[Insert]] = {}  # by id of the top-level LibCST statement
        self.wanted: list[int] = []  # offsets that the pass must reach
        self.holes: dict[int, int] = {}  # id of a LibCST node that stays -> id of the ast node

    def expression(self, node: ast.AST) -> cst.CSTNode | None:
        return self.expressions.get(self.source.span(node))

    def add(self, edit: Edit) -> bool:
        if isinstance(edit, Insert):
            return self._add_insert(edit)
        node = edit.node
        if isinstance(node, ast.stmt):
            found = self.statements.get(self.source.span(node)[0])
            if isinstance(edit, Unwrap) and not isinstance(found, cst.With):
                return False
        else:
            found = self.expression(node)
        if found is None:
            return False
        if isinstance(edit, EditCall) and not isinstance(found, cst.Call):
            return False
        if isinstance(edit, SetString) and not isinstance(found, cst.SimpleString):
            return False
        holes = list(edit.holes.values()) if isinstance(edit, Replace | ReplaceStatement) else []
        for hole in holes:
            kept = self.expression(hole)
            if kept is None:
                return False
            self.holes[id(kept)] = id(hole)
        self.edits[id(found)] = edit
        for part in (node, *holes):
            offset = self.source.span(part)[0]
            at = bisect_left(self.wanted, offset)
            self.wanted.insert(at, offset)
        return True

    def _add_insert(self, edit: Insert) -> bool:
        """Inserts hang on the statement of their anchor (in LibCST, a whole line)."""
        if edit.anchor is None:
            line: cst.CSTNode | None = self.body[0] if self.body else None
            edit = replace(edit, before=True)
        else:
            line = self._line(edit.anchor)
        if line is not None:
            start = self.span_of[id(line)][0]
            self.wanted.insert(bisect_left(self.wanted, start), start)
        self.inserts.setdefault(id(line) if line is not None else 0, []).append(edit)
        return True

    def _line(self, anchor: ast.stmt) -> cst.CSTNode:
        """The line of a simple statement (`import os; import torch` is one), or the block."""
        at = self.source.span(anchor)[0]
        last = bisect_right(self.line_starts, at) - 1
        return self.lines[last]

    def leads_to_edit(self, node: cst.CSTNode) -> bool:
        span = self.span_of.get(id(node))
        if span is None or not isinstance(node, _PRUNED) or getattr(node, "decorators", None):
            return True  # the span of a definition starts behind its decorators
        at = bisect_left(self.wanted, span[0])
        return at < len(self.wanted) and self.wanted[at] <= span[1]


class _Editor(cst.CSTTransformer):
    """Applies the edits on the way out, so that nested edits compose."""

    def __init__(self, places: _Places) -> None:
        super().__init__()
        self.places = places
        self.kept: dict[int, cst.CSTNode] = {}  # id of an ast hole -> its edited LibCST node
        self.orphans: list[list[cst.EmptyLine]] = []  # comments of replaced code, by statement
        self.removed: set[int] = set()
        self.made: set[Edit] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.BaseStatement | cst.Decorator):
            self.orphans.append([])
        return self.places.leads_to_edit(node)

    def on_leave(self, original: Any, updated: Any) -> Any:
        edit = self.places.edits.get(id(original))
        result: Any = updated
        if edit is not None:
            self.made.add(edit)
            result = self._edited(edit, original, updated)
        result = _bracketed(result, original)
        hole = self.places.holes.get(id(original))
        if hole is not None:
            self.kept[hole] = result
        if isinstance(original, cst.BaseStatement):
            result = self._statement(original, result, self.orphans.pop())
            inserts = self.places.inserts.get(id(original))
            return _insert(inserts, original, result) if inserts else result
        if isinstance(original, cst.Decorator):
            comments = self.orphans.pop()
            if result.decorator is _REMOVED:
                return cst.RemoveFromParent()
            if comments:
                return result.with_changes(leading_lines=[*result.leading_lines, *comments])
        if isinstance(original, cst.Module) and not original.body:
            inserts = self.places.inserts.get(0, [])
            return result.with_changes(body=[s for e in inserts for s in _statements(e.lines)])
        if isinstance(original, cst.IndentedBlock | cst.Module):
            return _settle(result)
        if isinstance(original, cst.SimpleStatementSuite):
            body = self._remaining(original, result)
            return result.with_changes(body=body or [cst.Pass()])
        return result

    def _edited(self, edit: Edit, original: Any, updated: Any) -> Any:
        match edit:
            case SetString():
                prefix, quote = updated.prefix, updated.quote
                result: Any = updated.with_changes(value=f"{prefix}{quote}{edit.value}{quote}")
            case Replace():
                filling = {name: self.kept[id(hole)] for name, hole in edit.holes.items()}
                result = _fill(edit.template, filling)
                if updated.lpar and not result.lpar:
                    result = result.with_changes(lpar=updated.lpar, rpar=updated.rpar)
            case ReplaceStatement():
                filling = {name: self.kept[id(hole)] for name, hole in edit.holes.items()}
                result = cst.Expr(_fill(edit.template, filling), semicolon=updated.semicolon)
            case EditCall():
                result = _edit_call(edit, updated)
            case Delete():
                if isinstance(edit.node, ast.expr):
                    return _REMOVED
                self.removed.add(id(original))
                return updated
            case Unwrap():
                result = self._unwrap(edit, original, updated)
            case DropNames():
                result = _drop_names(edit, updated)
            case Insert():
                raise AssertionError("inserts hang on statements")
        if isinstance(result, cst.CSTNode):
            self._keep_comments(original, result)
        return result

    def _unwrap(self, edit: Unwrap, original: cst.With, updated: cst.With) -> Any:
        gone = {edit.node.items.index(item) for item in edit.items}
        items = [item for i, item in enumerate(updated.items) if i not in gone]
        if items:
            items[-1] = items[-1].with_changes(comma=updated.items[-1].comma)
            return updated.with_changes(items=items)
        if not isinstance(updated.body, cst.IndentedBlock):
            suite: Any = updated.body
            return cst.SimpleStatementLine(suite.body, leading_lines=updated.leading_lines)
        lines = list(updated.leading_lines)
        if updated.body.header.comment is not None:
            lines.append(cst.EmptyLine(comment=updated.body.header.comment))
        first, *rest = updated.body.body
        first = first.with_changes(leading_lines=[*lines, *_leading(first)])
        return cst.FlattenSentinel([first, *rest, _Leftover(updated.body.footer)])

    def _keep_comments(self, original: cst.CSTNode, result: cst.CSTNode) -> None:
        """Comments inside replaced code move above the statement that it belongs to."""
        start, end = self.places.span_of[id(original)]
        if "#" not in self.places.source.text[start:end]:
            return
        left = [c.value for c in _comments(result)]
        for comment in _comments(original):
            if comment.value in left:
                left.remove(comment.value)
            elif self.orphans:
                self.orphans[-1].append(cst.EmptyLine(comment=comment))

    def _statement(self, original: Any, result: Any, comments: list[cst.EmptyLine]) -> Any:
        if isinstance(original, cst.SimpleStatementLine):
            body = self._remaining(original, result)
            if not body:
                return _left_over([*original.leading_lines, *comments])
            if len(body) < len(original.body):
                result = result.with_changes(body=body)
        elif id(original) in self.removed:
            inner = [cst.EmptyLine(comment=c) for c in _own_line_comments(original.body)]
            return _left_over([*original.leading_lines, *comments, *inner])
        if comments and isinstance(result, cst.BaseStatement):
            return result.with_changes(leading_lines=[*_leading(result), *comments])
        return result

    def _remaining(self, original: Any, result: Any) -> list[Any]:
        """The small statements of a line that are not deleted."""
        pairs = zip(original.body, result.body, strict=True)
        body = [new for old, new in pairs if id(old) not in self.removed]
        if body and len(body) < len(original.body):
            body[-1] = body[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return body


_REMOVED = cst.Name("removed")


_ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.BaseString, cst.List, cst.Tuple,
          cst.Dict, cst.Set, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp,
          cst.BaseNumber, cst.Ellipsis)  # fmt: skip
_LOOSE = (cst.Lambda, cst.IfExp, cst.NamedExpr, cst.Yield)
_POSTFIX: dict[Any, str] = {
    cst.Attribute: "value",
    cst.Call: "func",
    cst.Subscript: "value",
    cst.Await: "expression",
}
_OPERANDS: dict[Any, tuple[str, ...]] = {
    cst.BinaryOperation: ("left", "right"), cst.BooleanOperation: ("left", "right"),
    cst.UnaryOperation: ("expression",), cst.Comparison: ("left",),
    cst.ComparisonTarget: ("comparator",), cst.IfExp: ("body", "test"),
}  # fmt: skip


def _bracketed(node: Any, original: Any) -> Any:
    """The node with brackets around new children that would be read otherwise without them."""
    kind = type(node)
    if kind in _POSTFIX:
        field_name = _POSTFIX[kind]
        child = getattr(node, field_name)
        number = kind is cst.Attribute and isinstance(child, cst.BaseNumber)
        if child is not getattr(original, field_name, None):
            if number or not isinstance(child, _ATOMS):
                return _with_brackets(node, field_name, child)
    for field_name in _OPERANDS.get(kind, ()):
        child = getattr(node, field_name)
        if child is getattr(original, field_name, None) or isinstance(child, _ATOMS):
            continue
        weak = isinstance(child, cst.Comparison | cst.UnaryOperation | cst.BinaryOperation)
        negation = kind is cst.UnaryOperation and isinstance(node.operator, cst.Not)
        if weak and (kind in (cst.BooleanOperation, cst.IfExp) or negation):
            continue
        if kind is cst.IfExp and not isinstance(child, _LOOSE):
            continue
        if type(child) is type(getattr(original, field_name, None)) and not isinstance(
            child, _LOOSE
        ):
            continue  # only something inside of it is new
        node = _with_brackets(node, field_name, child)
    return node


def _with_brackets(node: Any, field_name: str, child: Any) -> Any:
    if child.lpar:
        return node
    bracketed = child.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return node.with_changes(**{field_name: bracketed})


def _leading(statement: Any) -> list[cst.EmptyLine]:
    return list(statement.leading_lines)


@dataclass(frozen=True)
class _Leftover:
    """Comments and blank lines of a statement that went, until the block around it is settled."""

    lines: Sequence[cst.EmptyLine]

    def _is_removable(self) -> bool:  # asked by LibCST of everything in a body
        return False


def _left_over(lines: Sequence[cst.EmptyLine]) -> cst.FlattenSentinel[Any]:
    return cst.FlattenSentinel([_Leftover(lines)])


def _settle(block: Any) -> Any:
    """Give the lines that removed statements left behind to the next statement, or to the block."""
    if not any(isinstance(s, _Leftover) for s in block.body):
        return block
    body: list[Any] = []
    waiting: list[cst.EmptyLine] = []
    removed_first = False
    for statement in block.body:
        if isinstance(statement, _Leftover):
            if not body and not waiting:
                removed_first = True
            waiting = _joined(waiting, list(statement.lines))
            continue
        if waiting:
            lines = _joined(waiting, _leading(statement))
            if removed_first and not body:
                lines = _without_leading_blanks(lines)
            statement = statement.with_changes(leading_lines=lines)
            waiting = []
        elif removed_first and not body:
            statement = statement.with_changes(
                leading_lines=_without_leading_blanks(_leading(statement))
            )
        body.append(statement)
    footer = [line for line in waiting if line.comment is not None]
    if not body and not isinstance(block, cst.Module):
        body = [cst.SimpleStatementLine([cst.Pass()], leading_lines=footer)]
        footer = []
    return block.with_changes(body=body, footer=[*footer, *block.footer])


def _joined(above: list[cst.EmptyLine], below: list[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Two runs of lines with the blank lines between them counted once."""
    blanks_above = len(above) - len(_without_trailing_blanks(above))
    blanks_below = len(below) - len(_without_leading_blanks(below))
    if blanks_above >= blanks_below:
        return above + below[blanks_below:]
    return above[: len(above) - blanks_above] + below


def _without_leading_blanks(lines: list[cst.EmptyLine]) -> list[cst.EmptyLine]:
    while lines and lines[0].comment is None:
        lines = lines[1:]
    return lines


def _without_trailing_blanks(lines: list[cst.EmptyLine]) -> list[cst.EmptyLine]:
    while lines and lines[-1].comment is None:
        lines = lines[:-1]
    return lines


def _comments(node: cst.CSTNode) -> Iterator[cst.Comment]:
    if isinstance(node, cst.Comment):
        yield node
    for child in node.children:
        yield from _comments(child)


def _own_line_comments(node: cst.CSTNode) -> Iterator[cst.Comment]:
    if isinstance(node, cst.EmptyLine) and node.comment is not None:
        yield node.comment
    for child in node.children:
        yield from _own_line_comments(child)


def _edit_call(edit: EditCall, call: cst.Call) -> cst.Call:
    if edit.method is not None:
        assert isinstance(call.func, cst.Attribute)
        call = call.with_changes(func=call.func.with_changes(attr=cst.Name(edit.method)))
    if edit.function is not None:
        call = call.with_changes(func=_parse(edit.function))
    arguments: list[ast.expr | ast.keyword] = [*edit.node.args, *edit.node.keywords]
    written = sorted(arguments, key=lambda a: (a.lineno, a.col_offset))
    args: list[cst.Arg] = []
    put = dict(edit.put)
    for node, arg in zip(written, call.args, strict=True):
        if node in edit.drop:
            continue
        if isinstance(node, ast.keyword) and node.arg in put:
            arg = arg.with_changes(value=_parse(put.pop(node.arg)))
        args.append(arg)
    last_comma = call.args[-1].comma if call.args else cst.MaybeSentinel.DEFAULT
    if args:
        args[-1] = args[-1].with_changes(comma=last_comma)
    elif call.args:
        call = call.with_changes(whitespace_before_args=cst.SimpleWhitespace(""))
        last_comma = cst.MaybeSentinel.DEFAULT
    if edit.first is not None:
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        first = cst.Arg(_parse(edit.first), comma=comma if args else last_comma)
        args.insert(0, first)
    for name, value in put.items():
        new = cst.Arg(
            keyword=cst.Name(name),
            value=_parse(value),
            equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
            comma=last_comma,
        )
        if args:
            args[-1] = args[-1].with_changes(comma=_separator(call))
        args.append(new)
    return call.with_changes(args=args)


def _separator(call: cst.Call) -> cst.Comma:
    """The comma between arguments, in the style of this call."""
    for arg in call.args[:-1]:
        if isinstance(arg.comma, cst.Comma) and not list(_comments(arg.comma)):
            return arg.comma.deep_clone()
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _drop_names(edit: DropNames, node: Any) -> Any:
    gone = {edit.node.names.index(alias) for alias in edit.names}
    kept = [alias for i, alias in enumerate(node.names) if i not in gone]
    kept[-1] = kept[-1].with_changes(comma=node.names[-1].comma)
    return node.with_changes(names=kept)


def _statements(lines: Sequence[str]) -> list[Any]:
    """Parsed lines; "" asks for a blank line above the next statement, if it has none."""
    result: list[Any] = []
    blanks: list[cst.EmptyLine] = []
    for line in lines:
        if not line:
            blanks.append(cst.EmptyLine(indent=False))
            continue
        statement = cst.parse_statement(line)
        result.append(statement.with_changes(leading_lines=blanks))
        blanks = []
    return [*result, _Leftover(blanks)] if blanks else result


def _insert(inserts: Sequence[Insert], original: Any, result: Any) -> cst.FlattenSentinel[Any]:
    parts = list(result) if isinstance(result, cst.FlattenSentinel) else [result]
    before = [s for edit in inserts if edit.before for s in _statements(edit.lines)]
    behind = [s for edit in inserts if not edit.before for s in _statements(edit.lines)]
    if before:
        # what comes first takes the comments and blank lines above the old first statement
        first = next((p for p in parts if not isinstance(p, _Leftover)), None)
        if first is not None:
            before[0] = before[0].with_changes(leading_lines=_leading(first))
            joins_imports = all(isinstance(e.anchor, ast.Import) for e in inserts if e.before)
            blank = [] if joins_imports else [cst.EmptyLine(indent=False)]
            parts[parts.index(first)] = first.with_changes(leading_lines=blank)
    return cst.FlattenSentinel([*before, *parts, *behind])


@lru_cache(maxsize=512)
def _parse(code: str) -> cst.BaseExpression:
    return cst.parse_expression(code)


class _Fill(cst.CSTTransformer):
    def __init__(self, filling: dict[str, Any]) -> None:
        super().__init__()
        self.filling = filling

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> Any:
        return self.filling.get(updated_node.value, updated_node)

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        return _bracketed(super().on_leave(original_node, updated_node), original_node)


def _fill(template: str, filling: dict[str, Any]) -> Any:
    code = template
    for name in filling:
        code = code.replace("{" + name + "}", f"_hole_{name}_")
    parsed = _parse(code)
    if not filling:
        return parsed.deep_clone()
    return parsed.visit(_Fill({f"_hole_{name}_": node for name, node in filling.items()}))
