"""How the number from `torch.cuda.current_device()` is used; torch also accepts it as a device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING

from migrator.analysis.devices.indices import is_device_index
from migrator.analysis.syntax.nodes import dotted, parameters

if TYPE_CHECKING:
    from migrator.analysis.values.flow import Flow
    from migrator.analysis.values.import_protocols import Imported


class Role(Enum):
    """How a device number is used."""

    DEVICE = auto()
    NUMBER = auto()
    EITHER = auto()  # printed, or passed to a call that is rewritten itself
    UNKNOWN = auto()


_SHOWN = ("print", "str", "repr", "format", "logging.info", "logging.debug", "logging.warning")
_DEPTH = 6


def roles(
    flow: Flow, node: ast.expr, project: Imported | None = None, depth: int = 0
) -> Iterator[Role]:
    """All the ways in which the value of an expression is used."""
    names = flow.names
    parent = names.parents.get(node)

    def followed(*nodes: ast.expr) -> Iterator[Role]:
        for use in nodes:
            yield from roles(flow, use, project, depth + 1) if depth < _DEPTH else [Role.UNKNOWN]

    match parent:
        case ast.IfExp(test=test) if node is test:
            yield Role.NUMBER
        case ast.IfExp() | ast.BoolOp():
            yield from followed(parent)
        case ast.Expr() | ast.FormattedValue() | ast.BinOp(left=ast.Constant(value=str())):
            yield Role.EITHER
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Subscript() | ast.Attribute():
            yield Role.NUMBER
        case ast.Assign(targets=targets):
            for target in targets:
                match target:
                    case ast.Name(id=name) if not _is_taken(flow, target, project):
                        yield from followed(*names.uses(name, names.scope_of(target)))
                    case ast.Attribute(value=ast.Name() as owner, attr=name):
                        known = names.owner_class(owner) is not None
                        read = names.all(ast.Attribute)
                        yield from (
                            followed(
                                *(n for n in read if n.attr == name and isinstance(n.ctx, ast.Load))
                            )
                            if known
                            else [Role.UNKNOWN]
                        )
                    case _:
                        yield Role.UNKNOWN
        case ast.keyword(arg=str(name)) if isinstance(call := names.parents[parent], ast.Call):
            yield from _roles_of_argument(flow, node, call, name, project, depth)
        case ast.Call() if node in parent.args:
            yield from _roles_of_argument(
                flow, node, parent, parent.args.index(node), project, depth
            )
        case _:
            yield Role.UNKNOWN


def _is_taken(flow: Flow, target: ast.Name, project: Imported | None) -> bool:
    """Whether another file of the project imports a name from this one."""
    is_top = flow.names.scope_of(target) is flow.names.top
    return is_top and project is not None and target.id in project.taken_names()


def _roles_of_argument(
    flow: Flow,
    node: ast.expr,
    call: ast.Call,
    place: int | str,
    project: Imported | None,
    depth: int,
) -> Iterator[Role]:
    """How a call uses one of its arguments."""
    names = flow.names
    name = names.qualified(call.func) or ""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    moves = place in ("device", 0) and (method == "to" or name == "torch.device")
    if moves or (name.startswith("torch.") and place in ("device", "map_location")):
        yield Role.EITHER if is_device_index(names, flow, node) else Role.DEVICE
    elif name.startswith("torch.cuda.") or method == "cuda" or name in _SHOWN:
        yield Role.EITHER
    elif name in ("int", "range", "min", "max"):
        yield Role.NUMBER
    else:
        function, there = flow.definition(call.func), (flow, project)
        if function is None and project is not None and (found := project.definition(name)):
            facts, its, function = found
            there = facts.flow, its
        yield from _as_parameter(function, place, *there, depth, call)


def _as_parameter(
    function: ast.AST | None,
    place: int | str,
    flow: Flow,
    project: Imported | None,
    depth: int,
    call: ast.Call,
) -> Iterator[Role]:
    names = flow.names
    bound = isinstance(function, ast.ClassDef) or dotted(call.func) != getattr(function, "name", "")
    if isinstance(function, ast.ClassDef):
        inits = names.scopes[function].bindings.get("__init__", [])
        function = inits[0].node if len(inits) == 1 else None
    if not isinstance(function, ast.FunctionDef) or depth >= _DEPTH:
        yield Role.UNKNOWN
        return
    if isinstance(names.parents.get(function), ast.ClassDef) and bound and isinstance(place, int):
        place += 1  # self
    given = [p.arg for p, _ in parameters(function.args)]
    variadic = {a.arg for a in (function.args.vararg, function.args.kwarg) if a is not None}
    name = place if isinstance(place, str) else given[place] if place < len(given) else ""
    if name not in given or name in variadic:
        yield Role.UNKNOWN
        return
    for use in names.uses(name, names.scopes[function]):
        yield from roles(flow, use, project, depth + 1)
