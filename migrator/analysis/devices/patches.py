"""Functions of torch.cuda that a program replaces: their callers get the program's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.devices.availability_checks import Questions
from migrator.analysis.devices.machine_conditions import never_runs
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.analysis.values.flow import Flow

_OWNERS = ("torch.cuda", "torch.Tensor", "torch.nn.Module", "torch.accelerator")
_PUTS = ("setattr", "patch", "object")  # the last words of `monkeypatch.setattr`, `patch.object`


def patches(names: Names, flow: Flow, *, lasting: bool = False) -> dict[str, ast.expr]:
    """The functions that a file replaces, by their full names, with the node that does it.

    What only replaces them on a machine without CUDA doesn't count, as nothing there does, nor what
    never runs on a TPU machine.
    ``lasting``: without those that a test puts there for a while.
    """
    found = [*_assigned(names)] + ([] if lasting else [*_put(names)])
    if not found:
        return {}
    questions = Questions(names, flow)
    return {
        name: node
        for name, node in found
        if not questions.is_guarded(node, holds=False) and never_runs(names, node) is None
    }


def _assigned(names: Names) -> Iterator[tuple[str, ast.expr]]:
    for node in names.all(ast.Attribute):
        if isinstance(node.ctx, ast.Store):
            name = names.qualified(node) or ""
            if name.rpartition(".")[0] in _OWNERS:
                yield name, node
    for call in names.all(ast.Call):
        if dotted(call.func) == "setattr":
            yield from _patched_names(names, call)


def _put(names: Names) -> Iterator[tuple[str, ast.expr]]:
    for call in names.all(ast.Call):
        function = (dotted(call.func) or "").rpartition(".")[2]
        if function in _PUTS and dotted(call.func) != "setattr":
            yield from _patched_names(names, call)
        elif function == "multiple" and call.args and _owner_name(names, call.args[0]) in _OWNERS:
            yield from (
                (f"{_owner_name(names, call.args[0])}.{k.arg}", call) for k in call.keywords
            )


def _patched_names(names: Names, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """`(torch.cuda, "is_available", …)`, `("torch.cuda.is_available", …)`"""
    match call.args:
        case [ast.Constant(value=str(name)), *_] if name.rpartition(".")[0] in _OWNERS:
            yield name, call
        case [owner, ast.Constant(value=str(name)), *_] if _owner_name(names, owner) in _OWNERS:
            yield f"{_owner_name(names, owner)}.{name}", call


def _owner_name(names: Names, node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return names.qualified(node) or ""
