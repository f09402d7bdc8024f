"""The variable that holds the device a program chose at its start."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cached_property

from migrator.analysis.devices.choices import AVAILABLE
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument
from migrator.analysis.values.flow import Flow
from migrator.analysis.values.value_kinds import Kind

_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


class DeviceVariable:
    """The file's own top-level variable where it is visible, otherwise a new one above its first
    use."""

    def __init__(self, names: Names, flow: Flow, candidates: Sequence[str]) -> None:
        self._names, self._flow, self._candidates = names, flow, candidates

    def name(self, near: ast.AST | None) -> str:
        """The expression for the device at a place in the file."""
        own = self._own
        if own is not None and near is not None and self._is_reached(own, near):
            assert isinstance(own.targets[0], ast.Name)
            return own.targets[0].id
        return self.new

    @cached_property
    def new(self) -> str:
        """A name for a variable that the file does not use yet."""
        used = {*self._names.by_id, *(n.arg for n in self._names.order if isinstance(n, ast.arg))}
        used |= self._names.bound
        free = [name for name in self._candidates if name not in used]
        return free[0] if free else f"{self._candidates[-1]}_"

    def is_named_in(self, code: str) -> bool:
        """Whether code written by a rule uses the new variable."""
        return re.search(rf"(?<![\w.]){self.new}\b(?!\s*=[^=])", code) is not None

    @cached_property
    def _own(self) -> ast.Assign | None:
        """`device = torch.device("cuda")` at the top level of the file, and no other assignment to
        it."""
        for statement in self._names.tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._chooses(value):
                    scopes = self._names.scopes.values()
                    if sum(len(scope.bindings.get(name, ())) for scope in scopes) == 1:
                        return statement
        return None

    def _chooses(self, value: ast.expr) -> bool:
        """Whether a value is always the accelerator, or the CPU without one."""
        match value:
            case ast.Call(func=func) if self._names.qualified(func) == "torch.device":
                chosen = argument(value, 0, "type", "device")
                if len(value.args) + len(value.keywords) > 1 or chosen is None:
                    return False
                if isinstance(chosen, ast.IfExp):
                    return self._asks(chosen.test) and self._is_gpu(chosen.body)
                return self._is_gpu(chosen)
            case ast.IfExp(test=test, body=body):
                is_device = bool(self._flow.kind(body) & Kind.DEVICE)
                return is_device and self._asks(test) and self._chooses(body)
        return False

    def _is_gpu(self, value: ast.expr) -> bool:
        return isinstance(value, ast.Constant) and value.value in ("cuda", "cuda:0")

    def _asks(self, test: ast.expr) -> bool:
        return isinstance(test, ast.Call) and self._names.qualified(test.func) in AVAILABLE

    def _is_reached(self, own: ast.Assign, near: ast.AST) -> bool:
        """Whether the variable is always bound when a place is reached."""
        line = getattr(near, "lineno", 0)
        if line > (own.end_lineno or own.lineno):
            return True
        if self._names.function(near) is None:
            return False
        body = self._names.tree.body
        earlier = [s for s in body[: body.index(own)] if not isinstance(s, _DEFINES)]
        defined = {s.name for s in body if isinstance(s, ast.FunctionDef | ast.ClassDef)}
        used = {n.id for s in earlier for n in ast.walk(s) if isinstance(n, ast.Name)}
        return defined.isdisjoint(used)
