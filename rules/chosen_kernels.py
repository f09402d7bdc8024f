"""Kernels of a program's own that it chooses by a name: "cuda" or another one."""

import ast

from migrator.rule_api import Construct, Context, Decision, Example, Keep, Rule, Safety
from migrator.rule_api.devices import AVAILABLE, names_device, not_a_device
from migrator.rule_api.libraries import MODULES
from migrator.rule_api.packages import GPU_PROVIDERS

KERNELS = Rule(
    code="DEV006",
    name="chosen-kernels",
    summary='"cuda" is the name of kernels that a program chooses where there is a GPU',
    why="""If the other name is no device either, as in `"cuda" if torch.cuda.is_available() else
"vanilla"`, both name code. The question stays: its answer on a TPU machine is no, and the program
takes what runs anywhere; so it does where ONNX Runtime's providers are chosen, or a library for
CUDA, such as Triton.""",
    safety=Safety.DISPLAY_ONLY,
    examples=(
        Example(
            """
            import torch
            back_end = "cuda" if torch.cuda.is_available() else "vanilla"
            """,
            says={2: "names kernels for CUDA"},
        ),
        Example(
            """
            import torch
            back_end = "triton" if torch.cuda.is_available() else "torch"
            """,
            says={2: "names a library for CUDA"},
        ),
        Example(
            """
            import torch
            providers = ["CPUExecutionProvider"]
            if torch.cuda.is_available():
                providers.insert(0, "CUDAExecutionProvider")
            """,
            says={3: "chooses a provider for CUDA"},
        ),
    ),
)


@KERNELS.on("name", *AVAILABLE)
def question(ctx: Context, found: Construct) -> Decision | None:
    call = ctx.names.call_of(found.node) if isinstance(found.node, ast.expr) else None
    choice = ctx.names.parent(call) if call is not None else None
    if call is not None and _chooses_provider(ctx, call):
        return Keep("chooses a provider for CUDA; a TPU machine takes the others")
    if not isinstance(choice, ast.IfExp) or choice.test is not call:
        return None
    return _chosen(ctx, choice)


@KERNELS.on("string", "cuda")
def name(ctx: Context, found: Construct) -> Decision | None:
    choice = ctx.names.parent(found.node)
    if not isinstance(choice, ast.IfExp) or choice.body is not found.node:
        return None
    test = choice.test
    asks = isinstance(test, ast.Call) and ctx.names.qualified(test.func) in AVAILABLE
    return _chosen(ctx, choice) if asks else None


def _chooses_provider(ctx: Context, question: ast.Call) -> bool:
    """`["CUDAExecutionProvider", …] if torch.cuda.is_available() else …`, also as statements."""
    choice = ctx.names.parent(question)
    chosen: list[ast.AST] = []
    if isinstance(choice, ast.IfExp) and choice.test is question:
        chosen = [choice.body]
    elif isinstance(choice, ast.If) and choice.test is question and len(choice.body) == 1:
        chosen = [choice.body[0]]
    found = [node for each in chosen for node in ast.walk(each)]
    names = {node.value for node in found if isinstance(node, ast.Constant)}
    return not names.isdisjoint(GPU_PROVIDERS)


def _chosen(ctx: Context, choice: ast.IfExp) -> Keep | None:
    match choice.body, choice.orelse:
        case ast.Constant(value=str(name)), ast.Constant() if name in MODULES and name != "cuda":
            return Keep("names a library for CUDA; a TPU takes the other")
        case ast.Constant(value="cuda") as gpu, ast.Constant(value=str(other)) if other not in (
            "",
            "auto",
        ) and not names_device(choice.orelse):
            if not_a_device(ctx.names, ctx.flow, gpu) is not None:
                return Keep("names kernels for CUDA; a TPU takes the others")
    return None
