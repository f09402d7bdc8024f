"""Code that uses the device where a framework calls it: in a thread, or in another process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Protocol

from migrator.analysis.devices.serving_frameworks import is_task, marks
from migrator.analysis.devices.subprocesses import ChildProcesses
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument
from migrator.analysis.syntax.scripts import is_script
from migrator.construct import Construct

_ROUTES = frozenset({
    "get", "post", "put", "delete", "patch", "options", "head", "api_route", "route",
})  # fmt: skip
# They await coroutines in the thread that loads the module, and call functions in others.
_ASYNC_SERVERS = frozenset({
    "fastapi.FastAPI", "fastapi.APIRouter", "starlette.applications.Starlette",
})  # fmt: skip
_SERVERS = frozenset({"flask.Flask", "flask.Blueprint"})
_INTERFACES = frozenset({"gradio.Interface", "gradio.ChatInterface"})
_LISTENERS = frozenset({
    "click", "change", "submit", "upload", "select", "input", "release", "load", "then", "success",
    "stream", "tick",
})  # fmt: skip
_WORDS = frozenset({
    "fastapi", "flask", "starlette", "gradio", "bentoml", "ray", "celery", "celery_app",
})  # fmt: skip


class Imports(Protocol):
    """What is known of the files that a file imports."""

    def leads_to_device(self, qualname: str) -> bool: ...


def called_by_hosts(
    names: Names, children: ChildProcesses, project: Imports | None
) -> Iterator[Construct]:
    """Functions and classes that use the device and that a server calls in a thread of its own, a
    task queue in several processes, or a worker of Ray that gets them by value."""
    modules = (
        [statement.module or ""]
        if isinstance(statement, ast.ImportFrom)
        else [alias.name for alias in statement.names]
        for statement in names.imports
    )
    if _WORDS.isdisjoint(part for each in modules for module in each for part in module.split(".")):
        return
    hosted = _Hosted(names, children, project)
    for node in names.order:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                for mark in marks(node):
                    if (key := hosted.key(node, mark)) and hosted.uses_device(node):
                        yield Construct("child", key, mark)
            case ast.Call():
                function = hosted.listener(node)
                if function is not None and hosted.uses_device(function):
                    yield Construct("child", "thread", node)


class _Hosted:
    def __init__(self, names: Names, children: ChildProcesses, project: Imports | None) -> None:
        self._names, self._children, self._project = names, children, project

    def key(self, node: ast.stmt, mark: ast.expr) -> str:
        """How a framework calls what it knows by a mark; "" if in the thread that loads it."""
        name = self._names.qualified(mark) or ""
        is_async = isinstance(node, ast.AsyncFunctionDef)
        if name == "ray.remote":  # pickled by value where it is defined in the program itself
            return "" if is_script(self._names) is False else "worker"
        if is_task(name):
            return "queue"
        if name == "ray.serve.deployment" or (name == "bentoml.api" and not is_async):
            return "thread"
        if isinstance(mark, ast.Attribute) and mark.attr in {"task", *_ROUTES}:
            made = self._makers(mark.value)
            if mark.attr == "task":
                return "queue" if "celery.Celery" in made else ""
            if made & _SERVERS or (made & _ASYNC_SERVERS and not is_async):
                return "thread"
        return ""

    def listener(self, call: ast.Call) -> ast.expr | None:
        """The function that Gradio calls for an event."""
        function = argument(call, 0, "fn")
        if self._names.qualified(call.func) in _INTERFACES:
            return function
        if isinstance(call.func, ast.Attribute) and call.func.attr in _LISTENERS:
            if any(maker.startswith("gradio.") for maker in self._makers(call.func.value)):
                return function
        return None

    def uses_device(self, code: ast.AST) -> bool:
        """Whether code uses the device, by itself or through what it imports."""
        if isinstance(code, ast.expr):
            return self._children.runs_on_device(code) or self._leads_to_device(code)
        return self._children.uses_device_in(code) or any(
            isinstance(node, ast.Name | ast.Attribute) and self._leads_to_device(node)
            for statement in getattr(code, "body", ())
            for node in ast.walk(statement)
        )

    def _leads_to_device(self, node: ast.expr) -> bool:
        """Whether a name is code of the project that uses the device, or was made by such code."""
        if self._project is None:
            return False
        meanings = [self._names.qualified(node)]
        if isinstance(node, ast.Name):
            meanings += self._makers(node)
        return any(meaning and self._project.leads_to_device(meaning) for meaning in meanings)

    def _makers(self, node: ast.expr) -> set[str]:
        """The qualified names of what is called for the values of a variable."""
        values: list[ast.AST | None] = [node]
        if isinstance(node, ast.Name):
            values = [binding.value for binding in self._names.lookup(node)]
        calls = (value for value in values if isinstance(value, ast.Call))
        return {self._names.qualified(call.func) or "" for call in calls}
