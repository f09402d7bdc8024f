"""Checks of versions that no machine of a target passes: `assert timm.__version__ == "0.3.2"`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

from migrator.analysis.devices.machine_conditions import never_runs, tpu_answer
from migrator.analysis.import_verdicts import known_modules
from migrator.analysis.syntax.names import Names
from migrator.construct import Construct

_ASKS = re.compile(rb"__version__|version_info")
_FAILS = re.compile(rb"\b(?:assert|raise|exit|_exit|quit)\b")
_VERSIONS = (".__version__", "sys.version_info")


def may_be_in(source: bytes) -> bool:
    """A cheap test: False if a file has no such check."""
    return b"torch" in source and all(each.search(source) for each in (_ASKS, _FAILS))


def find(names: Names, node: ast.stmt) -> Iterator[Construct]:
    """A statement that ends the program. The key has the modules whose versions decide, if they
    aren't PyTorch's or Python's: `timm and numpy`."""
    match node:
        case ast.Assert(test=test):
            passes = True
        case ast.If(test=test, body=body) if names.ends(body):
            passes = False
        case _:
            return
    asked = _asked(names, test)
    if not asked or never_runs(names, node) is not None:
        return
    if tpu_answer(names, test) is (not passes):
        yield Construct("version check", "", node)
        return
    known = {module: _tested()[module] for module in sorted(asked) if module in _tested()}
    if known and tpu_answer(names, test, known) is (not passes):
        yield Construct("version check", " and ".join(known), node)


def _asked(names: Names, test: ast.expr) -> set[str]:
    """The modules whose versions a condition asks for."""
    meant = (
        names.qualified(node) or ""
        for node in ast.walk(test)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    return {name.partition(".")[0] for name in meant if name.endswith(_VERSIONS)}


@cache
def _tested() -> Mapping[str, str]:
    return {module: known.tested for module, known in known_modules().items() if known.tested}
