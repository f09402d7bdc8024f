"""The name index: where a file uses a name, and what values it gives to attributes and options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from migrator.analysis.syntax.names import DEFINITIONS, children
from migrator.analysis.syntax.nodes import dotted

_ASKS = ("getattr", "hasattr", "setattr", "delattr", "add_argument", "add_option")


@dataclass(eq=False)
class NameIndex:
    """The uses of each name in a file, except in imports and `__all__`."""

    mentions: dict[str, list[ast.expr]] = field(default_factory=dict)
    texts: dict[str, list[ast.Constant]] = field(default_factory=dict)
    aliases: dict[str, set[str]] = field(
        default_factory=dict
    )  # `import x as y`, `y = a.x`: y, by x
    stores: dict[str, list[ast.AST]] = field(default_factory=dict)  # of attributes and options
    definitions: dict[str, list[ast.AST]] = field(default_factory=dict)
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    brought: set[str] = field(default_factory=set)  # names that its top-level imports bind
    # `getattr(self, "build_" + name)`: how the name begins; a class for any of its methods
    computed: list[tuple[str | ast.ClassDef, ast.Call]] = field(default_factory=list)
    enumerates: bool = False  # whether it lists all its own names: `globals()`


def name_index(tree: ast.Module) -> NameIndex:
    """Index all names in a file."""
    found = NameIndex()
    nodes: list[ast.AST] = [tree]
    for parent in nodes:
        for child in children(parent):
            found.parents[child] = parent
            nodes.append(child)
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    found.brought.update(alias.asname or alias.name for node in imports for alias in node.names)
    passed_over = set(_passed_over(nodes))
    for node in nodes:
        if node not in passed_over:
            _note(found, node)
    return found


def _passed_over(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Strings that don't use a name: docstrings, `__all__`, attributes that are only tested."""
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant() as text):
                yield text
            case ast.Assign(targets=targets, value=value) if any(map(_is_all, targets)):
                if not isinstance(value, ast.Dict):  # a table of classes, by their names
                    yield from ast.walk(value)
            case ast.AugAssign(target=target, value=value) if _is_all(target):
                yield from ast.walk(value)
            case ast.Assign(targets=[ast.Name()], value=ast.Name() | ast.Attribute() as value):
                yield value  # another name for it, which isn't a use by itself
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
                if name in _ASKS:
                    yield from (arg for arg in args if isinstance(arg, ast.Constant))


def _is_all(target: ast.AST) -> bool:
    return isinstance(target, ast.Name) and target.id == "__all__"


def _note(found: NameIndex, node: ast.AST) -> None:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            found.mentions.setdefault(name, []).append(node)
        case ast.Attribute(attr=name):
            found.stores.setdefault(name, []).append(node)
        case ast.Constant(value=str(text)):
            last = re.search(r"(?:^|[.:])([A-Za-z_]\w*)$", text) if len(text) < 200 else None
            if last is not None:
                found.texts.setdefault(last[1], []).append(node)
        case ast.alias(name=name, asname=str(other)):
            found.aliases.setdefault(name.rpartition(".")[2], set()).add(other)
        case ast.Assign(
            targets=[ast.Name(id=other)], value=ast.Name(id=name) | ast.Attribute(attr=name)
        ):
            found.aliases.setdefault(name, set()).add(other)
        case ast.keyword(arg=str(name)):
            found.stores.setdefault(name, []).append(node)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            found.definitions.setdefault(node.name, []).append(node)
            if isinstance(node, ast.ClassDef):
                for statement in node.body:
                    _note_field(found, statement)
        case ast.Call(func=func, args=args):
            _note_call(found, node, func, args)
        case ast.Subscript(value=value) if dotted(value) == "sys.modules":
            found.enumerates = True


def _note_field(found: NameIndex, statement: ast.stmt) -> None:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            if statement.value is not None:
                found.stores.setdefault(name, []).append(statement)


def _note_call(found: NameIndex, call: ast.Call, func: ast.expr, args: list[ast.expr]) -> None:
    """`getattr(x, "name")` reads an attribute, `setattr` and `add_argument` set it."""
    match func, args:
        case ast.Name(id="getattr" | "hasattr"), [_, ast.Constant(value=str(name)), *_]:
            found.mentions.setdefault(name, []).append(call)
        case ast.Name(id="getattr"), [owner, name, *_] if not isinstance(name, ast.Constant):
            begin = _begin(name)
            own = _class_of(found, call) if getattr(owner, "id", "") in ("self", "cls") else None
            if begin or own is not None:
                found.computed.append((begin or own or "", call))
        case ast.Name(id="setattr"), [_, ast.Constant(value=str(name)), _]:
            found.stores.setdefault(name, []).append(call)
        case ast.Attribute(attr="add_argument" | "add_option"), _:
            name = option(call)
            found.stores.setdefault(name, []).append(call)
        case ast.Name(id="globals" | "locals" | "Fire") | ast.Attribute(attr="Fire"), []:
            found.enumerates = True
        case ast.Name(id="vars" | "dir"), []:
            found.enumerates = True


def _begin(name: ast.expr) -> str:
    """How a computed name begins: `"build_" + x`, `f"build_{x}"`, `"build_%s" % x`."""
    match name:
        case (
            ast.BinOp(left=ast.Constant(value=str(text)))
            | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_])
            | ast.Call(func=ast.Attribute(attr="format", value=ast.Constant(value=str(text))))
        ):
            return re.split(r"[%{]", text)[0]
    return ""


def _class_of(found: NameIndex, call: ast.Call) -> ast.ClassDef | None:
    at: ast.AST | None = call
    while at is not None and not isinstance(at, ast.ClassDef):
        at = found.parents.get(at)
    return at


def option(call: ast.Call) -> str:
    """The attribute for a command-line option."""
    for keyword in call.keywords:
        if keyword.arg == "dest" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    names = [str(a.value) for a in call.args if isinstance(a, ast.Constant)]
    long = [name for name in names if name.startswith("--")] or names
    return long[0].lstrip("-").replace("-", "_") if long else ""


def unit(there: NameIndex, node: ast.AST) -> ast.AST:
    """The unit of reachability: a function, a method, or the rest of a class or of the module.

    A nested function is part of the outer one. Defaults, annotations and decorators belong to
    their function or class.
    """
    chain = [node] if isinstance(node, DEFINITIONS) else []
    at = node
    while (parent := there.parents.get(at)) is not None:
        if isinstance(parent, DEFINITIONS):
            chain.append(parent)
        at = parent
    found: ast.AST = at
    for outer in reversed(chain):
        found = outer
        if not isinstance(outer, ast.ClassDef):
            break
    return found
