"""A name such as "cuda" that is an option's value on both sides: given, and compared."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from migrator.analysis.devices.indices import compared_with
from migrator.analysis.syntax.command_line import is_option, option_name
from migrator.analysis.syntax.names import Names


def option_of(names: Names, string: ast.expr) -> tuple[str, Sequence[int]]:
    """The option that has a string as a value or is compared with it, and all lines that do so
    with that string: its declaration and comparisons. "" and none if it is not both."""
    if not isinstance(string, ast.Constant):
        return "", ()
    option = _declared(names, string) or _compared(names, string)
    if not option:
        return "", ()
    same = [node for node in names.order
            if isinstance(node, ast.Constant) and node.value == string.value]  # fmt: skip
    given = [node for node in same if _declared(names, node) == option]
    asked = [node for node in same if _compared(names, node) == option]
    if not given or not asked:
        return "", ()
    return option, sorted({node.lineno for node in (*given, *asked)})


def _declared(names: Names, string: ast.AST) -> str:
    """`parser.add_argument("--gpu_type", default="cuda", choices=["cuda", "mps"])`"""
    for above in names.ancestors(string):
        if isinstance(above, ast.Call):
            return option_name(above) if is_option(above) else ""
        if isinstance(above, ast.stmt):
            break
    return ""


def _compared(names: Names, string: ast.AST) -> str:
    """`args.gpu_type == "cuda"`, `gpu_type in ("cuda", "mps")`"""
    return next(_last_names(compared_with(names, string)), "")


def _last_names(others: Sequence[ast.expr]) -> Iterator[str]:
    for other in others:
        match other:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                yield name
