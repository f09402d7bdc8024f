"""Arithmetic that older versions did otherwise: `/` of integers, `1 - mask`, `~` of bytes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names
from migrator.analysis.upgrade_tables import removed_builtins, removed_names
from migrator.analysis.values.dtypes import Dtype, dtype
from migrator.construct import Construct

_INTEGERS = (Dtype.INTEGERS, Dtype.INDICES)
# PyTorch 1.4 is the last whose `/` of integers rounds, and the last for Python 2.
_ROUNDED = re.compile(r"torch 1\.[0-5]\b")
_BY_INDEX = ("index_select", "gather", "index_fill", "index_fill_", "index_copy_", "scatter_")


def may_be_in(source: bytes) -> bool:
    """A cheap test: False if a file is unlikely to have such an operation."""
    return b"torch" in source and _LIKELY.search(source) is not None


# What is masked, compared or an index in one line.
_LIKELY = re.compile(
    rb"\b1\s*-\s*(?:\w*mask|\([^()\n]*(?:[<>]|==|!=))|\b1\s*-[^\n]*\.(?:eq|ge|gt|le|lt|ne)\("
    rb"|~[^\n]*\.byte\(\)|\[[^\]\n]*[\w)]\s*/\s*\w"
    rb"|\.(?:view|reshape)\([^\n]*[\w)]\s*/\s*\w|^\s*(?:self\.)?\w+\s*=[^\n#]*[\w)]\s*/\s*self\.",
    re.MULTILINE,
)


def find(names: Names, node: ast.BinOp | ast.UnaryOp) -> Iterator[Construct]:
    """An operation whose result is another one now, or that fails."""
    match node:
        case ast.UnaryOp(op=ast.Invert(), operand=mask):
            if dtype(names, mask) is Dtype.BYTES:
                yield Construct("changed", "inverted bytes", node)
        case ast.UnaryOp(op=ast.USub(), operand=mask):
            if dtype(names, mask) is Dtype.BOOLEANS:
                yield Construct("changed", "mask minus", node)
        case ast.BinOp(op=ast.Sub(), left=left, right=right):
            if dtype(names, right) is Dtype.BOOLEANS:
                ones = isinstance(left, ast.Constant) and left.value == 1
                yield Construct("changed", "inverted mask" if ones else "mask minus", node)
            elif dtype(names, left) is Dtype.BOOLEANS:
                yield Construct("changed", "mask minus", node)
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            of, by = dtype(names, left), dtype(names, right)
            if of in _INTEGERS and _is_index(names, node):
                is_shown = of is Dtype.INDICES and _is_positive(right, by)
                yield Construct("changed", "divided index" if is_shown else "division", node)
            elif (size := next(_sizes(names, node), None)) is not None:
                yield Construct("changed", "divided size" if size is node else "named size", node)
            elif of in _INTEGERS and by in (*_INTEGERS, Dtype.NUMBER) and _is_old(names):
                yield Construct("changed", "rounded division", node)


def _is_positive(node: ast.expr, kind: Dtype | None) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and node.value > 0
    return kind is Dtype.NUMBER and isinstance(node, ast.Call)  # a length


def _is_index(names: Names, node: ast.expr) -> bool:
    """Whether a value picks elements, which only whole numbers can."""
    parent = names.parents.get(node)
    match parent:
        case ast.Subscript(slice=index):
            return index is node
        case ast.Call(func=ast.Attribute(attr=method)):
            return method in _BY_INDEX and node in parent.args
    return any(_is_index(names, use) for use in _uses_by_name(names, node))


def _uses_by_name(names: Names, node: ast.expr) -> Iterator[ast.expr]:
    """Uses of a variable that is given this value, and no other."""
    match names.parents.get(node):
        case ast.Assign(targets=[ast.Name(id=name) as target]):
            scope = names.scope_of(target)
            if len(scope.bindings.get(name, ())) == 1:
                yield from names.uses(name, scope)


def _sizes(names: Names, node: ast.expr) -> Iterator[ast.expr]:
    """Uses of a value as a size, `x.view(n, size / 2)`: fractions, even 2.0, raise an error."""
    uses = [node, *_uses_by_name(names, node)]
    match names.parents.get(node):
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)]):
            uses += names.by_attribute.get(attr, ())
    for use in uses:
        match names.parents.get(use):
            case ast.Call(func=ast.Attribute(attr="view" | "reshape"), args=given) if use in given:
                yield use


def _is_old(names: Names) -> bool:
    """Whether a file uses what only versions have whose `/` rounds."""
    for name in removed_builtins():
        if any(not names.lookup(use) for use in names.by_id.get(name, ())):
            return True
    known = removed_names()
    return any(name in known and _ROUNDED.search(known[name].since) for _, name in names.meant)
