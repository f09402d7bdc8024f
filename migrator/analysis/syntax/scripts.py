"""Scripts: whether a module is a program that is started, judging by its own code."""

from __future__ import annotations

import ast

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.formats.embedded_text import CELL

_HARMLESS = {"warnings", "logging", "logger", "log", "sys", "os", "matplotlib", "plt", "np",
             "numpy", "random", "torch", "th", "sns", "setattr", "register", "cv2", "mp",
             "multiprocessing", "__all__"}  # fmt: skip


def is_script(names: Names) -> bool | None:
    """True for a program that is started, False for a library, None if only its users can tell."""
    relative = any(isinstance(i, ast.ImportFrom) and i.level for i in names.imports)
    return is_script_of(names.tree, relative=relative)


def is_script_of(tree: ast.Module, *, relative: bool) -> bool | None:
    """The same; `relative`: whether it imports from its own package."""
    if any(is_main_guard(statement) or starts_a_cell(statement) for statement in tree.body):
        return True
    return None if not relative and any(map(_is_active, tree.body)) else False


def starts_a_cell(statement: ast.stmt) -> bool:
    """Whether a cell of a notebook starts there."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name == CELL
    return False


def is_main_guard(statement: ast.stmt) -> bool:
    """`if __name__ == "__main__":`"""
    return isinstance(statement, ast.If) and any(
        isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(statement.test)
    )


def _is_active(statement: ast.stmt) -> bool:
    match statement:
        case ast.For() | ast.While() | ast.With() | ast.AsyncFor() | ast.AsyncWith():
            return True
        case ast.Expr(value=ast.Call(func=func)):
            return (dotted(func) or "").partition(".")[0].lower() not in _HARMLESS
        case ast.Assign(value=value):
            called = (n.func for n in ast.walk(value) if isinstance(n, ast.Call))
            return any(
                (isinstance(func, ast.Attribute) and func.attr in ("cuda", "to", "parse_args"))
                or (dotted(func) or "").rpartition(".")[2] == "LightningCLI"  # runs the program
                for func in called
            )
        case ast.If(body=body, orelse=orelse):
            return any(_is_active(s) for s in [*body, *orelse])
        case ast.Try(body=body):
            return any(_is_active(s) for s in body)
    return False
