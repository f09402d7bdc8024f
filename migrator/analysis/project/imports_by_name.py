"""Imports of modules that a string names: `importlib.import_module("models.unet")`, also by the
path of a file.

A name that is computed may be that of any module in its package; one that is an option's is its
default, or one of its choices.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migrator.analysis.syntax.command_line import is_option, option_name
from migrator.analysis.syntax.nodes import argument, dotted

ANY = ".*"  # ends the name of a package, of which any module may be imported
IMPORTING = ("importlib.import_module", "import_module", "__import__")
# By the path of a file, with its position among the arguments
_BY_PATH = {"spec_from_file_location": 1, "load_source": 1, "SourceFileLoader": 1}
_DEEPEST = 4  # names of names


@dataclass(frozen=True)
class ByName:
    """The modules `pkg.mod`, `.sub`, and `pkg.*` for any module of a package; and the first import
    of which nobody knows what it imports."""

    modules: Sequence[str] = ()
    unknown: ast.Call | None = None


def imported_by_name(tree: ast.Module) -> ByName:
    nodes = [*ast.walk(tree)]
    found: dict[str, None] = {}
    unknown = None
    for call in nodes:
        if not isinstance(call, ast.Call):
            continue
        name = dotted(call.func) or ""
        if name in IMPORTING:
            given = argument(call, 0, "name")
            names = [*_names(given, nodes, _DEEPEST)] if given is not None else []
            names = [_absolute(name, call) for name in names]
        elif (position := _BY_PATH.get(name.rpartition(".")[2])) is not None:
            names = [*_of_files(argument(call, position, "path"))]
        elif name == "exec":
            names = [*_of_files(call.args[0] if call.args else None)]
        else:
            continue
        found.update(dict.fromkeys(names))
        if not names and name != "exec":
            unknown = unknown or call
    return ByName(list(found), unknown)


def _of_files(path: ast.expr | None) -> Iterator[str]:
    """The modules whose files a path names: `os.path.join(here, "ops/nms.py")`."""
    for node in ast.walk(path) if path is not None else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.removeprefix("./").strip("/")
            if text.endswith(".py"):
                yield text.removesuffix(".py").replace("/", ".")


def _absolute(name: str, call: ast.Call) -> str:
    """`.sub` of a package that is named by a string; what `__package__` says is relative."""
    match argument(call, 1, "package"):
        case ast.Constant(value=str(parent)) if name.startswith("."):
            return f"{parent}{name}"
    return name


def _names(node: ast.AST, nodes: Sequence[ast.AST], depth: int) -> Iterator[str]:
    """The names that an expression may have, as far as they are known."""
    match node:
        case ast.Constant(value=str(name)):
            yield name
        case ast.JoinedStr(values=[ast.Constant(value=str(begin)), *_]):
            yield from _of_package(begin)
        case ast.BinOp(left=ast.Constant(value=str(begin)), op=ast.Add()):
            yield from _of_package(begin)
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            yield from _of_package(text.partition("%")[0])
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            yield from _of_package(text.partition("{")[0])
        case ast.Attribute(attr=option):
            yield from _of_option(option, nodes)
        case ast.Name(id=name) if depth:
            for each in nodes:
                match each:
                    case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                        yield from _names(value, nodes, depth - 1)


def _of_package(begin: str) -> Iterator[str]:
    package, dot, _ = begin.rpartition(".")
    if dot:
        yield f"{package}{ANY}"


def _of_option(name: str, nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Call) and is_option(node) and option_name(node) == name:
            default, choices = argument(node, None, "default"), argument(node, None, "choices")
            given = choices.elts if isinstance(choices, ast.List | ast.Tuple) else ()
            for each in (default, *given):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.value
