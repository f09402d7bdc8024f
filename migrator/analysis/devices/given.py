"""Devices that a program is given: by a configuration, or by the command that starts it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis.gpu_text_patterns import DEVICE_OPTION, DEVICE_SETTING, without_comment
from migrator.analysis.name_heuristics import is_settings_name
from migrator.analysis.syntax.command_line import is_option, option_name
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.formats.embedded import COMMAND

_DEVICE = re.compile(r"(?:\w+_)?device", re.IGNORECASE)
READERS = frozenset({
    "addict", "anyconfig", "configargparse", "confuse", "dynaconf", "easydict", "gin", "hydra",
    "json", "jsonargparse", "json5", "lightning", "mmcv", "mmengine", "munch", "omegaconf",
    "pydantic_settings", "pyhocon", "pytorch_lightning", "ruamel", "simple_parsing", "toml",
    "tomli", "tomllib", "yacs", "yaml",
})  # fmt: skip
MAY_TAKE = re.compile(rb"device", re.IGNORECASE)  # a cheap test


def taken(names: Names) -> Iterator[ast.expr]:
    """Where settings or options are asked for a device: `args.device`, `cfg["device"]`."""
    for node in names.order:
        match node:
            case ast.Attribute(attr=key, value=owner, ctx=ast.Load()):
                parts = (dotted(owner) or "").split(".")
                if _DEVICE.fullmatch(key) and any(map(is_settings_name, parts)):
                    yield node
            case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Load()):
                if _DEVICE.fullmatch(key):
                    yield node
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]):
                if _DEVICE.fullmatch(key):
                    yield node
            case ast.Call() if is_option(node) and _DEVICE.fullmatch(option_name(node)):
                yield node  # click gives it to a parameter


def names_gpu(kind: str, content: bytes) -> bool:
    """Whether a configuration, or a script of commands, names a GPU as a program's device."""
    if MAY_TAKE.search(content) is None:
        return False
    named = DEVICE_OPTION if kind == COMMAND else DEVICE_SETTING
    lines = content.decode("utf-8", "replace").splitlines()
    return any(named.search(without_comment(line)) for line in lines)
