"""The program's own methods with torch's names (`cuda`, `to`, `half`), and how they treat a
device."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted, parameters
from migrator.analysis.values.evidence import Evidence
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import Kind


def own_move(evidence: Evidence, call: ast.Call) -> str:
    """The program's method `to` that a call may refer to, if it takes a device as a string.

    "" if there is none. Such a method may pass the string to torch, or compare it.
    """
    flow = evidence.flow
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "to":
        return ""
    if flow.kind(call.func.value) & Kind.TENSOR:
        return ""
    of_model = flow.kind(call.func.value) & Kind.MODULE
    for names, flow, where in _defining(evidence, "to"):
        for owner in names.class_attributes:
            if of_model and not flow.is_module_class(owner):
                continue
            if any(_reads(names, flow, method) for method in _methods(names, owner)):
                return f"{where}{owner.name} (line {owner.lineno})"
    return ""


def _defining(evidence: Evidence, attribute: str) -> Iterator[tuple[Names, Flow, str]]:
    """This file and those of the project that define an attribute, and how to speak of them."""
    yield evidence.names, evidence.flow, ""
    if evidence.project is not None:
        for path, facts in evidence.project.defining(attribute):
            yield facts.names, facts.flow, f"{path.name}: "


def _methods(names: Names, owner: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.Lambda]:
    for binding in names.scopes[owner].bindings.get("to", ()):
        for node in (binding.node, binding.value):
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                yield node


def _reads(names: Names, flow: Flow, method: ast.FunctionDef | ast.Lambda) -> bool:
    """Whether a method treats its argument as a string."""
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


def definition(evidence: Evidence, attribute: str, kind: Kind) -> str:
    """A class of the project that defines an attribute which torch's classes have; "" for none.

    Of a model (``kind``), only models count. A method that does the same as torch's does not count.
    """
    for names, flow, where in _defining(evidence, attribute):
        for owner in names.owners.get(attribute, ()):
            if kind & Kind.MODULE and not flow.is_module_class(owner):
                continue
            if not does_as_torch(names, flow, owner, attribute):
                return f"{where}{owner.name} (line {owner.lineno}) has {attribute}"
    return ""


def does_as_torch(names: Names, flow: Flow, owner: ast.ClassDef, name: str) -> bool:
    """Whether a class's own `cuda`, `half` or `to` can be treated like torch's.

    It does the same, or it moves only some members, while torch's moves all. In a program that
    runs, a member that stays on the CPU is never used together with tensors on the GPU, so moving
    it makes no difference, unless the program copies tensors to the CPU to use it. `to` may be the
    method of any class that passes its device to torch.
    """
    methods = names.scopes[owner].bindings.get(name, ())
    if name == "to":
        return len(methods) == 1 and _hands_on(names, methods[0].node)
    if len(methods) != 1 or not flow.is_module_class(owner):
        return False
    match methods[0].node:
        case ast.FunctionDef(
            args=ast.arguments(args=[ast.arg(arg=itself)], vararg=None, kwonlyargs=[], kwarg=None),
            body=body,
            decorator_list=[],
        ):
            said = [part for part in body if not isinstance(part, ast.Expr | ast.Assign)]
            moved = [_moved(part, itself) for part in body[:-1] if not _is_text(part)]
            match said:
                case [ast.Return(value=ast.Name(id=given))] if given == itself:
                    stays = None in moved or name != "cuda"
                    return not stays and not _keeps_on_cpu(names, moved)
                case [ast.Return(value=ast.expr() as value)] if not moved:
                    return ast.unparse(value) == _HALF.format(itself) and name == "half"
    return False


def _hands_on(names: Names, method: ast.AST | None) -> bool:
    """`def to(self, device): return self.apply(lambda x: x.to(device))`"""
    if not isinstance(method, ast.FunctionDef) or method.decorator_list:
        return False
    named = [*method.args.posonlyargs, *method.args.args][1:]
    given = named[0] if named else method.args.vararg
    uses = [*names.uses(given.arg, names.scopes[method])] if given is not None else []
    return bool(uses) and all(_is_given_to_to(names, use) for use in uses)


def _is_given_to_to(names: Names, use: ast.expr) -> bool:
    """`x.to(use)`, `x.to(*use)`, `x.to(device=use)`"""
    given = names.parents.get(use)
    call = names.parents.get(given) if isinstance(given, ast.Starred | ast.keyword) else given
    match call:
        case ast.Call(func=ast.Attribute(attr="to"), args=[first, *_]) if first in (use, given):
            return True
        case ast.Call(func=ast.Attribute(attr="to")):
            return isinstance(given, ast.keyword) and given.arg == "device"
    return False


_HALF = "{}._apply(lambda t: t.half() if t.is_floating_point() else t)"  # as in torch


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _moved(statement: ast.stmt, itself: str) -> str | None:
    """The member that a statement moves: `self.model.cuda()`, `self.model = self.model.cuda()`."""
    match statement:
        case ast.Expr(value=ast.Call(func=func, args=[], keywords=[])):
            target = None
        case ast.Assign(targets=[target], value=ast.Call(func=func, args=[], keywords=[])):
            pass
        case _:
            return None
    match func:
        case ast.Attribute(attr="cuda", value=ast.Attribute(value=ast.Name(id=name)) as member):
            same = target is None or dotted(target) == dotted(member)
            return member.attr if name == itself and same else None
    return None


def _keeps_on_cpu(names: Names, moved: Sequence[str | None]) -> bool:
    """Whether a file copies tensors to the CPU where it calls a member that is not moved."""
    left = {
        name
        for attributes in names.class_attributes.values()
        for name, values in attributes.items()
        if name not in moved and not all(map(names.qualified, filter(None, values)))
    }
    said = [node for node in names.all(ast.Constant) if node.value == "cpu"]
    copied = [node for name in ("cpu", "numpy") for node in names.by_attribute.get(name, ())]
    methods = {
        around
        for node in (*said, *copied)
        for around in names.ancestors(node)
        if isinstance(around, ast.FunctionDef)
    }
    parts = (part for method in methods for part in ast.walk(method))
    called = (n for part in parts if isinstance(part, ast.Call) for n in ast.walk(part.func))
    return any(isinstance(n, ast.Attribute) and n.attr in left for n in called)
