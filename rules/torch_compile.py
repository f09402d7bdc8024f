"""torch.compile, and a model's own compile."""

import ast

from migrator.rule_api import (
    RUNTIME,
    Construct,
    Context,
    Decision,
    Delete,
    EditCall,
    Example,
    Keep,
    Kind,
    Replace,
    Report,
    Rewrite,
    Rule,
    argument,
    dotted,
)
from migrator.rule_api.project import program_file
from migrator.rule_api.python import FUNCTIONS

COMPILE = Rule(
    code="RUN002",
    name="torch-compile",
    summary="torch.compile makes GPU kernels; XLA compiles for the target by itself",
    why="""Inductor, the default back end, writes Triton kernels for GPUs. Without it the same
function runs, compiled by XLA. A compiled model's parameters have other names, `_orig_mod.weight`:
where a program may use them, as checkpoints do, the runtime's `compile` keeps them, so that files
of a GPU load, and new ones load there.""",
    examples=(
        Example(
            """
            import torch
            model = torch.compile(model, mode="max-autotune")
            """,
            after="import torch\n",
        ),
        Example(
            """
            import torch
            returned = torch.compile(net) if args.compile else net
            """,
            after="""
            import torch
            returned = net
            """,
        ),
        Example(
            """
            import torch

            @torch.compile
            def f(x):
                return x
            """,
            after="""
            import torch

            def f(x):
                return x
            """,
        ),
        Example(
            """
            import torch
            net = torch.compile(model, mode="max-autotune")
            net.load_state_dict(state)
            """,
            after="""
            import torch
            import tpu_runtime
            net = tpu_runtime.compile(model)
            net.load_state_dict(state)
            """,
        ),
        Example(
            """
            from torch import nn
            model = nn.Linear(2, 2)
            model.compile(mode="max-autotune")
            """,
            after="""
            from torch import nn
            model = nn.Linear(2, 2)
            """,
        ),
        Example(
            """
            import torch
            fast = list(map(torch.compile, models))
            """,
            says={2: "torch.compile itself is passed on"},
        ),
        Example(
            """
            import torch
            parser.compile(mode="fast")
            """,
            says={2: "doesn't show whether this is a model"},
        ),
    ),
)


@COMPILE.on("name", "torch.compile", node=ast.expr)
def compile_(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    if ctx.target.asks_runtime:
        return Rewrite([Replace(node, f"{RUNTIME}.compile")])
    call = ctx.names.call_of(node)
    if ctx.api.compiles:
        return _compiled(call)
    decorated = ctx.names.parent(call or node)
    if isinstance(decorated, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        if (call or node) in decorated.decorator_list:
            return Rewrite([Delete(call or node)])
    model = argument(call, 0, "model") if call is not None else None
    if call is None or model is None:
        return Report("torch.compile itself is passed on; call the function without it")
    matter, word = _names_matter(ctx, call, model), ctx.code.runtime("compile")
    if matter and word is not None:
        edit = Replace(call, f"{word.code}({{model}})", {"model": model})
        return Rewrite([edit], word.requires, note=_SAME_NAMES)
    note = _OTHER_NAMES if matter else ""
    whole: ast.expr = call
    match ctx.names.parent(call):
        case ast.IfExp(test=test, body=body, orelse=orelse) as choice if not any(
            isinstance(n, ast.Call | ast.Await | ast.NamedExpr) for n in ast.walk(test)
        ):
            if ast.unparse(orelse if body is call else body) == ast.unparse(model):
                whole = choice  # between the model and the model
    statement = ctx.names.statement(call)
    if isinstance(statement, ast.Assign) and statement.value is whole:
        same = ast.unparse(statement.targets[0]) == ast.unparse(model)
        if same and len(statement.targets) == 1:
            return Rewrite([Delete(statement)], note=note)
    return Rewrite([Replace(whole, "{model}", {"model": model})], note=note)


_SAME_NAMES = (
    "checkpoints have the names that torch.compile gives them, `_orig_mod.…`, as on a GPU: old "
    "ones load, and new ones are read there"
)
_OTHER_NAMES = (
    "checkpoints of a compiled model have names like `_orig_mod.weight`, which new ones lack: "
    "take these letters off when you load an old one"
)
# What shows or takes the names of parameters, which begin with `_orig_mod.` in a compiled model.
_NAMING = ("named_buffers", "named_modules", "named_parameters", "get_parameter", "_orig_mod")


def _names_matter(ctx: Context, call: ast.Call, model: ast.expr) -> bool:
    """Whether the program may use the names of a compiled model's parameters."""
    bound = ctx.names.lookup(model) if isinstance(model, ast.Name) else []
    if isinstance(model, ast.Lambda) or any(isinstance(b.node, FUNCTIONS) for b in bound):
        return False
    statement = ctx.names.statement(call)
    same = dotted(model)
    if isinstance(statement, ast.Assign) and same in map(dotted, statement.targets):
        same = None  # from here on, that name is the compiled model's
    for attribute, uses in ctx.names.by_attribute.items():
        if attribute in _NAMING or attribute.endswith("state_dict"):
            for use in uses:
                other = ctx.flow.kind(use.value) & _NO_MODELS
                if not other and (same is None or dotted(use.value) != same):
                    return True
    here = program_file(ctx)
    return any(file is not here for file in here.files("state_dict", *_NAMING))


_NO_MODELS = Kind.OPTIMIZER | Kind.SCHEDULER | Kind.SCALER
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@COMPILE.on("method", "compile", node=ast.Attribute)
def compile_model(ctx: Context, found: Construct, node: ast.Attribute) -> Decision:
    """`model.compile(...)` compiles the model in place."""
    call = ctx.names.call_of(node)
    assert call is not None
    told = {keyword.arg: ast.unparse(keyword.value).strip("'") for keyword in call.keywords}
    if not (
        ctx.flow.kind(node.value) & Kind.MODULE
        or "fullgraph" in told
        or told.get("mode") in _MODES
        or told.get("backend") == "inductor"
    ):
        return Report("the source doesn't show whether this is a model; a model's is for GPUs only")
    if ctx.api.compiles and not ctx.target.asks_runtime:
        return _compiled(call)
    statement = ctx.names.statement(node)
    if ctx.target.asks_runtime or not (isinstance(statement, ast.Expr) and statement.value is call):
        return Report("compiles the model for a GPU; call it there only, XLA compiles by itself")
    return Rewrite([Delete(statement)])


def _compiled(call: ast.Call | None) -> Decision:
    """torch.compile stays, without options that only GPU back ends accept."""
    if call is None:
        return Keep("compiles for the device that its inputs are on")
    if any(k.arg is None for k in call.keywords):
        return Report("its arguments are unpacked; mode, options and backend are for GPUs only")
    drop = [k for k in call.keywords if k.arg in ("mode", "options", "backend", "dynamic")]
    if not drop:
        return Keep("compiles for the device that its inputs are on")
    note = f"the TPU's back end doesn't accept {', '.join(str(k.arg) for k in drop)}"
    return Rewrite([EditCall(call, drop=drop)], note=note)


@COMPILE.on("name", "torch._dynamo.optimize")
def optimize(ctx: Context, found: Construct) -> Decision:
    return Report("torch.compile under its first name; call the function without it")
