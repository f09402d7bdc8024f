"""Write: apply the edits to the text, and check the result against them.

LibCST takes longer to import than everything else, so it is only imported if there are edits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from migrator.analysis.devices.other_accelerators import parse_as
from migrator.codes import INTERNAL
from migrator.context import Context
from migrator.diagnostics import SourceMap, lines_of
from migrator.edits import Edit
from migrator.pipeline import guard
from migrator.pipeline.module import Module
from migrator.pipeline.reparse import reparsed
from migrator.pipeline.result import MigrationFailure

if TYPE_CHECKING:
    from migrator.tree import Tree


class NotPlaced(Exception):
    """Edits that can't be applied."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        super().__init__()
        self.edits = edits


def write(
    module: Module, context: Context, edits: Sequence[Edit], alone: Iterable[Sequence[Edit]]
) -> tuple[bytes, ast.Module]:
    """A module with edits made in it: its content, and its tree.

    Args:
        alone: those of the edits that are made together, whatever becomes of the others.

    Raises:
        NotPlaced: some of them cannot be made; the others may be.
        Failure: the module, or what becomes of it, is not what it has to be.
    """
    from migrator.tree import ParserSyntaxError, UnplacedEdit, apply

    try:
        places = _places(module, context, edits)
        if not places.round_trips:
            raise MigrationFailure(INTERNAL, "this file does not survive a round trip; not changed")
        text = apply(places, context.source, edits)
    except UnplacedEdit as unplaced:
        raise NotPlaced(unplaced.edits) from None
    except ParserSyntaxError as error:
        raise MigrationFailure(
            INTERNAL, f"LibCST cannot parse this file: {error.message}"
        ) from error
    lines = context.source.lines, lines_of(text)
    with suppress(SyntaxError, guard.Differs):
        return module.source.encode(text), _checked_quickly(module, context, edits, lines)
    try:
        tree = parse_as(module.parsed.accelerator, text).tree
    except SyntaxError as error:
        at_fault = [e for part in alone if not _parses(places, context.source, part) for e in part]
        if at_fault:
            raise NotPlaced(at_fault) from None
        message = f"the rewrite would not parse ({error.msg}, line {error.lineno}); not changed"
        raise MigrationFailure(INTERNAL, message) from error
    _compare(module, tree, lines, context, edits)
    return module.source.encode(text), tree


def _places(module: Module, context: Context, edits: Sequence[Edit]) -> Tree:
    """The LibCST tree of the changed statements, or of the whole file if the rest can't be left
    out."""
    from migrator.tree import ParserSyntaxError, Tree, unconcerned

    kept = unconcerned(module.tree, context.names.parents, context.source, edits)
    with suppress(ParserSyntaxError):
        abridged = Tree(module.text, kept)
        if abridged.round_trips or not kept:
            return abridged
    return Tree(module.text)


def _parses(places: Tree, source: SourceMap, edits: Sequence[Edit]) -> bool:
    """Whether some edits alone give a result that parses."""
    from migrator.tree import UnplacedEdit, apply

    try:
        ast.parse(apply(places, source, edits))
    except (SyntaxError, UnplacedEdit):
        return False
    return True


_Lines = tuple[Sequence[str], Sequence[str]]  # before and after


def _checked_quickly(
    module: Module, context: Context, edits: Sequence[Edit], lines: _Lines
) -> ast.Module:
    """The tree of the result, if that is the module with its edits.

    Raises SyntaxError or Differs if a closer look is needed.
    """
    if module.parsed.accelerator:  # its trees have other names than its text
        raise guard.Differs(None)
    tree = reparsed(module.tree, *lines)
    guard.check(module.tree, tree, context.names.parents, edits, lines, {*module.tree.body})
    return tree


def _compare(
    module: Module, tree: ast.Module, lines: _Lines, context: Context, edits: Sequence[Edit]
) -> None:
    """Raise Failure if the result is anything other than the module with its edits."""
    try:
        guard.check(module.tree, tree, context.names.parents, edits, lines)
    except guard.Differs as where:
        message = (
            "internal error: the rewrite would change more than intended, from line "
            f"{where.line} on; not changed; please send the maintainers this file and the "
            "command"
        )
        raise MigrationFailure(INTERNAL, message) from where
