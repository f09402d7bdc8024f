"""Where models from other files of a project read values in a forward pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names
from migrator.analysis.training.hot import Hot
from migrator.analysis.training.loops import READING_METHODS
from migrator.steps.computation import Computation


def reads_in_passes(code: Computation) -> list[str]:
    """Lines of the files that the models imported here come from, as `line 45 of model.py`.

    Such a read keeps the model, and each step that calls it, from being compiled as a whole.
    """
    found: dict[str, None] = {}
    for there in _files_of_models(code):
        hot = Hot(there.names, there.flow)
        for call in there.names.all(ast.Call):
            match call.func:
                case ast.Attribute(attr=method, value=owner) if method in READING_METHODS:
                    if hot.in_pass(call) and hot.is_tensor(owner):
                        found[f"line {call.lineno} of {there.file}"] = None
    return list(found)


def _files_of_models(code: Computation) -> Iterator[Computation]:
    """The files of the project that define models which this file makes."""
    seen: set[Names] = set()
    for call in code.names.all(ast.Call):
        made = code.imported(call.func)
        if made is not None and made[0].names not in seen and isinstance(made[1], ast.ClassDef):
            if made[0].flow.is_module_class(made[1]):
                seen.add(made[0].names)
                yield made[0]
