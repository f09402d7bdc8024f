"""Fixtures: what a function gets at each call, and is the same each time."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from migrator.steps.computation import Computation
from migrator.steps.region import TRAINERS

_OF_FIXTURES = ("zero_grad", "step", "parameters", "named_parameters", "unscale_", "train", "eval")
_SETTINGS = re.compile(r"^(?:args?|opts?|cfgs?|conf(?:ig)?|hparams?|hps?|settings|flags)$", re.I)


def is_fixture(code: Computation, name: str, moved: Sequence[ast.stmt]) -> bool:
    """True for a parameter that holds a model, an optimizer, a loss or settings."""
    for node in (n for s in moved for n in ast.walk(s)):
        if isinstance(node, ast.Name) and node.id == name:
            parent = code.names.parents.get(node)
            if code.flow.kind(node) & TRAINERS or code.names.owner_class(node) is not None:
                return True
            if isinstance(parent, ast.Call) and parent.func is node:
                return True
            if isinstance(parent, ast.Attribute) and parent.attr in _OF_FIXTURES:
                return True
    return bool(_SETTINGS.search(name))
