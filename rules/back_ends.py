"""Back ends of torch.distributed that a program names beside the calls that take them."""

import ast

from migrator.construct import Construct
from migrator.rule import Context, Decision, Example, Keep, Report, Rule

BACK_END = Rule(
    code="DST006",
    name="nccl-by-name",
    summary="NCCL is named in an option or a table, not where processes start",
    why="""NCCL is for GPUs. Where processes start, the target's own back end is named in its
place, whatever an option says; what is left beside it says what becomes of it.""",
    examples=(
        Example(
            """
            parser.add_argument("--dist-backend", default="nccl")
            """,
        ),
    ),
)


@BACK_END.on("string", "nccl")
def nccl(ctx: Context, found: Construct) -> Decision:
    group = ctx.words.devices.group if ctx.words.devices is not None else "another one"
    match ctx.parent(found.node):
        case ast.Compare(left=left, comparators=sides) if any(
            isinstance(side, ast.Call)
            and ctx.names.qualified(side.func) == "torch.distributed.get_backend"
            for side in (left, *sides)
        ):
            return Report(f"the back end is `{group}` there, so that this is never true")
    if ctx.ranks or (ctx.project is not None and ctx.project.serves_ranks()):
        return Keep(f"takes the way of GPUs; the group itself names `{group}`")
    return Report(f"a back end for GPUs; a migrated program names `{group}` itself, leave it out")
