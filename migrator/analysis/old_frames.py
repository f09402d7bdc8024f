"""Methods and attributes that pandas' frames and series no longer have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from migrator.analysis.syntax.names import Names
from migrator.analysis.upgrade_tables import removed_frame_methods
from migrator.construct import Construct

_MAKES = re.compile(r"pandas\.(?:DataFrame|Series|concat|merge|read_(?!hdf|html|pickle|json)\w+)")
# Methods of a frame or a series that give another one.
_SAME = frozenset({
    "append", "apply", "applymap", "astype", "copy", "drop", "drop_duplicates", "dropna", "fillna",
    "head", "join", "merge", "rename", "replace", "reset_index", "sample", "set_index",
    "sort_index", "sort_values", "tail",
})  # fmt: skip
_PARTS = ("iloc", "loc", "ix")
_DEEPEST = 6


def may_be_in(source: bytes) -> bool:
    """A cheap test: False if a file has none."""
    return b"pandas" in source and _words().search(source) is not None


@cache
def _words() -> re.Pattern[bytes]:
    return re.compile(rf"\.(?:{'|'.join(removed_frame_methods())})\b".encode())


def find(names: Names, node: ast.Attribute) -> Iterator[Construct]:
    """An attribute of a value that the source shows to be a frame or a series."""
    if node.attr in removed_frame_methods() and (
        is_frame(names, node.value) or names.qualified(node.value) == "pandas.DataFrame"
    ):
        yield Construct("removed of frame", node.attr, node)


def is_frame(names: Names, node: ast.expr | None, depth: int = 0) -> bool:
    """Whether a value is a frame or a series, whatever it was bound to."""
    if depth > _DEEPEST:
        return False
    match node:
        case ast.Call(func=ast.Attribute(attr=method, value=owner)) if (
            names.qualified(node.func) is None
        ):
            return method in _SAME and is_frame(names, owner, depth + 1)
        case ast.Call(func=func):
            return _MAKES.fullmatch(names.qualified(func) or "") is not None
        case ast.Subscript(value=ast.Attribute(attr=part, value=owner)) if part in _PARTS:
            return isinstance(node.slice, ast.Slice) and is_frame(names, owner, depth + 1)
        case ast.Subscript(value=owner, slice=ast.Constant(value=str()) | ast.List()):
            return is_frame(names, owner, depth + 1)
        case ast.Name():
            values = [each.value for each in names.lookup(node)]
        case ast.Attribute(attr=name, value=ast.Name() as owner):
            within = names.owner_class(owner)
            values = [*names.class_attributes[within].get(name, ())] if within else []
        case _:
            return False
    known = [value for value in values if not _takes_itself(node, value)]
    return bool(known) and all(is_frame(names, value, depth + 1) for value in known)


def _takes_itself(node: ast.expr, value: ast.expr | None) -> bool:
    """`df = df.append(…)`: a frame if it was one."""
    while isinstance(value, ast.Call | ast.Attribute | ast.Subscript):
        value = value.func if isinstance(value, ast.Call) else value.value
        if ast.unparse(value) == ast.unparse(node):
            return True
    return False
