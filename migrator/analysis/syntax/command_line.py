"""Command-line options of a program, declared for argparse and similar libraries."""

from __future__ import annotations

import ast

from migrator.analysis.syntax.nodes import argument, dotted


def is_option(call: ast.Call) -> bool:
    """`parser.add_argument("--x")`, `@click.option("--x")`."""
    last = (dotted(call.func) or "").rpartition(".")[2]
    return last in ("add_argument", "option") and bool(call.args)


def option_name(call: ast.Call) -> str:
    """The attribute in which argparse stores an option."""
    dest = argument(call, None, "dest")
    if isinstance(dest, ast.Constant):
        return str(dest.value)
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = [f for f in flags if f.startswith("--")] or flags or [""]
    return long[0].lstrip("-").replace("-", "_")
