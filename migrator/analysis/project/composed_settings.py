"""Composed settings: the folders from which Hydra composes what a program reads.

Any file of such a folder may be chosen when the program is started (`model=large`), and so may the
modules that it names (`_target_: models.unet.UNet`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import argument

MAY_COMPOSE = re.compile(rb"\bhydra\b")  # a cheap test
_FOLDER = {
    "hydra.main": "config_path",
    "hydra.initialize": "config_path",
    "hydra.initialize_config_dir": "config_dir",
}
_NAMED = re.compile(rb"^\s*(?:-\s+)?[\"']?_target_[\"']?\s*:\s*[\"']?([^\s\"'#]+)", re.MULTILINE)
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
_ELSEWHERE = re.compile(rb"^\s*searchpath\s*:", re.MULTILINE)


@dataclass(frozen=True)
class Composed:
    """The folders, as a file names them, and whether there may be others."""

    folders: Sequence[str] = ()
    is_unknown: bool = False


def composed(names: Names) -> Composed:
    folders: list[str] = []
    is_unknown = False
    for call in names.all(ast.Call):
        parameter = _FOLDER.get(names.qualified(call.func) or "")
        if parameter is None:
            continue
        match argument(call, 0, parameter), argument(call, 1, "config_name"):
            case ast.Constant(value=str(folder)), _ if ":" not in folder:
                folders.append(folder)
            case ((None | ast.Constant(value=None)), (None | ast.Constant(value=None))):
                pass  # classes of the program describe its settings
            case _:
                is_unknown = True
    return Composed(folders, is_unknown)


def modules_named(settings: bytes) -> Iterator[str]:
    """What settings have made for a program, by its module: `models.unet.UNet`."""
    for found in _NAMED.findall(settings):
        name = found.decode("utf-8", "replace")
        if _MODULE.fullmatch(name):
            yield name


def names_all(settings: bytes) -> bool:
    """Whether settings name all that they bring in: they compute no name, and add no folder."""
    computed = any(b"$" in found for found in _NAMED.findall(settings))
    return not computed and _ELSEWHERE.search(settings) is None
