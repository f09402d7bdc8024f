"""Strings that are constructs: devices, types, environment variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis.construct_names import Vocabulary
from migrator.analysis.devices import other_accelerators
from migrator.analysis.syntax.names import Names
from migrator.analysis.values.value_kinds import DEVICE_TEXT, TENSOR_TYPE
from migrator.construct import Construct
from migrator.formats.embedded_text import is_embedded
from migrator.frameworks.torch.find_attention_options import FLAG, FLASH, attention_options

VISIBLE = "CUDA_VISIBLE_DEVICES"

_MODULE_TEXT = re.compile(r"torch\.cuda(?:\.\w+)*\Z")

_OF_MEMORY = re.compile(r"(?:CUDA(?: error)?:? )?out of memory\.?\Z")


def strings(names: Names, node: ast.Constant, vocabulary: Vocabulary) -> Iterator[Construct]:
    text = str(node.value)
    parent = names.parents.get(node)
    if (accelerator := other_accelerators.accelerator_of_device(text)) and takes_device(
        names, node, parent
    ):
        yield Construct("accelerator", accelerator, node)
    if text in vocabulary.variables and (text != VISIBLE or _is_of_environment(names, parent)):
        yield Construct("variable", text, node)
    if _OF_MEMORY.match(text) and _is_sought_in_error(names, parent):
        yield Construct("string", "out of memory", node)
    if text == "nccl" and not _is_of_group(names, parent):
        yield Construct("string", "nccl", node)
    if FLASH.match(text) or text == FLAG:
        yield from attention_options(names, node)
    if "cuda" not in text:
        return
    if isinstance(parent, ast.JoinedStr | ast.FormattedValue) or is_embedded(parent):
        return
    if DEVICE_TEXT.match(text):
        yield Construct("string", "cuda", node)
    elif TENSOR_TYPE.match(text):
        yield Construct("tensor_type", text, node)
    elif _MODULE_TEXT.match(text):
        yield Construct("string", "torch.cuda", node)
    elif text == "is_cuda" and isinstance(parent, ast.Call):
        if (names.qualified(parent.func) or "") in ("getattr", "operator.attrgetter"):
            yield Construct("string", "is_cuda", node)


def _is_of_group(names: Names, parent: ast.AST | None) -> bool:
    """Whether it is an argument of a torch.distributed call, which is handled as a whole."""
    call = names.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    name = names.qualified(call.func) if isinstance(call, ast.Call) else None
    return (name or "").startswith("torch.distributed.")


_ENVIRONMENT = ("os.environ.", "os.getenv", "os.putenv", "os.unsetenv")


def _is_of_environment(names: Names, parent: ast.AST | None) -> bool:
    """`os.environ["…"]`, `os.environ.setdefault("…", …)`, `os.getenv("…")`, `{"…": …}`"""
    match parent:
        case ast.Subscript(value=owner) | ast.Compare(comparators=[owner]):
            return names.qualified(owner) == "os.environ"
        case ast.Call(func=function):
            return (names.qualified(function) or "").startswith(_ENVIRONMENT)
    return isinstance(parent, ast.Dict)  # also the environment of a child process


def _is_sought_in_error(names: Names, parent: ast.AST | None) -> bool:
    """`"out of memory" in str(error)`"""
    match parent:
        case ast.Compare(
            ops=[ast.In() | ast.NotIn()],
            comparators=[ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name() as error])],
        ):
            return any(binding.kind == "except" for binding in names.lookup(error))
    return False


def takes_device(names: Names, node: ast.expr, parent: ast.AST | None) -> bool:
    """Whether a value is in a position that only accepts a device."""
    match parent:
        case ast.keyword(arg="device" | "map_location"):
            return True
        case ast.Call(func=func, args=[first, *_]) if first is node:
            moves = isinstance(func, ast.Attribute) and func.attr == "to"
            return moves or names.qualified(func) in ("torch.device", "torch.set_default_device")
    return False
