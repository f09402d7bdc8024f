"""Kernels of a program's own that it chooses by a name: "cuda" or another one."""

import ast

from migrator.analysis.devices.choices import AVAILABLE, names_device
from migrator.analysis.devices.device_strings import not_a_device
from migrator.construct import Construct
from migrator.diagnostics import Safety
from migrator.rule import Context, Decision, Example, Keep, Rule

KERNELS = Rule(
    code="DEV006",
    name="chosen-kernels",
    summary='"cuda" is the name of kernels that a program chooses where there is a GPU',
    why="""Where the other name is no device either, as in `"cuda" if torch.cuda.is_available() else
"vanilla"`, both name code. The question stays: its answer on a TPU machine is no, and the program
takes what runs anywhere. Where the text is known to be a device, the rules for devices decide.""",
    safety=Safety.DISPLAY_ONLY,
    examples=(
        Example(
            """
            import torch
            back_end = "cuda" if torch.cuda.is_available() else "vanilla"
            """,
        ),
    ),
)


@KERNELS.on("name", *AVAILABLE)
def question(ctx: Context, found: Construct) -> Decision | None:
    call = ctx.names.call_of(found.node) if isinstance(found.node, ast.expr) else None
    choice = ctx.parent(call) if call is not None else None
    if not isinstance(choice, ast.IfExp) or choice.test is not call:
        return None
    return _chosen(ctx, choice)


@KERNELS.on("string", "cuda")
def name(ctx: Context, found: Construct) -> Decision | None:
    choice = ctx.parent(found.node)
    if not isinstance(choice, ast.IfExp) or choice.body is not found.node:
        return None
    test = choice.test
    asks = isinstance(test, ast.Call) and ctx.names.qualified(test.func) in AVAILABLE
    return _chosen(ctx, choice) if asks else None


def _chosen(ctx: Context, choice: ast.IfExp) -> Keep | None:
    match choice.body, choice.orelse:
        case ast.Constant(value="cuda") as gpu, ast.Constant(value=str(other)) if other not in (
            "",
            "auto",
        ) and not names_device(choice.orelse):
            if not_a_device(ctx.names, ctx.flow, gpu) is not None:
                return Keep("names kernels for CUDA; a TPU takes the others")
    return None
