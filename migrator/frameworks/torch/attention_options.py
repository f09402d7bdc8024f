"""Options of transformers that ask for attention by flash_attn: strings, and one flag."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import parameters
from migrator.construct import Construct

TOKEN = b"flash_attention_"
KIND = "attention option"
_FLASH = re.compile(r"flash_attention_[23]\Z")
_OPTION = re.compile(r"_?attn_implementation(?:_internal)?\Z")
_FLAG = "use_flash_attention_2"
_SETTER = "set_attn_implementation"


def attention_options(names: Names, node: ast.AST) -> Iterator[Construct]:
    """What a string or an argument asks for, where its place shows what it is an option of.

    A comparison, a list of choices, or a key stays what it is: it asks for nothing.
    """
    match node:
        case ast.Constant(value=str(text)) if _FLASH.match(text):
            option = _option(names, node)
            if option is not None:
                is_known = _OPTION.match(option) is not None
                yield Construct(KIND, "flash" if is_known else "unknown", node)
        case ast.keyword(arg=str(name), value=ast.Constant(value=True)) if name == _FLAG:
            yield Construct(KIND, "flag", node)


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
            return _declared(call) or _option(names, call)  # `field(default=…)` of a dataclass
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


def _declared(call: ast.Call) -> str | None:
    """The option that `add_argument("--attn_implementation", default=…)` declares."""
    texts = (a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
    return next((text.lstrip("-").replace("-", "_") for text in texts), None)


def _last_name(target: ast.expr | None) -> str | None:
    match target:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))) | ast.Constant(value=str(name)):
            return name
    return None
