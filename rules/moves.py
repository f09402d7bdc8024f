"""Moves: `.cuda()` and its relatives."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Edit,
    EditCall,
    Example,
    Family,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
    argument,
    dotted,
)
from migrator.rule_api.devices import asks_for_implementation, does_as_torch, method_caller
from migrator.rule_api.portable_device_names import is_gpu_or_tpu
from migrator.rule_api.project import program_file
from migrator.rule_api.python import CUDA_STRING
from migrator.rule_api.training import is_model, is_storage

FAMILY = Family("MOV", "Moves to the device", 30)

CUDA = Rule(
    code="MOV001",
    name="cuda-method",
    summary="x.cuda() becomes x.to(device)",
    why="""`.cuda()` in every form, on tensors and modules. The device argument is removed, because
the target shows one device; `non_blocking` and `memory_format` stay.""",
    examples=(
        Example(
            """
            model = Net().cuda()
            x = x.cuda(non_blocking=True)
            """,
            after="""
            model = Net().to("{device}")
            x = x.to("{device}", non_blocking=True)
            """,
        ),
        Example(
            """
            import torch
            xs = list(map(torch.Tensor.cuda, xs))
            """,
            after="""
            import torch
            xs = list(map(lambda x: x.to("{device}"), xs))
            """,
        ),
        Example(
            """
            from operator import methodcaller
            xs = list(map(methodcaller('cuda'), xs))
            """,
            after="""
            from operator import methodcaller
            xs = list(map(methodcaller('to', '{device}'), xs))
            """,
        ),
        Example(
            """
            if args.cuda:
                run()
            """,
        ),
        Example(
            """
            import torch

            class Box:
                def cuda(self):
                    return 1

            x = Box().cuda()
            """,
            says={7: "Box defines cuda() itself"},
        ),
    ),
    moves_to_device=True,
)

IS_CUDA = Rule(
    code="MOV002",
    name="is-cuda",
    summary="x.is_cuda is False on the target; its device type is checked instead",
    why="""`is_cuda` is False for a tensor on the target, so the program would silently leave its
GPU branch.

Before something that only CUDA has (a kernel, an extension, a library, a function that runs one),
False is right: the check stays, like checks of a device's type or of `torch.cuda.is_available()`,
and the code for machines without CUDA runs. If the same answer also moves a model to the device, it
is reported.""",
    examples=(
        Example(
            """
            if x.is_cuda:
                print("fast")
            """,
            after="""
            if x.device.type == "{device}":
                print("fast")
            """,
        ),
        Example(
            """
            from mylib import _C


            def scale(x):
                if x.is_cuda:
                    return _C.scale(x)
                return x * 2
            """,
        ),
        Example(
            """
            import torch
            class Batch:
                def __init__(self, use_cuda):
                    self.is_cuda = use_cuda
                def size(self):
                    return 8 if self.is_cuda else 1
            """,
            says={6: "a flag of the program's own"},
        ),
    ),
)


@CUDA.on("method", "cuda", node=ast.Attribute)
def cuda(ctx: Context, found: Construct, node: ast.Attribute) -> Decision:
    call = ctx.names.call_of(node)
    if call is None:
        return Report(
            "the method itself is passed on, not called; move the object where it is used"
        )
    if isinstance(node.value, ast.Call) and dotted(node.value.func) == "super":
        return Report(
            "an override of cuda(); nn.Module.to does not call it, so move its work to `_apply`"
        )
    if is_storage(program_file(ctx), node.value):
        return Report(
            "moves a storage, which has no device there; load to the CPU and move tensors"
        )
    owner = _defines_cuda(ctx, node.value)
    if owner:
        return Report(f"{owner} defines cuda() itself; change that method by hand")
    if any(isinstance(a, ast.Starred) for a in call.args) or any(
        k.arg is None for k in call.keywords
    ):
        return Report("its arguments are unpacked; write the device out")
    if not _takes(ctx, call):
        return Report(
            "torch's cuda() does not take these arguments; the source doesn't show whose "
            "method this is"
        )
    index = argument(call, 0, "device")
    if ctx.api.device_names and index is not None and _is_other(ctx, index):
        return Rewrite([EditCall(call, method="to")])
    drop: list[ast.expr | ast.keyword] = [k for k in call.keywords if k.arg == "device"]
    drop += call.args[:1]
    edits: list[Edit] = []
    if len(call.args) == 2:  # x.cuda(0, True)
        return Rewrite([
            EditCall(call, method="to", drop=call.args, first=ctx.code.device(node),
                     put={"non_blocking": ast.unparse(call.args[1])})
        ])  # fmt: skip
    edits.append(EditCall(call, method="to", drop=drop, first=ctx.code.device(node)))
    return Rewrite(edits)


def _is_other(ctx: Context, index: ast.expr) -> bool:
    """Whether the GPU may be another than the first; any accelerator accepts the index."""
    if isinstance(index, ast.Constant):
        return isinstance(index.value, int) and index.value > 0
    known = ctx.flow.kind(index) & (Kind.DEVICE | Kind.DEVICE_INT)
    return bool(known) or ctx.values.evidence.is_index(index)


def _takes(ctx: Context, call: ast.Call) -> bool:
    """Whether torch's `cuda(device=None, non_blocking=False, memory_format=…)` accepts this."""
    named = {k.arg for k in call.keywords}
    if len(call.args) > 2 or not named <= {"device", "non_blocking", "memory_format", "async"}:
        return False
    device = argument(call, 0, "device")
    text = device.value if isinstance(device, ast.Constant) else None
    return not isinstance(text, str) or CUDA_STRING.match(text) is not None


