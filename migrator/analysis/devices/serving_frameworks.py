"""Frameworks that load a module themselves and call what it defines: servers, task queues.

Nothing in the project starts such a module, so it has to set the target up itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.prefilter import Tokens
from migrator.analysis.syntax.names import Names

# Base classes and decorators of what they call: the documentation of each says that it imports the
# module in the process that calls it.
_MARKS = (
    "cog.BasePredictor", "cog.BaseRunner",
    "ts.torch_handler.",
    "bentoml.service", "bentoml.Runnable",
    "ray.remote", "ray.serve.deployment", "ray.serve.ingress",
)  # fmt: skip
# What a module holds an object of, for a command that names it: `uvicorn app:app`.
APPLICATIONS = frozenset({
    "fastapi.FastAPI", "flask.Flask", "starlette.applications.Starlette", "quart.Quart",
    "sanic.Sanic", "litestar.Litestar", "celery.Celery", "bentoml.Service",
})  # fmt: skip
TOKENS = Tokens(
    rb"\bcog\b", b"torch_handler", b"bentoml", rb"\bray\b", b"celery", b"fastapi", b"flask",
    b"starlette", b"quart", b"sanic", b"litestar",
)  # fmt: skip


def is_loaded(names: Names) -> bool:
    """Whether a framework loads this module to call a class or function of it."""
    meant = (
        names.qualified(mark) or "" for statement in names.tree.body for mark in marks(statement)
    )
    return any(name.startswith(_MARKS) or is_task(name) for name in meant)


def is_task(name: str) -> bool:
    """Whether a decorator makes a task of Celery; the application may be another module's."""
    return name == "celery.shared_task" or ("celery" in name and name.endswith(".task"))


def holds_application(names: Names) -> bool:
    """Whether a server or a worker may be started with an object of this module."""
    return any(
        isinstance(statement, ast.Assign | ast.AnnAssign)
        and isinstance(statement.value, ast.Call)
        and names.qualified(statement.value.func) in APPLICATIONS
        for statement in names.tree.body
    )


def marks(statement: ast.stmt) -> Iterator[ast.expr]:
    """The decorators of a function or class, and a class's bases: what a framework knows it by."""
    match statement:
        case (
            ast.FunctionDef(decorator_list=decorators)
            | ast.AsyncFunctionDef(decorator_list=decorators)
        ):
            found = decorators
        case ast.ClassDef(decorator_list=decorators, bases=bases):
            found = [*decorators, *bases]
        case _:
            return
    for mark in found:
        yield mark.func if isinstance(mark, ast.Call) else mark
