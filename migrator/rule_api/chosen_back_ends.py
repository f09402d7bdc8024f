"""The back end of a process group: which one the target has, and where the program chooses it."""

import ast

from migrator.rule_api import (
    Context,
    Decision,
    EditCall,
    Keep,
    Replace,
    Rewrite,
    argument,
    dotted,
)
from migrator.rule_api.portable_ranks import is_of_device, of_device
from migrator.rule_api.project import ProgramFile
from migrator.rule_api.python import said_name


def back_end(ctx: Context, call: ast.Call, group: str) -> str:
    """The target's back end, or the name that gets it just before."""
    words, backend = ctx.api.devices, argument(call, 0, "backend")
    if words is not None and words.back_end is not None:
        return of_device(ctx, words.back_end)
    if backend is None or assigned(ctx, call, group) is None:
        return ctx.code.quoted(group, call)
    return ctx.source.code(backend)


def assigned(ctx: Context, call: ast.Call, group: str) -> ast.Constant | None:
    """The string, NCCL's or the target's, that is assigned for this call only."""
    names, backend = ctx.names, argument(call, 0, "backend")
    name, function = said_name(backend) if backend is not None else "", names.function(call)
    if not name or function is None:
        return None
    files = ProgramFile(names, ctx.flow, ctx.project).files(name, name.replace("_", "-"))
    said = [node for file in files for node in file.names.order if _says(node, name)]
    if len(said) != 2:  # where it is assigned, and here
        return None
    for statement in function.body:
        match statement:
            case ast.Assign(targets=[target], value=ast.Constant(value=value) as text):
                if said_name(target) == name and statement.lineno < call.lineno:
                    return text if value in ("nccl", group) else None
    return None


def _says(node: ast.AST, name: str) -> bool:
    """Whether a node is a variable, attribute, parameter, argument or key of that name."""
    match node:
        case ast.Constant(value=str(text)):
            return text.strip("-").replace("-", "_") == name
        case ast.Name(id=said) | ast.Attribute(attr=said) | ast.arg(arg=said):
            return said == name
        case ast.keyword(arg=said):
            return said == name and said != "backend"
    return False


def is_of_one(call: ast.Call) -> bool:
    """`init_process_group(world_size=1, rank=0, store=dist.HashStore())`: whatever a launcher does,
    each process is alone."""
    size, store = argument(call, 3, "world_size"), argument(call, 5, "store")
    return store is not None and isinstance(size, ast.Constant) and size.value == 1


def _by_device(ctx: Context, call: ast.Call, backend: ast.expr, word: str) -> str | None:
    """`"cpu:gloo,cuda:nccl"`, with the device's own back end in place of NCCL."""
    devices = ctx.api.devices
    if devices is None or devices.back_end is None or not isinstance(backend, ast.Constant):
        return None
    parts = str(backend.value).split(",")
    if ":" not in parts[0]:
        return None
    device = f"{{{ctx.code.device_string(call)}}}:{{{word}}}"
    kept = [device if part.strip() == "cuda:nccl" else part.strip() for part in parts]
    return "f" + ctx.code.quoted(",".join(kept), backend)


def _uses_gpus(ctx: Context) -> bool:
    """Whether the file has code for GPUs beside its processes."""
    return any("cuda" in each.key for each in ctx.constructs)


def _asks_torch(ctx: Context, backend: ast.expr) -> bool:
    """Whether the program's own function gives a back end, by torch's table of devices."""
    name = dotted(backend)
    values = [backend]
    if name is not None:
        assigned_to = (node for node in ctx.names.order if isinstance(node, ast.Assign))
        values = [n.value for n in assigned_to if any(dotted(t) == name for t in n.targets)]
    return bool(values) and all(
        isinstance(value, ast.Call) and _reads_table(ctx, value) for value in values
    )


def _reads_table(ctx: Context, call: ast.Call) -> bool:
    made: ast.AST | None = ctx.flow.called_definition(call)
    name = ctx.names.qualified(call.func)
    if made is None and name is not None and ctx.project is not None:
        found = ctx.project.definition(name)
        made = found[2] if found is not None else None
    asked = ("default_device_backend_map", "get_default_backend_for_device")
    return made is not None and any(
        isinstance(node, ast.Attribute) and node.attr in asked for node in ast.walk(made)
    )


def other_back_end(ctx: Context, call: ast.Call, group: str) -> Decision:
    """The same group with another back end; a rank's device is not chosen by it."""
    backend, word = argument(call, 0, "backend"), back_end(ctx, call, group)
    gone = [k for k in call.keywords if k.arg in ("device_id", "pg_options")]
    if not gone and backend is not None and is_of_device(ctx, backend):
        return Keep("the back end of the device")
    if backend is not None and ctx.api.devices is not None and ctx.api.devices.native:
        if _asks_torch(ctx, backend):
            kept = Keep("the program asks torch for the back end of its device")
            return Rewrite([EditCall(call, drop=gone)]) if gone else kept
        if ast.unparse(backend) == "'gloo'" and not _uses_gpus(ctx):
            return Keep("exchanges tensors of the CPU")
        word = _by_device(ctx, call, backend, word) or word
    named = backend if isinstance(backend, ast.Constant) else assigned(ctx, call, group)
    if named is not None and named.value == group and not gone:
        return Keep("the target's back end")
    if call.args:
        return Rewrite([EditCall(call, drop=[*gone, call.args[0]], first=word)])
    if backend is None:
        for options in (k.value for k in call.keywords if k.arg is None):  # perhaps with one
            if ast.unparse(options).endswith("device_id=None)"):
                return Keep("the target's back end")
            text = f"dict({{options}}, backend={word}, device_id=None)"
            return Rewrite([Replace(options, text, {"options": options})])
        return Rewrite([EditCall(call, drop=gone, first=word)])
    return Rewrite([EditCall(call, drop=gone, put={"backend": word})])