def _defines_cuda(ctx: Context, receiver: ast.expr) -> str | None:
    """The class whose own `cuda` method a call reaches."""
    names = ctx.names
    candidates: list[ast.AST | None] = []
    if isinstance(receiver, ast.Name):
        candidates += [names.owner_class(receiver), *ctx.flow.made(names.lookup(receiver))]
    elif isinstance(receiver, ast.Call):
        candidates.append(ctx.flow.called_definition(receiver))
    for node in candidates:
        if isinstance(node, ast.ClassDef) and "cuda" in names.scopes[node].bindings:
            if not does_as_torch(names, ctx.flow, node, "cuda"):
                return node.name
    return None


@CUDA.on("name", "torch.Tensor.cuda", "torch.nn.Module.cuda", node=ast.expr)
def unbound_cuda(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    call = ctx.names.call_of(node)
    if call is not None:
        function = ctx.names.function(call)
        moves = function is not None and function.name in ("to", "cuda", "_apply")
        if moves or len(call.args) != 1 or isinstance(call.args[0], ast.Starred) or call.keywords:
            return Report("an unbound call; write it as a method of its first argument")
        moved = f"{{x}}.to({ctx.code.device(node)})"
        return Rewrite([Replace(call, moved, {"x": call.args[0]})])
    if isinstance(ctx.names.parent(node), ast.Attribute):
        return Report("only looked at")
    given = ctx.names.parent(node)
    given = ctx.names.parent(given) if isinstance(given, ast.keyword) else given
    if isinstance(given, ast.Call) and ctx.names.qualified(given.func) in _LOOKING:
        return Keep("only its name and its documentation are read")
    if not _gets_a_tensor_alone(ctx, node):
        return Report("may be called with a device; write a function that calls `.to`")
    return Rewrite([Replace(node, f"lambda x: x.to({ctx.code.device(node)})")])


_LOOKING = ("functools.wraps", "functools.update_wrapper")
_MAPPING = ("map", "imap", "tree_map", "filter")


def _gets_a_tensor_alone(ctx: Context, function: ast.expr, depth: int = 0) -> bool:
    """Whether whoever calls a function gives it one argument."""
    match ctx.names.parent(function):
        case ast.Call(func=func, args=[one], keywords=[]) as call:
            if func is function:
                return not isinstance(one, ast.Starred)
            partial = ctx.names.qualified(func) == "functools.partial"
            return partial and _gets_a_tensor_alone(ctx, call, depth)
        case ast.Call(func=func, args=[first, over], keywords=[]) if first is function:
            mapping = (dotted(func) or "").rpartition(".")[2] in _MAPPING
            return mapping and not isinstance(over, ast.Starred)
        case ast.IfExp() | ast.BoolOp() as chosen:
            return _gets_a_tensor_alone(ctx, chosen, depth)
        case ast.Assign(targets=[ast.Name() as name]) if depth < 3:
            taken = ctx.project is not None and name.id in ctx.project.taken_names()
            if taken or isinstance(ctx.names.scope_of(name).node, ast.ClassDef):
                return False
            return all(_gets_a_tensor_alone(ctx, use, depth + 1) for use in ctx.names.loads(name))
    return False


@CUDA.on("string", "cuda", node=ast.expr)
def by_name(ctx: Context, found: Construct, node: ast.expr) -> Decision | None:
    """`methodcaller("cuda")`"""
    call = method_caller(ctx.names, node)
    if call is None:
        return None
    named = [k for k in call.keywords if k.arg == "non_blocking"]
    if len(call.args) > 2 or any(k.arg not in ("device", "non_blocking") for k in call.keywords):
        return Report("calls the method cuda(); write it out, or name the method `to`")
    more = "".join(f", non_blocking={ctx.source.code(k.value)}" for k in named)
    to = ctx.code.quoted("to", call)
    text = f"{{function}}({to}, {ctx.code.device(call)}{more})"
    return Rewrite([Replace(call, text, {"function": call.func})])


@IS_CUDA.on("string", "is_cuda")
def is_cuda_by_name(ctx: Context, found: Construct) -> Decision:
    return Report(f"is False on the target; check `{_asks(ctx, found.node).format(x='')}`")


@IS_CUDA.on("method", "is_cuda", node=ast.Attribute)
def is_cuda(ctx: Context, found: Construct, node: ast.Attribute) -> Decision:
    if ctx.names.call_of(node) is not None:
        return Report("is called, so it is not that of a tensor")
    if ctx.flow.is_flag(node):
        return Keep("a flag of the program's own")
    if asks_for_implementation(ctx.names, node):
        return Keep("belongs to CUDA's implementation, which a TPU does not take")
    return Rewrite([Replace(node, _asks(ctx, node), {"x": node.value})])


def _asks(ctx: Context, node: ast.AST) -> str:
    """A test for `{x}` being on the target's device, or on an accelerator if the program chooses
    it."""
    if ctx.api.device_names:
        return is_gpu_or_tpu(ctx, node)
    return f"{{x}}.device.type == {ctx.code.device_string(node, compared=True)}"


@IS_CUDA.on("method", "get_device", node=ast.Attribute)
def get_device(ctx: Context, found: Construct, node: ast.Attribute) -> Decision:
    call = ctx.names.call_of(node)
    assert call is not None
    if is_model(ctx.flow, node.value):
        return Report("PyTorch's models don't have it; the source doesn't show what this one does")
    if not ctx.values.evidence.is_tensor(node.value):
        return Report("this may be a tensor; if it is, use its `.device`")
    parent = ctx.names.parent(call)
    if isinstance(parent, ast.keyword) and parent.arg == "device":
        return Rewrite([Replace(call, "{x}.device", {"x": node.value})])
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        if parent.func.attr == "to" and parent.args[:1] == [call]:
            return Rewrite([Replace(call, "{x}.device", {"x": node.value})])
    return Report("the index of a CUDA device; use `.device` where a device is wanted")
