"""Whether there is a GPU: the question becomes one for the target's device."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
)
from migrator.rule_api.device_objects import device_value
from migrator.rule_api.devices import (
    asks_for_implementation,
    availability_choice,
    names_attribute,
    question,
    with_older_torch,
)
from migrator.rule_api.gpu_only_code import guarded

AVAILABLE = Rule(
    code="DEV001",
    name="cuda-availability",
    summary="torch.cuda.is_available() is False on a TPU machine: the CPU would be used silently",
    why="""A TPU is not a CUDA device, so every branch on `torch.cuda.is_available()` silently takes
its CPU side, and the program runs on the CPU. If the answer only chooses a device, the choice
becomes the TPU. Elsewhere the question goes to the runtime.""",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_available.html",),
    examples=(
        Example(
            """
            import torch
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            """,
            after="""
            import torch
            device = torch.device("{device}")
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                device = torch_xla.device()
                """
            },
        ),
        Example(
            """
            import torch
            device = 'cuda:0' if torch.cuda.is_available() else 'cpu'
            """,
            after="""
            import torch
            device = '{device}'
            """,
        ),
        Example(
            """
            import torch
            use_cuda = not args.no_cuda and torch.cuda.is_available()
            """,
            after="""
            import torch
            import tpu_runtime
            use_cuda = not args.no_cuda and tpu_runtime.is_available()
            """,
        ),
        Example(
            """
            import torch
            parser.add_argument("--device", default="cpu")
            args = parser.parse_args()
            device = torch.device(args.device if torch.cuda.is_available() else "cpu")
            """,
            after="""
            import torch
            import tpu_runtime
            parser.add_argument("--device", default="cpu")
            args = parser.parse_args()
            device = torch.device(args.device if tpu_runtime.is_available() else "cpu")
            """,
        ),
        Example(
            """
            import torch
            n = 1 if torch.cuda.is_available() and torch.version.cuda > "11" else 0
            """,
            says={2: "false on a TPU"},
        ),
        Example(
            """
            import torch
            can_capture = torch.cuda.is_available() and torch.version.hip is None
            """,
            says={2: "on a TPU, the answer is no"},
        ),
        Example(
            """
            import torch
            providers = ["CUDAExecutionProvider"] if torch.cuda.is_available() else []
            """,
        ),
    ),
    moves_to_device=True,
)


@AVAILABLE.on("name", "torch.cuda.is_available", "torch.accelerator.is_available")
def available(ctx: Context, found: Construct) -> Decision:
    node = found.node
    assert isinstance(node, ast.expr)
    call, called = ctx.names.call_of(node), ""
    if ctx.api.device_names and found.key.startswith("torch.accelerator"):
        return Keep("knows the target's device")
    if asks_for_implementation(ctx.names, node):
        return Keep("belongs to CUDA's implementation, which a TPU does not take")
    if call is not None:
        if ctx.code.runtime("load") is None and _is_of_location(ctx, call):
            return Keep("reads what a GPU wrote where it was, and to the CPU on a TPU")
        if (alone := guarded(ctx, call)) is not None:
            return alone
        asked = question(ctx.names, call)
        choice = availability_choice(ctx.names, ctx.flow, asked)
        if choice is not None and not names_attribute(ctx.names, choice.node):
            return device_value(ctx, choice.node, choice.device)
        if _is_of_nvidia(ctx, call):
            return Report("asks for NVIDIA's GPUs, not AMD's; on a TPU, the answer is no")
        asked = with_older_torch(ctx.names, asked)
        if asked is not call:
            node, called = asked, "()"
    word = ctx.api.renames.get(found.key) or ctx.code.runtime("is_available")
    if word is None:
        return ctx.code.lacks(found.key)
    return Rewrite([Replace(node, f"{word.code}{called}")], word.requires)


def _is_of_nvidia(ctx: Context, call: ast.Call) -> bool:
    """`torch.cuda.is_available() and torch.version.hip is None`: as before CUDA graphs."""
    match ctx.names.parent(call):
        case ast.BoolOp(op=ast.And(), values=values) as both:
            chooses = isinstance(ctx.names.parent(both), ast.IfExp)  # between devices
            return not chooses and any(_is_without_hip(ctx, value) for value in values)
    return False


def _is_without_hip(ctx: Context, test: ast.expr) -> bool:
    match test:
        case (
            ast.Compare(left=asked, ops=[ast.Is()], comparators=[ast.Constant(value=None)])
            | ast.UnaryOp(op=ast.Not(), operand=asked)
        ):
            return ctx.names.qualified(asked) == "torch.version.hip"
    return False


def _is_of_location(ctx: Context, call: ast.Call) -> bool:
    """`map_location=None if torch.cuda.is_available() else "cpu"`"""
    match ctx.names.parent(call):
        case (
            ast.IfExp(
                test=test, body=ast.Constant(value=None), orelse=ast.Constant(value="cpu")
            ) as choice
        ) if test is call:
            match ctx.names.parent(choice):
                case ast.keyword(arg="map_location"):
                    return True
                case ast.Assign(targets=[ast.Name(id=name)]):
                    return "location" in name
    return False
