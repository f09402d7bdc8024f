"""Methods `to` of the program's own: what they do with the name of a device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names, dotted, parameters
from migrator.analysis.values.evidence import Evidence
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.kinds import Kind


def own_move(evidence: Evidence, call: ast.Call) -> str:
    """Which method `to` of the program a call may be one of, that takes a device for a word.

    "" where there is none: such a method may hand it on to torch, and compare it as a device.
    """
    names, flow, project = evidence.names, evidence.flow, evidence.project
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "to":
        return ""
    if flow.kind(call.func.value) & Kind.TENSOR:
        return ""
    found = [(names, flow, "")]
    if project is not None:
        others = project.defining("to")
        found += [(facts.names, facts.flow, f"{path.name}: ") for path, facts in others]
    of_model = flow.kind(call.func.value) & Kind.MODULE
    for names, flow, where in found:
        for owner in names.class_attributes:
            if of_model and not flow.is_module_class(owner):
                continue
            if any(_reads(names, flow, method) for method in _methods(names, owner)):
                return f"{where}{owner.name} (line {owner.lineno})"
    return ""


def _methods(names: Names, owner: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.Lambda]:
    for binding in names.scopes[owner].bindings.get("to", ()):
        for node in (binding.node, binding.value):
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                yield node


def _reads(names: Names, flow: Flow, method: ast.FunctionDef | ast.Lambda) -> bool:
    """Whether a method looks at what it is given as a text."""
    scope = names.scopes[method]
    given = [each.arg for each, _ in parameters(method.args)][1:]
    return any(_is_read(names, flow, use) for name in given for use in names.uses(name, scope))


def _is_read(names: Names, flow: Flow, use: ast.expr) -> bool:
    parent = names.parents.get(use)
    match parent:
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return False
        case ast.Compare() | ast.Attribute(attr="startswith"):
            return not flow.is_device(use)
        case ast.Attribute(attr=name):
            return name in ("endswith", "lower", "upper", "split", "replace", "format", "join")
        case ast.Subscript(value=whole) if whole is use:  # `args[0]`
            return _is_read(names, flow, parent)
        case ast.Subscript(slice=key) | ast.Match(subject=key):
            return key is use and not (isinstance(parent, ast.Match) and flow.is_device(use))
        case ast.Call(func=func, args=[_, name, *_]) if name is use:
            return dotted(func) in ("getattr", "setattr", "hasattr")
        case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault"), args=[key, *_]):
            return key is use
    return False
