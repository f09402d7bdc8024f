"""The one pass over the tree: applies the edits on the way out, so that nested ones compose."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import libcst as cst

from migrator.diagnostics import SourceMap
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
from migrator.tree.blocks import (
    Leftover,
    add_branch,
    add_parameter,
    comments,
    insert,
    leading,
    left_over,
    outliving,
    settle,
    statements,
    without_empty_else,
    wrapped,
)
from migrator.tree.expressions import (
    ATOMS,
    bracketed,
    comma_in,
    edit_call,
    edit_import,
    fill,
    parse,
)
from migrator.tree.node_places import NodePlaces, Tree, UnplacedEdit


def apply(tree: Tree, source: SourceMap, edits: Sequence[Edit]) -> str:
    """The source text with all edits made.

    Raises:
        UnplacedEdit: for edits whose nodes have no counterpart; nothing is applied then.
    """
    places = NodePlaces(tree, source)
    unplaced = [edit for edit in edits if not places.add(edit)]
    if unplaced:
        raise UnplacedEdit(unplaced)
    editor = _Editor(places)
    result = tree.module.visit(editor)
    missed = [edit for edit in places.edits.values() if edit not in editor.made]
    if missed:
        raise UnplacedEdit(missed)
    assert isinstance(result, cst.Module)
    return tree.text(result)


class _Editor(cst.CSTTransformer):
    """Applies the edits on the way out, so that nested edits compose."""

    def __init__(self, places: NodePlaces) -> None:
        super().__init__()
        self.places = places
        self.kept: dict[int, cst.CSTNode] = {}  # id of an ast hole -> its edited LibCST node
        self.orphans: list[list[cst.EmptyLine]] = []  # comments of replaced code, by statement
        self.removed: set[int] = set()
        self.made: set[Edit] = set()
        self.blocks: dict[Wrap, list[Any]] = {}  # statements of blocks that are added, edited

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.BaseStatement | cst.Decorator):
            self.orphans.append([])
        return self.places.leads_to_edit(node)

    def on_leave(self, original: Any, updated: Any) -> Any:
        edit = self.places.edits.get(id(original))
        result: Any = updated
        if isinstance(original, cst.List | cst.Tuple | cst.Set):
            result = self._spread(original, updated)
        if edit is not None and not isinstance(edit, Spread):
            self.made.add(edit)
            result = self._edited(edit, original, updated)
        if isinstance(original, cst.If) and isinstance(result, cst.If):
            result = without_empty_else(original, result)
        result = bracketed(result, original)
        hole = self.places.holes.get(id(original))
        if hole is not None:
            self.kept[hole] = result
        if isinstance(original, cst.BaseStatement):
            result = self._statement(original, result, self.orphans.pop())
            inserts = self.places.inserts.get(id(original))
            result = insert(inserts, original, result) if inserts else result
            block = self.places.wrapped.get(id(original))
            if block is not None:
                return self._in_block(block, original, result)
            return result
        if isinstance(original, cst.Decorator):
            comments = self.orphans.pop()
            if result.decorator is _REMOVED:
                above = [line for line in original.leading_lines if line.comment is not None]
                self.orphans[-1] += [*above, *outliving(original)]  # above what it decorated
                return cst.RemoveFromParent()
            if comments:
                return result.with_changes(leading_lines=[*result.leading_lines, *comments])
        if isinstance(original, cst.Module) and not original.body:
            inserts = self.places.inserts.get(0, [])
            return result.with_changes(body=[s for e in inserts for s in statements(e.lines)])
        if isinstance(original, cst.IndentedBlock | cst.Module):
            return settle(result)
        if isinstance(original, cst.SimpleStatementSuite):
            body = self._remaining(original, result)
            return result.with_changes(body=body or [cst.Pass()])
        return result

    def _spread(self, original: cst.List | cst.Tuple | cst.Set, updated: Any) -> Any:
        """The list (a tuple, a set) with several elements in the place of single ones."""
        elements: list[Any] = []
        for old, new in zip(original.elements, updated.elements, strict=True):
            edit = self.places.edits.get(id(old.value))
            if not isinstance(edit, Spread):
                elements.append(new)
                continue
            self.made.add(edit)
            values = [parse(code) for code in edit.elements]
            comma = comma_in(original)
            elements += [cst.Element(value, comma=comma) for value in values[:-1]]
            elements.append(new.with_changes(value=values[-1]))
        if len(elements) == len(updated.elements) and all(
            new is old for new, old in zip(elements, updated.elements, strict=True)
        ):
            return updated
        return updated.with_changes(elements=elements)

    def _edited(self, edit: Edit, original: Any, updated: Any) -> Any:
        match edit:
            case SetString():
                prefix, quote = updated.prefix, updated.quote
                result: Any = updated.with_changes(value=f"{prefix}{quote}{edit.value}{quote}")
            case Replace():
                filling = {
                    name: updated if hole is edit.node else self.kept[id(hole)]
                    for name, hole in edit.holes.items()
                }
                result = fill(edit.template, filling)
                if updated.lpar and not result.lpar and not self._is_alone(original, result):
                    result = result.with_changes(lpar=updated.lpar, rpar=updated.rpar)
            case ReplaceStatement():
                filling = {name: self.kept[id(hole)] for name, hole in edit.holes.items()}
                result = cst.Expr(fill(edit.template, filling), semicolon=updated.semicolon)
            case EditCall():
                result = edit_call(edit, updated)
            case Delete():
                if isinstance(edit.node, ast.expr):
                    return _REMOVED
                self.removed.add(id(original))
                return updated
            case Unwrap():
                result = self._unwrap(edit, updated)
            case EditImport():
                result = edit_import(edit, updated)
            case AddParameter():
                result = add_parameter(edit, updated)
            case AddBranch():
                return add_branch(edit, updated)
            case Insert() | Spread() | Wrap():
                raise AssertionError("these hang on statements")
        if isinstance(result, cst.CSTNode):
            self._keep_comments(original, result)
        return result

    def _is_alone(self, original: Any, result: Any) -> bool:
        """Whether an expression's brackets are of no more use: those of `("cuda" if x else y)`
        that is a string now. None that stand at a word, as in `return("cuda" if x else y)`."""
        if isinstance(original, ATOMS) or not isinstance(result, ATOMS) or len(original.lpar) > 1:
            return False
        text, (start, end) = self.places.source.text, self.places.span_of[id(original)]
        before, after = text[:start].rstrip(), text[end:].lstrip()
        if "\n" in cst.Module([]).code_for_node(result):
            return False
        at_word = before[-2:-1].isidentifier() or (after[1:2] + "_").isidentifier()
        return before.endswith("(") and after.startswith(")") and not at_word

    def _unwrap(self, edit: Unwrap, updated: cst.With | cst.If) -> Any:
        if isinstance(edit.node, ast.With | ast.AsyncWith) and isinstance(updated, cst.With):
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
        first = first.with_changes(leading_lines=[*lines, *leading(first)])
        return cst.FlattenSentinel([first, *rest, Leftover(updated.body.footer)])

    def _keep_comments(self, original: cst.CSTNode, result: cst.CSTNode) -> None:
        """Comments inside replaced code move above the statement that it belongs to."""
        start, end = self.places.span_of[id(original)]
        if "#" not in self.places.source.text[start:end]:
            return
        left = [c.value for c in comments(result)]
        for comment in comments(original):
            if comment.value in left:
                left.remove(comment.value)
            elif self.orphans:
                self.orphans[-1].append(cst.EmptyLine(comment=comment))

    def _statement(self, original: Any, result: Any, comments: list[cst.EmptyLine]) -> Any:
        if isinstance(original, cst.SimpleStatementLine):
            body = self._remaining(original, result)
            if not body:
                return left_over([*original.leading_lines, *outliving(original)])
            if len(body) < len(original.body):
                result = result.with_changes(body=body)
        elif id(original) in self.removed:
            return left_over([*original.leading_lines, *outliving(original)])
        if comments and isinstance(result, cst.BaseStatement):
            return result.with_changes(leading_lines=[*leading(result), *comments])
        return result

    def _in_block(self, edit: Wrap, original: Any, result: Any) -> Any:
        """Keep a statement for its block; the last of them leaves the block in its place."""
        parts = list(result) if isinstance(result, cst.FlattenSentinel) else [result]
        self.blocks.setdefault(edit, []).extend(parts)
        if original is not self.places.last_in[edit]:
            return left_over([])
        return wrapped(edit.header, self.blocks[edit])

    def _remaining(self, original: Any, result: Any) -> list[Any]:
        """The small statements of a line that are not deleted."""
        pairs = zip(original.body, result.body, strict=True)
        body = [new for old, new in pairs if id(old) not in self.removed]
        if body and len(body) < len(original.body):
            body[-1] = body[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return body


_REMOVED = cst.Name("removed")
