"""Environment variables that only older releases read."""

import ast
import re

from migrator.rule_api import Construct, Context, Decision, Delete, Example, Report, Rewrite, Rule

from ..markers import MARKERS
from .torch_xla_names import is_at_home

VARIABLE = Rule(
    code="XLA003",
    name="xla-variable",
    summary="an environment variable that only older releases of torch_xla read",
    why="""XRT, the runtime before PJRT, found its devices by environment variables. Nothing reads
them any more, so a statement that sets one is removed. `XLA_USE_BF16` and `XLA_DOWNCAST_BF16`
silently turn every float32 tensor into bfloat16; torch_xla 2.9 warns about them, and other targets
don't know them.""",
    examples=(
        Example(
            """
            import os
            os.environ["XRT_TPU_CONFIG"] = "localservice;0;localhost:51011"
            run()
            """,
            after="run()\n",
        ),
    ),
)


@VARIABLE.on("command", "xla")
def command(ctx: Context, found: Construct) -> Decision:
    text = found.content
    setting = re.fullmatch(r"""(\s*export\s+)XRT_TPU_CONFIG=(?:"[^"]*"|'[^']*')\s*""", text)
    if setting is not None and is_at_home(ctx):
        told = "settings for XRT, from older guides"
        return ctx.code.with_text(found, f"{setting[1]}PJRT_DEVICE=TPU", told)
    return Report("of torch_xla before PJRT: nothing reads it today; remove it")


@VARIABLE.on("variable", *MARKERS.older_variables)
def variable(ctx: Context, found: Construct) -> Decision:
    if "BF16" in found.key:
        if is_at_home(ctx):
            return Report("makes bfloat16 of every float32 tensor, deprecated since torch_xla 2.6: "
                          "use model.to(torch.bfloat16) or torch.autocast")  # fmt: skip
        return Report("means nothing here: use model.to(torch.bfloat16) or torch.autocast")
    place = ctx.names.parent(found.node)
    statement = ctx.names.parent(place) if place is not None else None
    match statement:
        case ast.Assign(targets=[ast.Subscript(value=owner)]) as setting:
            if setting.targets == [place] and ctx.names.qualified(owner) == "os.environ":
                return Rewrite([Delete(setting)], note="of XRT, which PJRT replaced")
    return Report("of XRT, which PJRT replaced: nothing sets or reads it today")
