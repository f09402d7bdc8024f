"""Back ends of torch.distributed that a program names outside of the calls that take them."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Keep,
    Report,
    Rewrite,
    Rule,
    SetString,
)
from migrator.rule_api.chosen_back_ends import assigned

BACK_END = Rule(
    code="DST006",
    name="nccl-by-name",
    summary="NCCL named in an option or a table, not where processes start",
    why="""NCCL is for GPUs. Where processes start, the target's back end is named instead,
whatever an option says. Other mentions are reported. A name that is only assigned for that one
call (`args.dist_backend = "nccl"`) becomes the target's back end, and so does a name that a
group's back end is compared with (`dist.get_backend() == "nccl"`).""",
    examples=(
        Example(
            """
            parser.add_argument("--dist-backend", default="nccl")
            """,
        ),
        Example(
            """
            import os
            fast = os.environ["BACK_END"] == "nccl"
            """,
            says={2: "a back end for GPUs"},
        ),
        Example(
            """
            workers = {"nccl": 4, "gloo": 1}
            """,
            says={1: "a back end for GPUs"},
        ),
    ),
)


@BACK_END.on("string", "nccl", node=ast.Constant)
def nccl(ctx: Context, found: Construct, node: ast.Constant) -> Decision:
    group = ctx.api.devices.group if ctx.api.devices is not None else "another one"
    if ctx.api.devices is not None and ctx.api.devices.back_end is not None:
        if _is_asked_for(ctx, node):
            return Report(f"only true on GPUs; on a TPU the back end is `{group}`")
        return Keep(
            "keeps the program on its GPU path; the process group gets the device's back end"
        )
    if _is_asked_for(ctx, node):
        if ctx.api.devices is None:
            return Report(f"the back end is `{group}` there, so this is never true")
        return Rewrite([SetString(node, group)])
    if ctx.distributed.ranks and any(assigned(ctx, call, group) is node for call in _starts(ctx)):
        return Rewrite([SetString(node, group)])
    if ctx.distributed.ranks or (ctx.project is not None and ctx.project.serves_ranks()):
        return Keep(f"keeps the program on its GPU path; the process group gets `{group}`")
    return Report(f"a back end for GPUs; a migrated program names `{group}` itself, remove it")


def _is_asked_for(ctx: Context, text: ast.Constant) -> bool:
    """Whether a group's back end is compared with this: `backend in ["gloo", "nccl"]`."""
    above = ctx.names.parent(text)
    if isinstance(above, ast.List | ast.Tuple | ast.Set):
        above = ctx.names.parent(above)
    sides = [above.left, *above.comparators] if isinstance(above, ast.Compare) else []
    return any(_is_back_end(ctx, side) for side in sides)


def _is_back_end(ctx: Context, node: ast.expr) -> bool:
    """Whether an expression is the result of `torch.distributed.get_backend`."""
    if isinstance(node, ast.Name):
        bound = ctx.names.lookup(node)
        values = [each.value for each in bound if each.kind == "assign"]
        return bool(values) and len(values) == len(bound) and all(
            isinstance(value, ast.Call) and _is_back_end(ctx, value) for value in values
        )  # fmt: skip
    return (
        isinstance(node, ast.Call)
        and ctx.names.qualified(node.func) == "torch.distributed.get_backend"
    )


def _starts(ctx: Context) -> list[ast.Call]:
    meaning = "torch.distributed.init_process_group"
    return [
        node for node in ctx.names.order
        if isinstance(node, ast.Call) and ctx.names.qualified(node.func) == meaning
    ]  # fmt: skip
