"""Strings that ask for attention by flash_attn, as options of transformers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis.syntax.command_line import option_name
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import parameters
from migrator.construct import Construct

FLASH = re.compile(r"(?:flash_attention_[23]|kernels-community/(?:vllm-)?flash-attn\d?)\Z")
_OPTION = re.compile(r"_?attn_implementation(?:_internal)?\Z")
FLAG = "use_flash_attention_2"  # the older option, a flag
_SETTER = "set_attn_implementation"


def attention_options(names: Names, node: ast.Constant) -> Iterator[Construct]:
    """What a string asks for, where its place shows what it is an option of.

    A comparison, a list of choices, or a key stays what it is: it asks for nothing.
    """
    if node.value == FLAG:
        value = _value(names, node)
        if value is not None and not (isinstance(value, ast.Constant) and not value.value):
            is_true = isinstance(value, ast.Constant) and value.value is True
            yield Construct("attention option", "flag" if is_true else "unknown", value)
        return
    option = _option(names, node)
    if option is not None:
        key = "flash" if _OPTION.match(option) else "unknown"
        yield Construct("attention option", key, node)


def _option(names: Names, node: ast.AST) -> str | None:
    """The name of what gets a value; None if it is no option."""
    whole = node
    while isinstance(above := names.parents.get(whole), ast.IfExp) and whole is not above.test:
        whole = above
    match above:
        case ast.keyword(arg=str(name)):
            call = names.parents.get(above)
            if name != "default" or not isinstance(call, ast.Call):
                return name
            # `add_argument("--attn_implementation", default=…)`, `field(default=…)` of a dataclass
            return option_name(call) or _option(names, call)
        case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]) if name == _SETTER:
            return "attn_implementation" if first is whole else None
        case ast.Dict(keys=keys, values=values):
            place = next((n for n, value in enumerate(values) if value is whole), None)
            return _last_name(keys[place]) if place is not None else None
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            return _last_name(target)
        case ast.FunctionDef(args=taken) | ast.AsyncFunctionDef(args=taken):
            return next((each.arg for each, value in parameters(taken) if value is whole), None)
    return None


def _value(names: Names, key: ast.Constant) -> ast.expr | None:
    """What a key of a dictionary gets: `{"…": value}`, `options["…"] = value`."""
    above = names.parents.get(key)
    match above:
        case ast.Dict(keys=keys, values=values):
            return next((v for k, v in zip(keys, values, strict=True) if k is key), None)
        case ast.Subscript():
            statement = names.parents.get(above)
            if isinstance(statement, ast.Assign) and above in statement.targets:
                return statement.value
    return None


def _last_name(target: ast.expr | None) -> str | None:
    match target:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))) | ast.Constant(value=str(name)):
            return name
    return None
