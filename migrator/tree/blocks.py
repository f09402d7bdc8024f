"""Blocks of statements: what removed statements leave behind, and inserted lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from migrator.edits import AddBranch, AddParameter, Insert


def leading(statement: Any) -> list[cst.EmptyLine]:
    return list(statement.leading_lines)


@dataclass(frozen=True)
class Leftover:
    """Comments and blank lines of a statement that went, until the block around it is settled."""

    lines: Sequence[cst.EmptyLine]

    def _is_removable(self) -> bool:  # asked by LibCST of everything in a body
        return False


def left_over(lines: Sequence[cst.EmptyLine]) -> cst.FlattenSentinel[Any]:
    return cst.FlattenSentinel([Leftover(lines)])


def settle(block: Any) -> Any:
    """Give the lines that removed statements left behind to the next statement, or to the block."""
    if not any(isinstance(s, Leftover) for s in block.body):
        return block
    body: list[Any] = []
    waiting: list[cst.EmptyLine] = []
    removed_first = False
    for statement in block.body:
        if isinstance(statement, Leftover):
            if not body and not waiting:
                removed_first = True
            waiting = _join_blank_lines(waiting, list(statement.lines))
            continue
        if waiting:
            lines = _join_blank_lines(waiting, leading(statement))
            if removed_first and not body:
                lines = _without_leading_blanks(lines)
            statement = statement.with_changes(leading_lines=lines)
            waiting = []
        elif removed_first and not body:
            statement = statement.with_changes(
                leading_lines=_without_leading_blanks(leading(statement))
            )
        body.append(statement)
    footer = [line for line in waiting if not _is_blank(line)]
    if not body and not isinstance(block, cst.Module):
        body = [cst.SimpleStatementLine([cst.Pass()], leading_lines=footer)]
        footer = []
    return block.with_changes(body=body, footer=[*footer, *block.footer])


def without_empty_else(original: cst.If, updated: cst.If) -> cst.If:
    """An `else` that lost all its statements, and had no comments, goes."""
    before, now = original.orelse, updated.orelse
    if not isinstance(before, cst.Else) or not isinstance(now, cst.Else):
        return updated
    if _does_nothing(before.body) or not _does_nothing(now.body) or any(comments(before)):
        return updated
    return updated.with_changes(orelse=None)


def _does_nothing(block: cst.BaseSuite) -> bool:
    match block.body:
        case [cst.SimpleStatementLine(body=[cst.Pass()])] | [cst.Pass()]:
            return True
    return False


def _join_blank_lines(
    above: list[cst.EmptyLine], below: list[cst.EmptyLine]
) -> list[cst.EmptyLine]:
    """Two runs of lines with the blank lines between them counted once."""
    blanks_above = len(above) - len(_without_trailing_blanks(above))
    blanks_below = len(below) - len(_without_leading_blanks(below))
    if blanks_above >= blanks_below:
        return above + below[blanks_below:]
    return above[: len(above) - blanks_above] + below


def _without_leading_blanks(lines: list[cst.EmptyLine]) -> list[cst.EmptyLine]:
    while lines and _is_blank(lines[0]):
        lines = lines[1:]
    return lines


def _without_trailing_blanks(lines: list[cst.EmptyLine]) -> list[cst.EmptyLine]:
    while lines and _is_blank(lines[-1]):
        lines = lines[:-1]
    return lines


def _is_blank(line: cst.EmptyLine) -> bool:
    """Whether a line says nothing: a form feed begins another page of the source."""
    return line.comment is None and "\f" not in line.whitespace.value


def comments(node: cst.CSTNode) -> Iterator[cst.Comment]:
    if isinstance(node, cst.Comment):
        yield node
    for child in node.children:
        yield from comments(child)


def own_line_comments(node: cst.CSTNode) -> Iterator[cst.Comment]:
    if isinstance(node, cst.EmptyLine) and node.comment is not None:
        yield node.comment
    for child in node.children:
        yield from own_line_comments(child)


# What tools read, which concerns a line of code alone.
_FOR_TOOLS = re.compile(
    r"#\s*(?:noqa|type:|pragma|fmt:|pylint|pyright|mypy|nosec|isort|yapf|ruff|flake8|tpu-migrate)"
)


def outliving(gone: Any) -> list[cst.EmptyLine]:
    """The comments in a statement or a decorator that goes, without those above it.

    What stands beside an import that may fail is about the code of another version.
    """
    above = {id(line.comment) for line in gone.leading_lines}
    whole = gone.body if isinstance(gone, cst.Try) else gone
    lines = {id(comment) for comment in own_line_comments(whole)}
    return [
        cst.EmptyLine(comment=comment)
        for comment in comments(whole)
        if id(comment) not in above
        and (id(comment) in lines or not _FOR_TOOLS.match(comment.value))
    ]


def statements(lines: Sequence[str]) -> list[Any]:
    """Parsed lines; "" asks for a blank line above the next statement, if it has none."""
    result: list[Any] = []
    blanks: list[cst.EmptyLine] = []
    for line in lines:
        if not line:
            blanks.append(cst.EmptyLine(indent=False))
            continue
        statement = cst.parse_statement(line)
        result.append(statement.with_changes(leading_lines=[*blanks, *statement.leading_lines]))
        blanks = []
    return [*result, Leftover(blanks)] if blanks else result


_JOINED = (ast.Import, ast.For, ast.While)


def _belongs_above(anchor: ast.stmt | None) -> bool:
    """Whether what is inserted above a statement belongs to it: no blank line parts them."""
    return anchor is not None and (anchor.col_offset > 0 or isinstance(anchor, _JOINED))


def insert(inserts: Sequence[Insert], original: Any, result: Any) -> cst.FlattenSentinel[Any]:
    parts = list(result) if isinstance(result, cst.FlattenSentinel) else [result]
    before = [s for edit in inserts if edit.before for s in statements(edit.lines)]
    behind = [s for edit in inserts if not edit.before for s in statements(edit.lines)]
    if before:
        # what comes first takes the comments and blank lines above the old first statement
        first = next((p for p in parts if not isinstance(p, Leftover)), None)
        if first is not None:
            before[0] = before[0].with_changes(leading_lines=leading(first))
            joins = all(_belongs_above(edit.anchor) for edit in inserts if edit.before)
            blank = [] if joins else [cst.EmptyLine(indent=False)]
            parts[parts.index(first)] = first.with_changes(leading_lines=blank)
    return cst.FlattenSentinel([*before, *parts, *behind])


def wrapped(header: str, body: Sequence[Any]) -> Any:
    """A block of these statements; blank lines and comments above them stay above it."""
    inner = settle(cst.IndentedBlock([_with_bare_blanks(statement) for statement in body]))
    first, *rest = inner.body
    made: Any = cst.parse_statement(f"{header}\n    pass\n")
    inner = inner.with_changes(body=[first.with_changes(leading_lines=[]), *rest])
    return made.with_changes(body=inner, leading_lines=leading(first))


def _with_bare_blanks(statement: Any) -> Any:
    """A statement whose blank lines above hold no white space, which they would when indented."""
    if not hasattr(statement, "leading_lines"):
        return statement
    lines = [
        line if line.comment is not None else line.with_changes(indent=False)
        for line in statement.leading_lines
    ]
    return statement.with_changes(leading_lines=lines)


def add_branch(edit: AddBranch, statement: cst.If) -> Any:
    """The `if` with a branch in front of it; comments above the `if` stay above what is first."""
    new: Any = cst.parse_statement(f"if {edit.test}:\n    {edit.body}\n")
    lines = leading(statement)
    if statement.orelse is not None:
        old = statement.with_changes(leading_lines=[])
        return new.with_changes(leading_lines=lines, orelse=old)
    own = _without_leading_blanks(lines)
    blanks = lines[: len(lines) - len(own)]
    old = statement.with_changes(leading_lines=own)
    return cst.FlattenSentinel([new.with_changes(leading_lines=blanks), old])


def add_parameter(edit: AddParameter, function: cst.FunctionDef) -> cst.FunctionDef:
    """The function with one more parameter, laid out as those in front of it."""
    *others, last = function.params.params
    space = cst.SimpleWhitespace(" ")
    around = space if edit.annotation else cst.SimpleWhitespace("")
    said = cst.Annotation(cst.parse_expression(edit.annotation)) if edit.annotation else None
    added = cst.Param(
        cst.Name(edit.name), said, equal=cst.AssignEqual(around, around), default=cst.Name("None"),
        comma=last.comma,
    )  # fmt: skip
    comma = others[-1].comma if others else cst.Comma(whitespace_after=space)
    params = [*others, last.with_changes(comma=comma), added]
    return function.with_changes(params=function.params.with_changes(params=params))
