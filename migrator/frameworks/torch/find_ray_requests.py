"""What a program asks Ray for: GPUs for a task, an actor, a trainer or a trial."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names
from migrator.construct import Construct

TOKENS = (b"num_gpus", rb"use_gpu\s*=", b"resources_per_", b"with_resources")
_TABLES = ("resources_per_trial", "resources_per_worker", "trainer_resources")


def of_ray(names: Names, call: ast.Call) -> Iterator[Construct]:
    """The arguments of a call that ask for GPUs; `options` is a method of a task or an actor."""
    name = names.qualified(call.func) or ""
    is_ray = name.startswith("ray.")
    is_options = isinstance(call.func, ast.Attribute) and call.func.attr == "options"
    for keyword in call.keywords:
        if keyword.arg == "num_gpus" and (is_ray or is_options):
            if not _is_none(keyword.value):
                yield Construct("ray", "num_gpus", keyword)
        elif keyword.arg == "use_gpu" and is_ray and not _is_none(keyword.value):
            yield Construct("ray", "use_gpu", keyword)
        elif keyword.arg in _TABLES and is_ray and _asks(keyword.value):
            yield Construct("ray", "gpu", keyword)
    if name == "ray.tune.with_resources" and any(map(_asks, call.args[1:])):
        yield Construct("ray", "gpu", call)


def _asks(table: ast.expr) -> bool:
    """Whether `{"cpu": 4, "gpu": 1}` asks for GPUs."""
    if not isinstance(table, ast.Dict):
        return False
    pairs = zip(table.keys, table.values, strict=True)
    return any(
        isinstance(key, ast.Constant) and str(key.value).lower() == "gpu" and not _is_none(value)
        for key, value in pairs
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value
