"""Modes of execution: inference mode, TorchScript, torch.accelerator."""

import ast
from collections.abc import Iterator

from migrator.analysis.devices.choices import with_older_torch
from migrator.analysis.devices.device_strings import is_migrated
from migrator.analysis.syntax.nodes import argument
from migrator.analysis.training.loops import trains
from migrator.analysis.values.kinds import ANY_DEVICE, Kind
from migrator.codes import Family
from migrator.construct import Construct
from migrator.edits import Delete, Replace, Unwrap
from migrator.rule import Context, Decision, Example, Keep, Report, Rewrite, Rule
from migrator.targets import MIRRORED

from .cuda_api import counterpart, removal
from .device import device_object_word
from .on_gpu import not_on_tpu

FAMILY = Family("RUN", "Modes of execution", 60)

INFERENCE = Rule(
    code="RUN001",
    name="inference-mode",
    summary="inference_mode fails on the targets; no_grad computes the same",
    why="""Inference tensors have no version counter, which the targets need: torch_xla raises
"Cannot set version_counter for inference tensor", torchax a TypeError, and torch_tpu's compiler
refuses them. `no_grad` gives the same numbers.""",
    examples=(
        Example(
            """
            import torch

            @torch.inference_mode()
            def run(x):
                return model(x)
            """,
            after="""
            import torch

            @torch.no_grad()
            def run(x):
                return model(x)
            """,
        ),
    ),
)

ACCELERATOR = Rule(
    code="RUN003",
    name="torch-accelerator",
    summary="torch.accelerator does not know the target; the target's own functions do the same",
    why="""Device-agnostic code asks `torch.accelerator`, which finds no accelerator with torchax or
torch_xla, so the script would silently run on the CPU.""",
    examples=(
        Example(
            """
            import torch
            device = torch.accelerator.current_accelerator()
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
            torch.accelerator.synchronize()
            """,
            after="""
            import torch
            import tpu_runtime
            tpu_runtime.synchronize()
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                torch_xla.sync(wait=True)
                """
            },
        ),
    ),
)

SCRIPT = Rule(
    code="RUN004",
    name="torchscript",
    summary="TorchScript modules can't be moved to the target, and XLA compiles without it",
    why="""On torchax and torch_xla, a scripted function runs, but a scripted or loaded module can't
be moved to the device. Programs that use no device (exports) stay.

On torchax, a module that is moved first and scripted later runs, but not in training with dropout,
and recurrent layers can't be scripted. TorchScript doesn't see which device a tensor is on: a
function that asks for it is left unscripted, and a module is reported. torch.jit.trace gives a CPU
module, to be saved or shown.

On torch_xla, normalization can't be scripted. torch.jit.trace doesn't see convolutions, and would
keep their results as constants.""",
    examples=(
        Example(
            """
            import torch
            net = torch.jit.script(net).cuda()
            """,
            after="""
            import torch
            net = torch.jit.script(net).to("{device}")
            """,
        ),
        Example(
            """
            import torch


            @torch.jit.script
            def f(x):
                return x
            """,
        ),
        Example(
            """
            import torch


            @torch.jit.script
            def f(x):
                return x * 2 if x.is_cuda else x
            """,
            after="""
            import torch


            def f(x):
                return x * 2 if x.device.type == "{device}" else x
            """,
            except_on={
                "torch_xla": """
                import torch


                @torch.jit.script
                def f(x):
                    return x * 2 if x.device.type == "xla" else x
                """
            },
        ),
        Example(
            """
            import torch
            net = torch.jit.script(net.cuda().eval())
            """,
            after="""
            import torch
            net = torch.jit.script(net.to("{device}").eval())
            """,
        ),
    ),
)

_DELETED = ("set_device_index", "set_device_idx", "empty_cache", "set_stream",
            "reset_accumulated_memory_stats")  # fmt: skip
_RENAMED = {"current_device_index": "current_device", "current_device_idx": "current_device"}


@INFERENCE.on("name", "torch.inference_mode")
def inference_mode(ctx: Context, found: Construct) -> Decision:
    node = found.node
    assert isinstance(node, ast.expr)
    torch, requires = ctx.torch()
    call = ctx.names.call_of(node)
    if call is None:
        return Rewrite([Replace(node, f"{torch}.no_grad")], requires)
    mode = argument(call, 0, "mode")
    is_on = isinstance(mode, ast.Constant) and mode.value is True
    if (mode is None or is_on) and (double := _beside_no_grad(ctx, call)) is not None:
        return double
    if mode is None:
        return Rewrite([Replace(node, f"{torch}.no_grad")], requires)
    if is_on:
        return Rewrite([Replace(call, f"{torch}.no_grad()")], requires)
    return Report("inference_mode with a variable mode; use torch.set_grad_enabled(not mode)")


