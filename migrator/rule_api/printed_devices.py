"""Printed texts that name a device which is rewritten beside them."""

import ast
import re

from migrator.rule_api import Context, Edit, Replace
from migrator.rule_api.devices import only_prints

_GAP = "\0"  # where a text is given a value
_PLACEHOLDER = re.compile(r"%[dis]")


def printed_beside(ctx: Context, device: ast.expr) -> list[Edit]:
    """`print("Use GPU: cuda:{}".format(gpu))` beside `torch.device("cuda:{}".format(gpu))`

    Only the first of several such devices in a function changes what it prints.
    """
    function, name = ctx.names.function(device), _filled(device)
    if function is None or name is None or ctx.target.portable or ":" not in name[0]:
        return []
    near = [node for node in ast.walk(function) if isinstance(node, ast.expr)]
    printed = [node for node in near if _is_printed(ctx, node)]
    same = [node for node in near if node not in printed and _filled(node) == name]
    if min(same, key=lambda node: (node.lineno, node.col_offset), default=None) is not device:
        return []
    return [
        Replace(text, _quoted(ctx, said.replace(name[0], ctx.api.device), text))
        for text in printed
        if (filled := _filled(text)) is not None
        and filled[1] == name[1]
        and name[0] in (said := filled[0])
        and said != name[0]  # a device itself
    ]


def _filled(node: ast.expr) -> tuple[str, str] | None:
    """A text with a gap, and the only value that goes there: `cuda:{}` and `gpu`"""
    match node:
        case ast.Constant(value=str(text)):
            return text, ""
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format"),
            args=[value],
            keywords=[],
        ):
            parts = text.split("{}")
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=value):
            parts = _PLACEHOLDER.split(text)
        case ast.BinOp(
            left=ast.Constant(value=str(text)),
            op=ast.Add(),
            right=ast.Call(func=ast.Name(id="str"), args=[value]),
        ):
            parts = [text, ""]
        case ast.JoinedStr(values=values):
            given = [each for each in values if isinstance(each, ast.FormattedValue)]
            parts = "".join(_GAP if each in given else each.value for each in values).split(_GAP)  # type: ignore[attr-defined]
            if len(given) != 1 or given[0].format_spec is not None:
                return None
            value = given[0].value
        case _:
            return None
    known = len(parts) == 2 and not any(mark in part for part in parts for mark in "{}%")
    known = known and not any(isinstance(part, ast.Call) for part in ast.walk(value))
    return (_GAP.join(parts), ast.unparse(value)) if known else None


def _quoted(ctx: Context, said: str, text: ast.expr) -> str:
    quote = ctx.source.code(text).lstrip("fFrR")[:1]
    of_f_string = isinstance(text, ast.JoinedStr) and not any(c in said for c in "'\"\\\n")
    return f"{quote}{said}{quote}" if of_f_string else ctx.code.quoted(said, text)


def _is_printed(ctx: Context, text: ast.expr) -> bool:
    call = ctx.names.parent(text)
    return isinstance(call, ast.Call) and text in call.args and only_prints(ctx.names, call)
