"""Seeds of a GPU's generator, where torch.manual_seed seeds the CPU and every device."""

import ast

from migrator.rule_api import Context, Decision, Edit, Replace, Report, Rewrite, Snippet, Wrap


def is_seeded(ctx: Context, call: ast.Call) -> bool:
    """Whether torch.manual_seed, which also seeds a TPU, is called with the same number, and
    nothing draws between the two."""
    if not ctx.api.device_names or not ctx.names.is_statement(call):
        return False
    seed, at = [ast.unparse(a) for a in call.args], ctx.names.statement(call)
    while at is not None:
        block = ctx.names.block(at)
        for number, other in enumerate(block):
            if _seeds_all(ctx, other, seed):
                first, last = sorted((number, block.index(at)))
                return ctx.values.order.may_swap(
                    ctx.values.order.draws(call), block[first + 1 : last]
                )
        above, others = ctx.names.parent(at), [other for other in block if other is not at]
        alone = ctx.values.order.may_swap(ctx.values.order.draws(call), others)
        at = above if alone and isinstance(above, ast.If) else None
    return False


def _seeds_all(ctx: Context, statement: ast.stmt, seed: list[str]) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=func, args=args)):
            name = ctx.names.qualified(func)
            return name == "torch.manual_seed" and [ast.unparse(a) for a in args] == seed
    return False


def seeded(ctx: Context, node: ast.expr, renamed: Snippet) -> Decision:
    """The function that seeds every device; the CPU's generator stays as it is."""
    call, statement = ctx.names.call_of(node), ctx.names.statement(node)
    if call is None or statement is None or not ctx.names.is_statement(call):
        return Report(f"seeds the GPU only; {renamed.code} seeds the CPU, too")
    header = f"with {renamed.code.rpartition('.')[0]}.random.fork_rng(devices=[]):"
    edits: list[Edit] = [
        Replace(node, renamed.code),
        Wrap(statement, [statement], header),
    ]
    return Rewrite(edits, renamed.requires, note="the CPU's generator stays as it is")
