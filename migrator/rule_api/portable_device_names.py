"""Device names in a program that chooses its device when it starts: tests, and indices."""

import ast
from collections.abc import Sequence

from migrator.rule_api import Context, Decision, Keep, Replace, Report, Rewrite, Spread
from migrator.rule_api.devices import device_call


def asked_for(ctx: Context, name: ast.expr) -> Decision | None:
    """`device.type == "cuda"`: becomes a test for a GPU or a TPU."""
    match ctx.names.parent(name):
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn() as op],
                         comparators=[right]) as compared:  # fmt: skip
            other = right if left is name else left
            return _compared(ctx, compared, op, name, other)
        case ast.Compare():
            return Report(f"is compared in a way that is not analysed; {_beside(ctx)}")
        case ast.Tuple() | ast.List() | ast.Set() as several:
            above = ctx.names.parent(several)
            if isinstance(above, ast.Compare) or _is_start(above):
                return _among(ctx, name, several.elts)
        case ast.Call() as call if _is_start(call):
            return Rewrite([Replace(name, _both(ctx, name))])
    return None


def _compared(
    ctx: Context, compared: ast.Compare, op: ast.cmpop, name: ast.expr, other: ast.expr
) -> Decision:
    if not isinstance(name, ast.Constant) or name.value != "cuda":
        return Report(f"is compared with its index; compare the type of the device, {_beside(ctx)}")
    if isinstance(op, ast.Eq | ast.NotEq):
        word = "in" if isinstance(op, ast.Eq) else "not in"
        return Rewrite([Replace(compared, f"{{x}} {word} {_both(ctx, name)}", {"x": other})])
    if compared.left is not name:
        return Report(f"is searched for letters; {_beside(ctx)}")
    above, tpu = ctx.names.parent(compared), ctx.code.quoted(ctx.api.device, name)
    if isinstance(above, ast.BoolOp) and any(
        ast.unparse(each) == ast.unparse(compared).replace("cuda", ctx.api.device)
        for each in above.values
    ):
        return Keep("a check for a TPU stands beside it")
    sign, joins = ("in", "or") if isinstance(op, ast.In) else ("not in", "and")
    held = ctx.source.code(other)
    text = f"({ctx.source.code(name)} {sign} {held} {joins} {tpu} {sign} {held})"
    return Rewrite([Replace(compared, text)])


def _among(ctx: Context, name: ast.expr, kinds: Sequence[ast.expr]) -> Decision:
    tpu = ctx.api.device
    if any(isinstance(kind, ast.Constant) and kind.value == tpu for kind in kinds):
        return Keep("one of several kinds, and the TPU is another")
    if isinstance(name, ast.Constant) and name.value == "cuda":
        return Rewrite([Spread(name, [ctx.source.code(name), ctx.code.quoted(tpu, name)])])
    return Report(f"one of several devices; {_beside(ctx)}")


def _both(ctx: Context, near: ast.AST) -> str:
    return f"({ctx.code.quoted('cuda', near)}, {ctx.code.quoted(ctx.api.device, near)})"


def is_gpu_or_tpu(ctx: Context, near: ast.AST) -> str:
    """A test for `{x}` being on a GPU or a TPU, in place of `x.is_cuda`."""
    return f"{{x}}.device.type in {_both(ctx, near)}"


def _beside(ctx: Context) -> str:
    return f"a TPU's is {ctx.api.device!r}"


def _is_start(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and (
        isinstance(node.func, ast.Attribute) and node.func.attr == "startswith"
    )


def with_index(ctx: Context, name: ast.expr) -> Decision | None:
    """`f"cuda:{rank}"` and a second device keep their index: several GPUs stay several."""
    index = _index(name)
    if index is None or isinstance(ctx.names.parent(name), ast.Compare):
        call = device_call(ctx.names, name)
        indexed = call is not None and len(call.args) + len(call.keywords) > 1
        return Rewrite([Replace(name, ctx.code.device_string(name))]) if indexed else None
    device, code = ctx.code.device_string(name), ctx.source.code(name)
    if isinstance(name, ast.JoinedStr):
        return Rewrite([Replace(name, code.replace("cuda", f"{{{device}}}", 1))])
    number = index if isinstance(index, str) else ctx.source.code(index)
    if any(letter in number for letter in "\"'{}\\\n"):
        return Report(f"replace its first letters with {device}")
    number = number if number.isdecimal() else f"{{{number}}}"
    return Rewrite([Replace(name, "f" + ctx.code.quoted(f"{{{device}}}:{number}", name))])


def _index(name: ast.expr) -> ast.expr | str | None:
    """The index in a device name, if it isn't the first device's."""
    match name:
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if text.startswith("cuda:"):
            return name
        case ast.BinOp(left=ast.Constant(value=str("cuda:%d" | "cuda:%s")), right=index):
            return index
        case ast.BinOp(
            left=ast.Constant(value="cuda:"), right=ast.Call(func=ast.Name(id="str"), args=[index])
        ):
            return index
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value="cuda:{}" | "cuda:{0}"), attr="format"),
            args=[index],
        ):
            return index
        case ast.Constant(value=str(text)) if text.startswith("cuda:") and text != "cuda:0":
            return text.removeprefix("cuda:")
    return None
