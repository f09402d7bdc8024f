"""Questions after a device, of a program that chooses its own when it starts."""

import ast

from migrator.edits import Replace, Spread
from migrator.rule import Context, Decision, Keep, Report, Rewrite


def asked_for(ctx: Context, name: ast.expr) -> Decision | None:
    """`device.type == "cuda"`, of a program that chooses its device: it is none of the CPU's."""
    match ctx.parent(name):
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn() as op],
                         comparators=[right]) as compared:  # fmt: skip
            cpu = ctx.quoted("cpu", name)
            sign = _OPPOSITE[type(op)]
            one, other = (cpu, "{other}") if left is name else ("{other}", cpu)
            held = {"other": right if left is name else left}
            return Rewrite([Replace(compared, f"{one} {sign} {other}", held)])
        case ast.Compare():
            return Report('is compared in a way that is not looked into; ask for `!= "cpu"`')
        case ast.Tuple(elts=kinds) | ast.List(elts=kinds) | ast.Set(elts=kinds) as several:
            above = ctx.parent(several)
            tpu = ctx.words.device
            if not isinstance(above, ast.Compare) and not _is_start(above):
                return None
            if any(isinstance(kind, ast.Constant) and kind.value == tpu for kind in kinds):
                return Keep("one of several kinds, and the TPU is another")
            if isinstance(name, ast.Constant) and name.value == "cuda":
                both = [ctx.source.code(name), ctx.quoted(tpu, name)]
                return Rewrite([Spread(name, both)])
            return Report(f"one of several devices; put {tpu!r} beside it")
        case ast.Call() as call if _is_start(call):
            tpu = ctx.quoted(ctx.words.device, name)
            return Rewrite([Replace(name, f"({ctx.source.code(name)}, {tpu})")])
    return None


def _is_start(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and (
        isinstance(node.func, ast.Attribute) and node.func.attr == "startswith"
    )


_OPPOSITE = {ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in", ast.NotIn: "in"}
