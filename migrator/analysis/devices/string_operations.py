"""Where a program takes a device's name apart: by patterns, by letters and by their case.

What is compared with a whole name, or with its beginning, is a matter of `device_strings`.
"""

from __future__ import annotations

import ast

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import DEVICE_TEXT, Kind

# The place of the text among the arguments of functions that take a pattern.
_MATCHES = dict.fromkeys(("match", "search", "fullmatch", "findall", "finditer", "split"), 1)
_PLACES = {
    **{f"re.{name}": place for name, place in _MATCHES.items()},
    "re.sub": 2, "re.subn": 2, "fnmatch.fnmatch": 0, "fnmatch.fnmatchcase": 0,
}  # fmt: skip
_LETTERS = ("upper", "title", "capitalize", "swapcase")
_SAME = ("lower", "strip", "casefold")
_SOUGHT = ("count", "endswith", "find", "index", "partition", "replace", "rfind", "rindex",
           "rpartition", "rsplit", "split", "startswith")  # fmt: skip


def takes_name_apart(names: Names, flow: Flow, node: ast.expr) -> bool:
    """Whether an expression looks into a device's name, where no other construct says so."""
    match node:
        case ast.Call(func=func):
            called = names.qualified(func) or ""
            if called in _PLACES:
                text = argument(node, _PLACES[called], "string", "name")
                return text is not None and _is_name(flow, text) and not _has_device(node)
            match func:
                case ast.Attribute(value=owner, attr=attr) if attr in _SOUGHT and _is_name(
                    flow, owner
                ):
                    return any(_speaks_of_cuda(each) for each in node.args)
                case ast.Attribute(attr=attr) if called == "" and attr in (*_MATCHES, "sub"):
                    text = argument(node, 1 if attr == "sub" else 0, "string")
                    return text is not None and attr != "split" and _is_name(flow, text)
        case ast.Compare(left=left, comparators=others):
            sides = [part for side in (left, *others) for part in _elements(side)]
            return any(map(_speaks_of_cuda, sides)) and any(_is_name(flow, s) for s in sides)
        case ast.Subscript(value=text, slice=place):
            by_place = isinstance(place, ast.Slice | ast.UnaryOp) or (
                isinstance(place, ast.Constant) and isinstance(place.value, int)
            )
            above = names.parents.get(node)
            if isinstance(above, ast.Compare) and _has_device(above):
                return False  # reported, as it is not compared with a whole name
            return by_place and _is_text(flow, text)
    return False


def _is_name(flow: Flow, node: ast.expr) -> bool:
    """Whether a value is a device's name, or is meant to be one."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=attr)) if attr in (*_LETTERS, *_SAME):
            return _is_name(flow, owner)
        case ast.JoinedStr(values=[ast.FormattedValue(value=inner)]):
            return _is_name(flow, inner)
        case ast.Constant():
            return False
    return bool(flow.kind(node) & Kind.DEVICE_STRING) or flow.is_device(node)


def _is_text(flow: Flow, node: ast.expr) -> bool:
    """The same for what has letters: `devices[0]` is one of several devices."""
    match node:
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[inner]):
            return _is_name(flow, inner)
        case ast.Attribute(attr="type", value=owner):
            return flow.is_device(owner)
        case ast.JoinedStr(values=[ast.FormattedValue(value=inner)]):
            return _is_name(flow, inner)
        case ast.Constant():
            return False
    return bool(flow.kind(node) & Kind.DEVICE_STRING)


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]


def _speaks_of_cuda(node: ast.expr) -> bool:
    """Whether a text mentions "cuda" without being a device's name, which is a construct."""
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and "cuda" in text.lower() and not DEVICE_TEXT.match(text)


def _has_device(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Constant)
        and isinstance(part.value, str)
        and DEVICE_TEXT.match(part.value) is not None
        for part in ast.iter_child_nodes(node)
    )
