"""The single value of a name or of an object's attribute, if there is only one."""

from __future__ import annotations

import ast

from migrator.analysis.syntax.names import Binding, Names
from migrator.analysis.syntax.nodes import argument

_DEPTH = 8  # length of a chain of names that is followed


def value_of(names: Names, node: ast.expr, depth: int = 0) -> ast.expr:
    """The value of a name or an attribute; the expression itself if there may be several.

    A parameter has the value that the only call passes; an attribute, that of the only object of
    its class.
    """
    if depth > _DEPTH:
        return node
    match node:
        case ast.Name():
            found = names.lookup(node)
            is_given = len(found) == 1 and found[0].kind == "param"
            value = _given(names, found[0]) if is_given else names.only_value(node)
        case ast.Attribute(value=ast.Name() as owner, attr=name):
            value = _kept(names, class_of(names, owner), name)
        case _:
            return node
    return node if value is None or value is node else value_of(names, value, depth + 1)


def class_of(names: Names, owner: ast.Name) -> ast.ClassDef | None:
    """The class of this file of which an object is the only instance."""
    held = names.owner_class(owner)
    if held is None:
        match names.only_value(owner):
            case ast.Call(func=ast.Name() as made):
                bound = (b.node for b in names.lookup(made))
                held = next((node for node in bound if isinstance(node, ast.ClassDef)), None)
    return held if held is not None and only_made(names, held) is not None else None


def only_made(names: Names, owner: ast.ClassDef) -> ast.Call | None:
    """The call that creates the only object of a class, if nothing else uses the class."""
    (*uses,) = names.uses(owner.name, names.scope_of(owner))
    return names.call_of(uses[0]) if len(uses) == 1 else None


def _kept(names: Names, owner: ast.ClassDef | None, name: str) -> ast.expr | None:
    values = names.class_attributes.get(owner, {}).get(name, []) if owner is not None else []
    return values[0] if len(values) == 1 and not _is_set_elsewhere(names, name) else None


def _is_set_elsewhere(names: Names, name: str) -> bool:
    """Whether an attribute is assigned outside of the object's own methods."""
    for node in names.by_attribute.get(name, ()):
        if isinstance(node.ctx, ast.Store):
            if not isinstance(node.value, ast.Name) or names.owner_class(node.value) is None:
                return True
    return False


def _given(names: Names, parameter: Binding) -> ast.expr | None:
    """The value that the only call of a function or class passes for a parameter."""
    function = names.parents.get(parameter.node)
    if not isinstance(function, ast.FunctionDef) or not isinstance(parameter.node, ast.arg):
        return None
    plain = [a.arg for a in function.args.args]
    if function.decorator_list or parameter.node.arg not in plain:
        return None
    place = plain.index(parameter.node.arg)
    owner = names.parents.get(function)
    call: ast.Call | None
    if isinstance(owner, ast.ClassDef):
        call, place = only_made(names, owner), place - 1
        if function.name != "__init__" or place < 0:
            return None
    else:
        (*uses,) = names.uses(function.name, names.scope_of(function))
        call = names.call_of(uses[0]) if len(uses) == 1 else None
    if call is None or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    if any(k.arg is None for k in call.keywords):
        return None
    return argument(call, place, parameter.node.arg)