def _beside_no_grad(ctx: Context, call: ast.Call) -> Rewrite | None:
    """`with torch.no_grad(), torch.inference_mode():` turns gradients off twice."""
    item = ctx.parent(call)
    block = ctx.parent(item) if isinstance(item, ast.withitem) and not item.optional_vars else None
    if not isinstance(block, ast.With | ast.AsyncWith):
        return None
    others = [each.context_expr for each in block.items if each is not item]
    same = any(
        isinstance(each, ast.Call) and ctx.names.qualified(each.func) == "torch.no_grad"
        for each in others
    )
    return Rewrite([Unwrap(block, [item])]) if same and isinstance(item, ast.withitem) else None


@SCRIPT.on("name", "torch.jit.ScriptModule")
def script_module(ctx: Context, found: Construct) -> Decision:
    base = ctx.parent(found.node)
    if not isinstance(base, ast.ClassDef):
        return Keep("only named")
    if not ctx.uses_device:
        return Keep("of a file that uses no device")
    return Report("cannot be moved to the target; derive from torch.nn.Module, XLA compiles")


@SCRIPT.on("name", "torch.jit.script", "torch.jit.trace", "torch.jit.trace_module",
           "torch.jit.load")  # fmt: skip
def script(ctx: Context, found: Construct) -> Decision:
    assert isinstance(found.node, ast.expr)
    if not ctx.uses_device and not is_migrated(ctx.names, ctx.flow):
        return Keep("the program uses no device")
    name = found.key.rpartition(".")[2]
    if name == "load":
        return Report("its module cannot be moved to the target; load a state_dict into the class")
    if name.startswith("trace"):
        why = "cannot follow it, or keeps results as constants"
        call_it = "call the module itself, which XLA compiles"
        return Report(f"{ctx.target.name} {why}; {call_it}")
    call = ctx.names.call_of(found.node)
    if not ctx.words.scripts_devices and (asking := _asking(ctx, found.node, call)) is not None:
        return asking
    if call is None or (call.args and isinstance(ctx.flow.definition(call.args[0]), _FUNCTION)):
        return Keep("a scripted function runs on the target as it is")
    if call.args and not _is_moved(ctx, call) and _is_on_device(ctx, call.args[0], call):
        if not ctx.words.scripts_normalization:
            return Report("normalization cannot be scripted; remove it, XLA compiles by itself")
        if not ctx.words.scripts_dropout and trains(ctx.names.tree):
            return Report("fails in training with dropout; remove it, XLA compiles by itself")
        advice = "no gain: XLA compiles by itself, and recurrent layers fail in it"
        return Keep("of a module that is on the target", advice=advice)
    return Report("cannot be moved once it is scripted; remove it, XLA compiles by itself")


_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_ASK = ("is_cuda", "is_cpu", "device", "get_device")


def _asking(ctx: Context, script: ast.expr, call: ast.Call | None) -> Decision | None:
    """What becomes of a script that looks at devices, where TorchScript sees others."""
    above = ctx.parent(script)
    if isinstance(above, _FUNCTION) and script in above.decorator_list:
        return Rewrite([Delete(script)], note=_UNSEEN) if _asks(ctx, above) else None
    if call is None or not call.args:
        return None
    function = _scripted(ctx, call.args[0], call)
    if function is not None:
        if not _asks(ctx, function):
            return None
        statement = ctx.names.statement(call)
        if isinstance(statement, ast.Assign) and statement.value is call:
            if [ast.unparse(each) for each in statement.targets] == [ast.unparse(call.args[0])]:
                return Rewrite([Delete(statement)], note=_UNSEEN)
        return Rewrite([Replace(call, "{f}", {"f": call.args[0]})], note=_UNSEEN)
    if any(_asks(ctx, model) for model in _models(ctx, call.args[0])):
        return Report(f"{_UNSEEN}; remove it, XLA compiles by itself")
    return None


def _scripted(ctx: Context, given: ast.expr, call: ast.Call) -> ast.AST | None:
    """The function that is scripted, also under its own name: `f = torch.jit.script(f)`."""
    bound = ctx.names.lookup(given) if isinstance(given, ast.Name) else []
    defined = [b.node for b in bound if isinstance(b.node, _FUNCTION)]
    if len(defined) == 1 and all(b.node is defined[0] or b.value is call for b in bound):
        return defined[0]
    return None


_UNSEEN = "TorchScript doesn't see the target's device, which this asks for"


