"""Where a program looks for modules: the folders that it adds to `sys.path` itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from migrator.analysis.syntax.names import Names

_SAME = ("str", "os.fspath", "pathlib.Path", "pathlib.PurePath", "os.path.abspath",
         "os.path.realpath", "os.path.normpath", "os.path.expanduser")  # fmt: skip
_SAME_METHODS = ("resolve", "absolute", "as_posix", "expanduser")
_CONSTANTS = {"os.pardir": "..", "os.curdir": ".", "os.path.pardir": "..", "os.path.curdir": "."}
_ADD = ("sys.path.append", "sys.path.insert", "site.addsitedir")
_DEPTH = 6  # of names assigned from names
_ADDS = re.compile(rb"sys\.path|\bsite\b|\bsys\b.*\bpath\b|\bsetup_root\b|\bautoroot")
# They add the folder above the file that has a mark: one of those in which imports are looked for.
_ROOTS = ("rootutils.setup_root", "pyrootutils.setup_root")
_IMPORTED_ROOTS = {"autoroot", "autorootcwd"}


def may_be_added_to(source: bytes) -> bool:
    """A cheap test: False for a file that adds no folder."""
    may = b"sys" in source or b"site" in source or b"root" in source
    return may and _ADDS.search(source) is not None


def added(names: Names, file: Path) -> Iterator[tuple[int, bool, Path]]:
    """The folders that a file adds, with the line, and whether each goes to the end.

    A relative one starts where the program is started, or somewhere that the source doesn't tell.
    """
    for node in names.order:
        last, folders = True, list[ast.expr]()
        if _finds_root(names, node):
            yield from ((node.lineno, False, above) for above in file.parents)  # type: ignore[attr-defined]
        match node:
            case ast.Call(func=func, args=[*_, folder]):
                name = names.qualified(func) or ""
                last = name != "sys.path.insert"
                if name in _ADD:
                    folders = [folder]
                elif name == "sys.path.extend":
                    folders = _listed(folder)
                elif (of_helper := _of_helper(names, node)) is not None:
                    last, folders = of_helper, [folder]
            case ast.AugAssign(target=target, value=value) if _is_sys_path(names, target):
                folders = _listed(value)
            case ast.Assign(targets=[ast.Subscript(value=target, slice=ast.Slice())], value=value):
                last, folders = False, _listed(value) if _is_sys_path(names, target) else []
            case ast.Assign(targets=[target], value=ast.BinOp(left=left, right=right)):
                if _is_sys_path(names, target):
                    last, folders = not _listed(left), [*_listed(left), *_listed(right)]
        for folder in folders:
            path = _path(names, folder, file)
            if path is not None:
                yield folder.lineno, last, path


def _of_helper(names: Names, call: ast.Call) -> bool | None:
    """Whether a function of this file that adds its one argument puts it at the end; None for all
    others: `def add_path(path): sys.path.insert(0, path)`."""
    bound = (
        names.lookup(call.func) if isinstance(call.func, ast.Name) and len(call.args) == 1 else ()
    )
    match [each.node for each in bound]:
        case [ast.FunctionDef(args=ast.arguments(args=[ast.arg(arg=given)])) as function]:
            for node in ast.walk(function):
                match node:
                    case ast.Call(func=func, args=[*_, ast.Name(id=name)]) if name == given:
                        if (added := names.qualified(func)) in _ADD:
                            return added != "sys.path.insert"
    return None


def _finds_root(names: Names, node: ast.AST) -> bool:
    """Whether a statement adds the top of the project, wherever that is."""
    match node:
        case ast.Import(names=aliases):
            return any(alias.name in _IMPORTED_ROOTS for alias in aliases)
        case ast.Call(func=func, keywords=keywords) if names.qualified(func) in _ROOTS:
            given = {k.arg: k.value for k in keywords}.get("pythonpath")
            return isinstance(given, ast.Constant) and given.value is True
    return False


def _is_sys_path(names: Names, node: ast.expr) -> bool:
    return names.qualified(node) == "sys.path"


def _listed(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.List | ast.Tuple) else []


def _path(names: Names, node: ast.expr, file: Path, depth: int = 0) -> Path | None:
    """The path that an expression evaluates to; None if unknown."""

    def path(part: ast.expr) -> Path | None:
        return _path(names, part, file, depth + 1)

    def joined(*parts: ast.expr) -> Path | None:
        known = [path(part) for part in parts]
        return Path(*(p for p in known if p is not None)) if any(known) else None

    if depth > _DEPTH:
        return None
    match node:
        case ast.Constant(value=str(text)):
            return Path(text)
        case ast.Name(id="__file__"):
            return file
        case ast.Name() if not names.qualified(node):
            bound = names.lookup(node)
            value = bound[0].value if len(bound) == 1 and bound[0].kind == "assign" else None
            return path(value) if value is not None else None
        case ast.Attribute(attr="parent", value=owner):
            of = path(owner)
            return of.parent if of is not None else None
        case ast.Subscript(
            value=ast.Attribute(attr="parents", value=owner), slice=ast.Constant(value=int(number))
        ):
            above = path(owner)
            return Path(above, *[".."] * (number + 1)) if above is not None else None
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return joined(left, right)
        case ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=str(text))):
            return Path(path(left) or "", text.lstrip("/"))
        case ast.JoinedStr(values=[ast.FormattedValue(value=start), ast.Constant(value=text)]):
            return Path(path(start) or "", str(text).lstrip("/"))
        case ast.Name() | ast.Attribute() if (name := names.qualified(node)) in _CONSTANTS:
            return Path(_CONSTANTS[name])
        case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[]) if (
            method in _SAME_METHODS
        ):
            return path(owner)
        case ast.Call(func=func, args=[]):
            return Path() if names.qualified(func) in ("os.getcwd", "pathlib.Path.cwd") else None
        case ast.Call(func=func, args=[first, *rest]):
            name = names.qualified(func) or ""
            if name == "os.path.dirname":
                of = path(first)
                return of.parent if of is not None else None
            if name == "os.path.join" or name in _SAME:
                return joined(first, *rest)
            if isinstance(func, ast.Attribute) and func.attr == "joinpath":
                return joined(func.value, first, *rest)
    return None
