"""Reparse: the tree of a module after a change, of which only what has changed is parsed."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator, Sequence


def reparsed(tree: ast.Module, before: Sequence[str], after: Sequence[str]) -> ast.Module:
    """The tree of the lines `after`, with the statements of `tree` whose lines are unchanged.

    A module is a series of statements. So what lies between unchanged ones, and parses by itself,
    is what it is in the module: no line above it is continued. Unchanged statements keep the line
    numbers of `before`.

    Raises:
        SyntaxError: what lies between them does not parse by itself; the module may.
    """
    places: dict[str, list[int]] = {}
    for number, line in enumerate(after):
        places.setdefault(line, []).append(number)
    body: list[ast.stmt] = []
    done = 0
    for first, end, statements in _runs(tree, before):
        lines = before[first:end]
        found = places.get(lines[0], ())
        index = bisect_left(found, done)
        at = found[index] if index < len(found) else len(after)
        if after[at : at + len(lines)] == lines:
            body += (*_parsed(after, done, at), *statements)
            done = at + len(lines)
    body += _parsed(after, done, len(after))
    return ast.Module(body, [])


def _runs(tree: ast.Module, lines: Sequence[str]) -> Iterator[tuple[int, int, list[ast.stmt]]]:
    """The top-level statements that begin a line which continues none, with those that follow up
    to the next one; their first line, and the first one behind them, with comments, from 0."""
    run: list[ast.stmt] = []
    first = 0
    for statement in tree.body:
        decorators = getattr(statement, "decorator_list", ())
        at = min(node.lineno for node in (statement, *decorators)) - 1
        is_apart = not (at and lines[at - 1].rstrip("\r\n").endswith("\\"))
        if decorators:  # what is behind an `@` may begin on a later line
            is_apart &= lines[at].startswith("@")
        if run and is_apart and at >= (run[-1].end_lineno or 0):
            yield first, at, run
            run = []
        first = first if run else at
        run.append(statement)
    if run:
        yield first, len(lines), run


def _parsed(lines: Sequence[str], first: int, end: int) -> list[ast.stmt]:
    """The statements of some lines."""
    if not any(line.strip(" \t\f\r\n") for line in lines[first:end]):
        return []
    part = ast.parse("".join(lines[first:end]))
    return ast.increment_lineno(part, first).body
