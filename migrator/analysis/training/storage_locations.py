"""Storages: the memory of tensors, which `torch.load` gives to the function that places them.

A storage has a `cuda` method and none for a TPU. It can't be told from a tensor by how it is used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.project.program_files import ProgramFile
from migrator.analysis.syntax.nodes import argument, dotted, parameters
from migrator.analysis.syntax.scopes import FUNCTIONS

_DEEPEST = 4  # names and functions that are followed, one after the other
_OF_TENSOR = ("storage", "untyped_storage", "_typed_storage")
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def is_storage(at: ProgramFile, node: ast.expr, depth: int = 0) -> bool:
    """Whether a value is a storage, or may be one."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]) if name in _OF_TENSOR:
            return True
        case ast.Call(func=function):
            return _names_class(at, function)
        case ast.Name() if depth < _DEEPEST:
            for binding in at.names.lookup(node):
                if binding.kind == "param" and isinstance(binding.node, ast.arg):
                    if _is_parameter(at, binding.node, depth):
                        return True
                elif binding.kind == "assign" and binding.value is not None:
                    if is_storage(at, binding.value, depth + 1):
                        return True
    return False


def is_tag(at: ProgramFile, node: ast.expr) -> bool:
    """Whether a value is the device that a file names, which `torch.load` gives with a storage."""
    for binding in at.names.lookup(node) if isinstance(node, ast.Name) else ():
        function = at.names.parents.get(binding.node) if binding.kind == "param" else None
        if isinstance(function, FUNCTIONS):
            names = [each for each, _ in parameters(function.args)]
            place = next(n for n, each in enumerate(names) if each is binding.node)
            if place > 0 and _called_by_load(at, function, place - 1):
                return True
    return False


def placing(at: ProgramFile, location: ast.expr) -> Iterator[tuple[ProgramFile, _Function, int]]:
    """The functions that a `map_location` may be, and which of their parameters is the storage."""
    yield from _functions(at, location, 0, 0)


def _names_class(at: ProgramFile, node: ast.AST) -> bool:
    name = at.names.qualified(node) or ""
    return name.startswith("torch.") and name.endswith("Storage")


def _is_parameter(at: ProgramFile, parameter: ast.arg, depth: int) -> bool:
    if parameter.annotation is not None and any(
        _names_class(at, part) for part in ast.walk(parameter.annotation)
    ):
        return True
    function = at.names.parents.get(parameter)
    if not isinstance(function, FUNCTIONS):
        return False
    place = [each for each, _ in parameters(function.args)].index(parameter)
    if _called_by_load(at, function, place):
        return True
    return any(is_storage(at, given, depth + 1) for given in _given(at, function, place))


def _called_by_load(at: ProgramFile, function: _Function, place: int) -> bool:
    """Whether `torch.load` calls a function, with a storage for the parameter at this place."""
    word = "map_location" if isinstance(function, ast.Lambda) else function.name
    return any(
        index == place and (found is function or _is_same(at, there, function, found))
        for file in at.files(word, beside=False)
        for location in _locations(file)
        for there, found, index in placing(file, location)
    )


def _is_same(at: ProgramFile, there: ProgramFile, one: ast.AST, other: ast.AST) -> bool:
    """Whether a function of this file is what another file has found, in a tree of its own."""
    here, elsewhere = at.project, there.project
    return (
        here is not None
        and elsewhere is not None
        and here.path == elsewhere.path
        and (getattr(one, "lineno", 0), getattr(one, "col_offset", 0))
        == (getattr(other, "lineno", 0), getattr(other, "col_offset", 0))
    )


def _locations(file: ProgramFile) -> Iterator[ast.expr]:
    """What a file gives as `map_location`, to torch.load or to a function that may pass it on."""
    for node in file.names.all(ast.Call):
        place = 1 if file.names.qualified(node.func) == "torch.load" else None
        location = argument(node, place, "map_location")
        if location is not None:
            yield location


def _functions(
    at: ProgramFile, node: ast.expr, given: int, depth: int
) -> Iterator[tuple[ProgramFile, _Function, int]]:
    """The functions that a value may be; `given` arguments in front of theirs are there already."""
    if depth > _DEEPEST:
        return
    match node:
        case ast.Lambda():
            yield at, node, given
        case ast.IfExp(body=body, orelse=orelse):
            yield from _functions(at, body, given, depth)
            yield from _functions(at, orelse, given, depth)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _functions(at, value, given, depth)
        case ast.Call(func=func, args=[inner, *more]) if (
            at.names.qualified(func) == "functools.partial"
        ):
            yield from _functions(at, inner, given + len(more), depth + 1)
        case ast.Call(func=func):
            found = at.definition(func)
            if found is not None and isinstance(found[1], ast.FunctionDef):
                there, made = found
                for part in ast.walk(made):
                    if isinstance(part, ast.Return) and part.value is not None:
                        if there.names.function(part) is made:
                            yield from _functions(there, part.value, given, depth + 1)
        case ast.Name() | ast.Attribute():
            found = at.definition(node)
            if found is not None and isinstance(found[1], FUNCTIONS):
                yield found[0], found[1], given + _is_bound(found[0], found[1], node)
            elif found is None:
                for value in _values(at, node):
                    yield from _functions(at, value, given, depth + 1)
                for method in _methods(at, node):
                    yield at, method, given + _is_bound(at, method, node)


def _methods(at: ProgramFile, node: ast.expr) -> Iterator[_Function]:
    """The methods that an attribute of any object may be."""
    if not isinstance(node, ast.Attribute):
        return
    for owner in at.names.owners.get(node.attr, ()):
        for binding in at.names.scopes[owner].bindings[node.attr]:
            if isinstance(binding.node, FUNCTIONS):
                yield binding.node


def _is_bound(at: ProgramFile, function: ast.AST, node: ast.expr) -> bool:
    """Whether a method comes with its object, as `self.place` does."""
    if not isinstance(at.names.parents.get(function), ast.ClassDef):
        return False
    decorators = getattr(function, "decorator_list", ())
    if any(dotted(each) == "staticmethod" for each in decorators):
        return False
    return isinstance(node, ast.Attribute)


def _values(at: ProgramFile, node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Name):
        yield from (b.value for b in at.names.lookup(node) if b.value is not None)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner = at.names.owner_class(node.value)
        held = at.names.class_attributes[owner].get(node.attr, ()) if owner else ()
        yield from (value for value in held if value is not None)


def _given(at: ProgramFile, function: _Function, place: int) -> Iterator[ast.expr]:
    """What this file's calls of a function give for one of its parameters."""
    if isinstance(function, ast.Lambda):
        return
    names, parameter = at.names, [each for each, _ in parameters(function.args)][place]
    uses: list[ast.expr] = [*names.by_id.get(function.name, ())]
    uses += names.by_attribute.get(function.name, ())
    for use in uses:
        call = names.call_of(use)
        if call is not None and at.flow.definition(use) is function:
            given = argument(call, place - _is_bound(at, function, use), parameter.arg)
            if given is not None:
                yield given