def _asks(ctx: Context, definition: ast.AST, depth: int = 0) -> bool:
    """Whether a function or a class, or a function that it calls, has to do with devices."""
    inside = set(ast.walk(definition))
    if any(c.node in inside and ctx.framework.uses_device(c) for c in ctx.constructs):
        return True
    for node in inside:
        if isinstance(node, ast.Attribute) and node.attr in _ASK:
            return True
        called = ctx.flow.definition(node.func) if isinstance(node, ast.Call) else None
        if called is not None and called is not definition and depth < 4:
            if _asks(ctx, called, depth + 1):
                return True
    return False


def _models(
    ctx: Context, model: ast.expr, seen: frozenset[ast.expr] = frozenset()
) -> Iterator[ast.AST]:
    """The classes of this file that a model and its parts may be of."""
    for node in ast.walk(model):
        if isinstance(node, ast.Call):
            made = ctx.flow.definition(node.func)
            if isinstance(made, ast.ClassDef):
                yield made
        elif isinstance(node, ast.Name):
            for binding in ctx.names.lookup(node):
                if binding.kind == "assign" and binding.value and binding.value not in seen:
                    yield from _models(ctx, binding.value, seen | {binding.value})


def _is_on_device(ctx: Context, model: ast.expr, call: ast.Call) -> bool:
    """Whether a model is moved to the device, in place or above the call in the same function."""
    if any(_is_move(ctx, node) for node in ast.walk(model)):
        return True
    function, text = ctx.names.function(call), ast.unparse(model).removesuffix(".eval()")
    for move in ctx.names.order:
        if not _is_move(ctx, move) or ctx.names.function(move) is not function:
            continue
        assert isinstance(move, ast.Call) and isinstance(move.func, ast.Attribute)
        names = [move.func.value]
        statement = ctx.names.statement(move)
        if isinstance(statement, ast.Assign) and statement.value is move:
            names += statement.targets
        if move.lineno < call.lineno and text in map(ast.unparse, names):
            return True
    return False


def _is_moved(ctx: Context, scripted: ast.Call) -> bool:
    """Whether the scripted model is moved anywhere after that."""
    statement = ctx.names.statement(scripted)
    names = statement.targets if isinstance(statement, ast.Assign) else []
    texts = {ast.unparse(scripted), *map(ast.unparse, names)}
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("to", "cuda", "cpu")
        and ast.unparse(node.func.value) in texts
        and node.lineno >= scripted.lineno
        for node in ctx.names.order
    )


def _is_move(ctx: Context, node: ast.AST) -> bool:
    """`.cuda()`, or `.to(…)` of a device that is not the CPU."""
    match node:
        case ast.Call(func=ast.Attribute(attr="cuda")):
            return True
        case ast.Call(func=ast.Attribute(attr="to"), args=[place, *_]):
            if isinstance(place, ast.Constant) and isinstance(place.value, str):
                return not place.value.startswith(("cpu", "meta"))
            return ctx.flow.is_device(place) and not ctx.flow.kind(place) & Kind.CPU
    return False


@ACCELERATOR.on("name", "torch.accelerator*")
def accelerator(ctx: Context, found: Construct) -> Decision:
    node = found.node
    assert isinstance(node, ast.expr)
    if ctx.words.device_names:
        if found.key.endswith((".set_device_index", ".set_device_idx")):
            return not_on_tpu(ctx, node)
        return Keep("knows the target's device")
    name = found.key.removeprefix("torch.accelerator").lstrip(".")
    call = ctx.names.call_of(node)
    if name == "current_accelerator" and call is not None:
        return _current(ctx, call)
    if name in _DELETED:
        return removal(ctx, found)
    if name == "memory.empty_cache":
        return removal(ctx, found)
    name = _RENAMED.get(name, name).removeprefix("memory.")
    if name in MIRRORED:
        return counterpart(ctx, node, name)
    if not name and isinstance(ctx.parent(node), ast.Call):
        return Keep("only looked at")
    return Report(f"torch.accelerator.{name} does not know the target")


def _current(ctx: Context, call: ast.Call) -> Decision:
    """`current_accelerator()`, also as `….type` and `… if … else …`, `… or torch.device("cpu")`."""
    parent = ctx.parent(call)
    if isinstance(parent, ast.Attribute) and parent.attr == "type":
        whole = _without_older_torch(ctx, parent)
        return Rewrite([Replace(whole, ctx.device_string(call))])
    word = device_object_word(ctx, call)
    return Rewrite([Replace(_without_older_torch(ctx, call), word.code)], word.requires)


def _without_older_torch(ctx: Context, device: ast.expr) -> ast.expr:
    """The choice between a device and a fallback for torch versions without `torch.accelerator`."""
    whole = with_older_torch(ctx.names, device)
    is_device = isinstance(whole, ast.IfExp) and (
        ctx.flow.kind(whole.orelse) & (ANY_DEVICE | Kind.CPU)
    )
    return whole if is_device and ctx.effects.none(whole) else device
