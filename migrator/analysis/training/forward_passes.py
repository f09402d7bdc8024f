"""Where models from other files of a project read values in a forward pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from migrator.analysis.syntax.names import Names
from migrator.analysis.training.find_optimizer_steps import READING_METHODS
from migrator.analysis.training.sync_points import Hot
from migrator.analysis.values.callees import Callees


def reads_in_passes(code: Callees) -> list[str]:
    """Such lines of files that use no device themselves, and so get no advice of their own: as
    `line 45 of model.py`."""
    found: dict[str, None] = {}
    for path, there in _files_of_models(code):
        hot = Hot(there.names, there.flow)
        for call in there.names.all(ast.Call):
            match call.func:
                case ast.Attribute(attr=method, value=owner) if method in READING_METHODS:
                    if hot.in_pass(call) and hot.is_tensor(owner):
                        found[f"line {call.lineno} of {path.name}"] = None
    return list(found)


def _files_of_models(code: Callees) -> Iterator[tuple[Path, Callees]]:
    """The files of the project that define models which this file makes."""
    seen: set[Names] = set()
    for call in code.names.all(ast.Call):
        made = code.imported(call.func)
        if made is None or made[0].names in seen or not isinstance(made[1], ast.ClassDef):
            continue
        there = made[0]
        if there.flow.is_module_class(made[1]) and there.project is not None:
            seen.add(there.names)
            if not there.project.uses_device():
                yield there.project.path, there
