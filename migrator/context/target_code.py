"""Code for the target, as the file would write it."""

from __future__ import annotations

import ast
import json
from functools import cached_property

from migrator.analysis.devices.indices import compares_indices
from migrator.analysis.devices.variable import DeviceVariable
from migrator.construct import Construct
from migrator.context.task import Task
from migrator.decision import Decision, Report, Rewrite
from migrator.edits import SetString, Spread
from migrator.formats.embedded_text import is_embedded
from migrator.targets import RUNTIME, Snippet


class TargetCode:
    """Code for the target, as the file would write it."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def module(self, name: str) -> tuple[str, tuple[str, ...]]:
        """How this file spells a module (`dist`), and the imports that this needs."""
        spelled = self._task.names.spelled(name)
        return (spelled, ()) if spelled is not None else (name, (name,))

    def torch(self) -> tuple[str, tuple[str, ...]]:
        """How this file spells torch (`th`), and the imports that this needs."""
        return self.module("torch")

    def quoted(self, value: str, near: ast.AST | None = None) -> str:
        """`value` as a string literal in the quotes that the code nearby uses."""
        quote = self._usual_quote
        if near is not None:
            for node in ast.walk(near):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    text = self._task.source.code(node).lstrip("rRbBuU")
                    if text[:1] in ("'", '"'):
                        quote = text[0]
                        break
            outer = next(
                (a for a in self._task.names.ancestors(near) if isinstance(a, ast.JoinedStr)), 0
            )
            if isinstance(outer, ast.JoinedStr):
                opening = self._task.source.code(outer).lstrip("rRfF")[:1]
                quote = "'" if opening == '"' else '"'
        return f"{quote}{value}{quote}"

    @cached_property
    def _usual_quote(self) -> str:
        """The quotes of most strings in the file."""
        single = 0
        for node in self._task.names.order:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                single += 1 if self._task.source.code(node).lstrip("rRbBuU").startswith("'") else -1
        return "'" if single > 0 else '"'

    def runtime(self, name: str) -> Snippet | None:
        """A name of the target's runtime; None if it has no such name, which is to be reported."""
        return Snippet(f"{RUNTIME}.{name}", (RUNTIME,)) if self._task.target.offers(name) else None

    def lacks(self, what: str) -> Report:
        """A report that neither the words nor the runtime of the target have this."""
        return Report(f"{self._task.target.name} has no counterpart for {what}")

    def device_string(self, near: ast.AST | None = None, *, compared: bool = False) -> str:
        """Code for the type of the target's device: a string, or a call in a portable program.

        In a comparison, a portable program names the accelerator: its device may be the CPU.
        """
        if self._task.api.device_names:
            return f"{self.device_variable.name(near)}.type"
        if self._task.target.portable:
            compared = compared or (
                near is not None and isinstance(self._task.names.parents.get(near), ast.Compare)
            )
            return f"{RUNTIME}.{'accelerator' if compared else 'device'}_type()"
        return self.quoted(self._task.api.device, near)

    def device(self, near: ast.AST | None = None) -> str:
        """Code for the target's device where a torch.device will do as well as a string."""
        if self._task.api.device_names:
            return self.device_variable.name(near)
        return f"{RUNTIME}.device()" if self._task.target.portable else self.device_string(near)

    def device_name(self, indexed: bool) -> str:
        """The name of the target's device that replaces one with or without an index."""
        return f"{self._task.api.device}{':0' if indexed and self.compares_indices else ''}"

    @cached_property
    def compares_indices(self) -> bool:
        """Whether "cuda:0" has to keep its index, for this file or for the rest of its program."""
        return compares_indices(self._task.names, self._task.flow) or (
            self._task.project is not None and self._task.project.compares_indices()
        )

    @cached_property
    def device_variable(self) -> DeviceVariable:
        """The variable that holds the device of a program that chooses it when it starts."""
        return DeviceVariable(self._task.names, self._task.flow, self._task.api.device_names)

    def with_text(self, found: Construct, text: str, note: str = "", advice: str = "") -> Decision:
        """Change the text of a construct that is a string; report what its quotes cannot hold.

        If the string is an element of a list, each new line becomes an element.
        """
        assert isinstance(found.node, ast.Constant)
        literal = self._task.source.code(found.node)
        if is_embedded(self._task.names.parents.get(found.node)):
            return Rewrite(
                [SetString(found.node, json.dumps(text)[1:-1])], note=note, advice=advice
            )
        if (
            isinstance(self._task.names.parent(found.node), ast.List | ast.Tuple | ast.Set)
            and literal[0] in "\"'"
        ):
            elements = [f"{literal[0]}{line}{literal[0]}" for line in text.split("\n")]
            return Rewrite([Spread(found.node, elements)], note=note)
        other = {'"': "'", "'": '"'}.get(literal[0], "")  # quotes that fit inside
        if literal[-3:] in ('"""', "'''") or any(
            mark in text for mark in "\"'\\\n{}" if mark != other
        ):
            return Report(f"becomes `{text}`")
        return Rewrite([SetString(found.node, text)], note=note)
