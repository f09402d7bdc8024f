"""Locations that are always the CPU, also if they are a parameter of a function."""

from __future__ import annotations

import ast

from migrator.analysis.project.program_files import ProgramFile, mentions
from migrator.analysis.syntax.nodes import argument, parameters
from migrator.analysis.values.value_kinds import Kind

_DEEPEST = 4  # functions that pass a location on


def is_always_cpu(at: ProgramFile, place: ast.expr, depth: int = 0) -> bool:
    """Whether a location is always the CPU: for a parameter, in all calls, not only by default."""
    if at.flow.kind(place) != Kind.CPU or depth > _DEEPEST or may_be_none(at, place):
        return False
    if not isinstance(place, ast.Name):
        return True
    taken = [each for each in at.names.lookup(place) if each.kind == "param"]
    return not any(_may_be_given(at, each.node, depth) for each in taken)


def may_be_none(at: ProgramFile, place: ast.expr, depth: int = 0) -> bool:
    """Whether a location is None in one of its cases, as in `None if is_available() else "cpu"`: it
    is that of the file, then, which only a machine with that device can read."""
    match place:
        case ast.Constant(value=None):
            return True
        case ast.IfExp(body=body, orelse=orelse):
            return may_be_none(at, body, depth) or may_be_none(at, orelse, depth)
        case ast.BoolOp(op=ast.Or(), values=values):
            return may_be_none(at, values[-1], depth)
        case ast.Name() if depth < _DEEPEST:
            given = (each.value for each in at.names.lookup(place) if each.kind == "assign")
            return any(each is not None and may_be_none(at, each, depth + 1) for each in given)
        case ast.Attribute(value=ast.Name() as owner, attr=name) if depth < _DEEPEST:
            kind = at.names.owner_class(owner)
            held = at.names.class_attributes[kind].get(name, ()) if kind else ()
            return any(each is not None and may_be_none(at, each, depth + 1) for each in held)
    return False


def _may_be_given(at: ProgramFile, parameter: ast.AST, depth: int) -> bool:
    """Whether a call passes a location other than the CPU to a parameter."""
    function = at.names.parents.get(parameter)
    if not isinstance(function, ast.FunctionDef):
        return True
    names = [each.arg for each, _ in parameters(function.args)]
    name = getattr(parameter, "arg", None)
    if name not in names:
        return True
    is_method = isinstance(at.names.parents.get(function), ast.ClassDef)
    if is_method and function.name == "__init__":
        return True  # as many classes call others' through super()
    for file in at.files(function.name):
        for node in mentions(file, function, is_method):
            call = file.names.parents.get(node)
            if not isinstance(call, ast.Call) or call.func is not node:
                return True
            if any(isinstance(a, ast.Starred) for a in call.args) or any(
                keyword.arg is None for keyword in call.keywords
            ):
                return True
            bound = is_method and isinstance(node, ast.Attribute)
            given = argument(call, names.index(name) - bound, name)
            if given is not None and not is_always_cpu(file, given, depth + 1):
                return True
    return False
