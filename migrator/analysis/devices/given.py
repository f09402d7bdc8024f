"""Devices that a program is given: by a configuration, or by the command that starts it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set

from migrator.analysis.gpu_text_patterns import (
    DEVICE_OPTION,
    DEVICE_SETTING,
    PLACE_SETTING,
    without_comment,
)
from migrator.analysis.name_heuristics import is_settings_name
from migrator.analysis.syntax.command_line import is_option, option_name
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted, said_name
from migrator.analysis.values.flow import Flow
from migrator.formats.embedded_text import COMMAND

_DEVICE = re.compile(r"(?:\w+_)?device", re.IGNORECASE)
READERS = frozenset({
    "addict", "anyconfig", "configargparse", "confuse", "dynaconf", "easydict", "gin", "hydra",
    "json", "jsonargparse", "json5", "lightning", "mmcv", "mmengine", "munch", "omegaconf",
    "pydantic_settings", "pyhocon", "pytorch_lightning", "ruamel", "simple_parsing", "toml",
    "tomli", "tomllib", "yacs", "yaml",
})  # fmt: skip
# Cheap tests.
MAY_TAKE = re.compile(rb"device|\.to\(\w+[.\[]", re.IGNORECASE)


def taken(names: Names, flow: Flow) -> Iterator[ast.expr]:
    """Where settings or options are asked for a device: `args.device`, `cfg["device"]`."""
    for node in names.order:
        if isinstance(node, ast.Attribute | ast.Subscript) and other_key(flow, node):
            yield node
            continue
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


def other_key(flow: Flow, node: ast.expr) -> str:
    """The key of a setting that isn't named like a device, and is one: `torch.device(cfg.where)`;
    "" for others."""
    if not isinstance(node, ast.Attribute | ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return ""
    key, owner = said_name(node), node.value
    while isinstance(owner, ast.Attribute | ast.Subscript) and not is_settings_name(
        said_name(owner)
    ):
        owner = owner.value
    if not key or _DEVICE.fullmatch(key) or not is_settings_name(said_name(owner)):
        return ""
    return key if flow.is_given_as_device(node) else ""


def names_gpu(kind: str, content: bytes, keys: Set[str] = frozenset()) -> bool:
    """Whether a configuration, or a script of commands, names a GPU as a program's device; `keys`
    are names of devices, too."""
    if keys and kind != COMMAND and b"cuda" in content:
        text = map(without_comment, content.decode("utf-8", "replace").splitlines())
        if any(m["key"] in keys for line in text for m in PLACE_SETTING.finditer(line)):
            return True
    if b"device" not in content.lower():
        return False
    named = DEVICE_OPTION if kind == COMMAND else DEVICE_SETTING
    lines = content.decode("utf-8", "replace").splitlines()
    return any(named.search(without_comment(line)) for line in lines)
