"""TorchScript: XLA compiles without it."""

import ast
import re
from collections.abc import Iterator

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    Example,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
)
from migrator.rule_api.devices import is_migrated
from migrator.rule_api.training import trains

SCRIPT = Rule(
    code="RUN004",
    name="torchscript",
    summary="TorchScript modules can't be moved to the target, and XLA compiles without it",
    why="""On torchax and torch_xla, a scripted function runs, but a scripted or loaded module can't
be moved to the device. XLA compiles anyway, so the module takes the place of its script, unless the
script is saved or looked into, the module is used beside it, or it computes something else where it
is scripted. Programs that use no device (exports) stay.

On torchax, a module that is moved first and scripted later runs, but not in training with dropout,
and recurrent layers can't be scripted. TorchScript doesn't see which device a tensor is on: a
function that asks is left unscripted, and a module is reported. torch.jit.trace gives a CPU module,
to be saved or shown.

On torch_xla, normalization can't be scripted, and torch.jit.trace would keep the results of
convolutions as constants.""",
    examples=(
        Example(
            """
            import torch
            net = torch.jit.script(net).cuda()
            """,
            after="""
            import torch
            net = net.to("{device}")
            """,
        ),
        Example(
            """
            import torch
            net = torch.jit.script(net).cuda()
            net.save("net.pt")
            """,
            after="""
            import torch
            net = torch.jit.script(net).to("{device}")
            net.save("net.pt")
            """,
            says={2: "cannot be moved once it is scripted"},
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
            net = net.to("{device}").eval()
            """,
        ),
        Example(
            """
            import torch
            net = torch.jit.script(net)
            net.save("net.pt")
            """,
            says={2: "the program uses no device"},
        ),
    ),
)


@SCRIPT.on("name", "torch.jit.ScriptModule")
def script_module(ctx: Context, found: Construct) -> Decision:
    base = ctx.names.parent(found.node)
    if not isinstance(base, ast.ClassDef):
        return Keep("only named")
    if not ctx.file.uses_device:
        return Keep("of a file that uses no device")
    return Report("cannot be moved to the target; derive from torch.nn.Module, XLA compiles")


@SCRIPT.on("name", "torch.jit.script", "torch.jit.trace", "torch.jit.trace_module",
           "torch.jit.load", node=ast.expr)  # fmt: skip
def script(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    if not ctx.file.uses_device and not is_migrated(ctx.names, ctx.flow):
        return Keep("the program uses no device")
    name = found.key.rpartition(".")[2]
    if name == "load":
        return Report("its module cannot be moved to the target; load a state_dict into the class")
    if name.startswith("trace"):
        why = "cannot follow it, or keeps results as constants"
        call_it = "call the module itself, which XLA compiles"
        return Report(f"{ctx.target.name} {why}; {call_it}")
    call = ctx.names.call_of(node)
    if not ctx.api.scripts_devices and (asking := _asking(ctx, node, call)) is not None:
        return asking
    if call is None or (call.args and _is_function(ctx, call)):
        return Keep("a scripted function runs on the target as it is")
    if (module := _module_instead(ctx, call)) is not None:
        return module
    if call.args and not _is_moved(ctx, call) and _is_on_device(ctx, call.args[0], call):
        if not ctx.api.scripts_normalization:
            return Report("normalization cannot be scripted; remove it, XLA compiles by itself")
        if not ctx.api.scripts_dropout and trains(ctx.names.tree):
            return Report("fails in training with dropout; remove it, XLA compiles by itself")
        advice = "no gain: XLA compiles by itself, and recurrent layers fail in it"
        return Keep("of a module that is on the target", advice=advice)
    return Report("cannot be moved once it is scripted; remove it, XLA compiles by itself")


def _is_function(ctx: Context, call: ast.Call) -> bool:
    given = call.args[0]
    defined = ctx.flow.definition(given), _scripted(ctx, given, call)
    return any(isinstance(each, _FUNCTION) for each in defined)


def _module_instead(ctx: Context, call: ast.Call) -> Rewrite | None:
    """The module in place of its script, where nobody can tell one from the other."""
    if len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
        return None
    module, whole = call.args[0], _chain(ctx, call)
    statement = ctx.names.statement(call)
    while isinstance(above := ctx.names.parent(whole), ast.IfExp) and above.test is not whole:
        whole = above  # `script(net) if args.script else net`
    match statement:
        case ast.Assign(targets=[target], value=value) if value is whole:
            pass
        case _ if isinstance(whole, ast.Call) and whole.func is call:
            target = call  # the script is called where it is made
        case _:
            return None
    if _is_script_needed(ctx, {ast.unparse(target), ast.unparse(call)}):
        return None
    same = ast.unparse(target) == ast.unparse(module)
    if not same and _is_used_beside(ctx, module, call):
        return None
    if same and isinstance(statement, ast.Assign) and statement.value is call:
        return Rewrite([Delete(statement)], note=_COMPILES)
    return Rewrite([Replace(call, "{module}", {"module": module})], note=_COMPILES)


_COMPILES = "XLA compiles the module itself"
# What only scripts have, and the functions that take them.
_OF_SCRIPTS = frozenset({
    "_c", "_save_for_lite_interpreter", "code", "code_with_constants", "define", "graph",
    "graph_for", "inlined_graph", "original_name", "save", "save_to_buffer",
})  # fmt: skip
_NEEDS_SCRIPTS = re.compile(
    r"torch\.(?:jit\.(?:save|freeze|optimize_for_inference|run_frozen_optimizations|is_scripting"
    r"|\w*Script\w+)|onnx\.|utils\.mobile_optimizer\.|_C\.)"
    r"|torchvision\.models\.detection"  # these return something else where they are scripted
)


def _chain(ctx: Context, node: ast.expr) -> ast.expr:
    """The whole expression of methods and calls on one: `script(net).eval().cuda()`."""
    above = ctx.names.parent(node)
    while (isinstance(above, ast.Attribute) and above.attr not in _OF_SCRIPTS) or (
        isinstance(above, ast.Call) and above.func is node
    ):
        node, above = above, ctx.names.parent(above)
    return node


def _is_script_needed(ctx: Context, texts: set[str]) -> bool:
    """Whether the file saves or inspects scripts, or asks whether it is scripted."""
    if any(_NEEDS_SCRIPTS.match(name) for _, name in ctx.names.meant):
        return True
    last = {text.rpartition(".")[2] for text in texts}
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in _OF_SCRIPTS
        and ast.unparse(node.value).rpartition(".")[2] in last
        for node in ctx.names.order
    )


def _is_used_beside(ctx: Context, module: ast.expr, call: ast.Call) -> bool:
    """Whether a module that is scripted under another name is used anywhere after that, so that
    one may be in training and the other not."""
    if isinstance(module, ast.Call):
        return False
    text = ast.unparse(module)
    inside = set(ast.walk(module))
    around = ctx.names.function(call)
    return any(
        isinstance(node, type(module)) and node not in inside and ast.unparse(node) == text
        and (node.lineno > call.lineno or ctx.names.function(node) is not around
             or _is_in_loop(ctx, call))
        for node in ctx.names.order
    )  # fmt: skip


def _is_in_loop(ctx: Context, node: ast.AST) -> bool:
    return any(isinstance(each, ast.For | ast.While) for each in ctx.names.ancestors(node))


_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_ASK = ("is_cuda", "is_cpu", "device", "get_device")


def _asking(ctx: Context, script: ast.expr, call: ast.Call | None) -> Decision | None:
    """What becomes of a script that looks at devices, where TorchScript sees others."""
    above = ctx.names.parent(script)
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
    if (module := _module_instead(ctx, call)) is not None:
        return module
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
