"""Pinned memory, and copies that do not block."""

import ast

from migrator.rule_api import (
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
from migrator.rule_api.gpu_only_code import asks_for_gpu, behind_question, gpu_question
from migrator.rule_api.python import Loader

PIN = Rule(
    code="MOV004",
    name="pinned-memory",
    summary="pinned memory exists for CUDA only",
    why="""`pin_memory=True` raises an error on torchax and torch_xla, and a TPU has no use for it.
The argument is removed. In a dictionary of options it becomes False, unless that is only written as
text (`json.dump`), also by all callers of the function that returns it, or in a file without torch;
and in calls of the program's own functions and classes that pass their `**kwargs` on to a loader.
""",
    examples=(
        Example(
            """
            from torch.utils.data import DataLoader
            loader = DataLoader(data, batch_size=4, pin_memory=True, num_workers=2)
            """,
            after="""
            from torch.utils.data import DataLoader
            loader = DataLoader(data, batch_size=4, num_workers=2)
            """,
        ),
        Example(
            """
            import torch
            kwargs = {"num_workers": 1, "pin_memory": True}
            """,
            after="""
            import torch
            kwargs = {"num_workers": 1, "pin_memory": False}
            """,
        ),
        Example(
            """
            import json
            options = {"batch_size": 32, "pin_memory": True}
            json.dump(options, open("options.json", "w"))
            """,
            says={2: "goes to a file, and to no loader"},
        ),
        Example(
            """
            import torch
            loader = make_loader(data, pin_memory=True)
            """,
            says={2: "what make_loader pins"},
        ),
    ),
)
NON_BLOCKING = Rule(
    code="MOV005",
    name="non-blocking",
    summary="non_blocking stays, and changes nothing on a TPU",
    why="Transfers to the device are asynchronous anyway, so the argument stays.",
    examples=(
        Example("x = x.to(device, non_blocking=True)\n"),
        Example(
            """
            import torch
            x.record_stream(stream)
            """,
            says={2: "for CUDA's caching allocator"},
        ),
    ),
)


@PIN.on("keyword", "pin_memory", "pin_memory_device")
def pin_memory(ctx: Context, found: Construct) -> Decision:
    node = found.node
    if isinstance(node, ast.keyword):
        call = ctx.names.parent(node)
        if not isinstance(call, ast.Call):
            return Report("pinned memory is an argument of a class; a TPU has no use for it")
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            return Keep("names an option")
        callee = call.func
        if ctx.names.qualified(callee) == "functools.partial" and call.args:
            callee = call.args[0]
        is_options = (dotted(callee) or "").rpartition(".")[2] in _OPTIONS
        loader = Loader.PASSES if is_options else ctx.values.evidence.loads(callee)
        if loader is Loader.OWN:
            return Keep("passed on within the program, and handled where it is used")
        if loader is Loader.UNKNOWN and _is_false(ctx, node.value):
            return Keep("false on a TPU", leaves=[node.value])
        if loader is Loader.UNKNOWN:
            return Report(
                f"the source doesn't show what {dotted(callee) or 'the call'} pins; "
                "remove it if it is host memory for a GPU"
            )
        unpins = loader is Loader.PASSES or callee is not call.func
        if is_options and not ctx.values.evidence.of_torch:
            return _A_SETTING
        if unpins or (ctx.target.portable and found.key == "pin_memory"):
            return _unpinned(ctx, found.key, node.value)
        pinned = [k for k in call.keywords if k.arg in ("pin_memory", "pin_memory_device")]
        return Rewrite([EditCall(call, drop=pinned)])
    if isinstance(node, ast.Assign):
        if all(_is_only_written(ctx, target) for target in node.targets):
            return Keep("goes to a file, and to no loader")
        if not ctx.values.evidence.of_torch:
            return _A_SETTING
        return _unpinned(ctx, found.key, node.value)
    parent = ctx.names.parent(node)
    assert isinstance(parent, ast.Dict)
    if _is_only_written(ctx, parent):
        return Keep("goes to a file, and to no loader")
    if not ctx.values.evidence.of_torch:
        return _A_SETTING
    index = parent.keys.index(node)  # type: ignore[arg-type]
    return _unpinned(ctx, found.key, parent.values[index])


# A loader of PyTorch pins nothing without CUDA, and warns.
_A_SETTING = Keep("a setting, in a file without torch; a loader pins nothing without CUDA")


def _is_false(ctx: Context, value: ast.expr) -> bool:
    """`device.type == "cuda"`, as long as it stays."""
    match value:
        case ast.Compare(left=ast.Attribute(attr="type"), ops=[ast.Eq()],
                         comparators=[ast.Constant(value="cuda")]):  # fmt: skip
            return not ctx.target.portable and not ctx.api.device_names
    return False


_WRITERS = ("json.dump", "json.dumps", "print", "pprint.pprint", "toml.dump", "toml.dumps",
            "yaml.dump", "yaml.safe_dump")  # fmt: skip


def _is_only_written(ctx: Context, options: ast.expr, depth: int = 0) -> bool:
    """Whether all uses of a dictionary of options write it as text."""
    if depth > 8:
        return False
    if isinstance(options, ast.Subscript):  # an item that is assigned to
        owner = _owner(options)
        return isinstance(owner, ast.Name) and _is_only_written_as(ctx, owner, depth)
    match above := ctx.names.parent(options):
        case ast.Call(func=callee, args=given):
            name = ctx.names.qualified(callee) or dotted(callee)
            return options in given[:1] and name in _WRITERS
        case ast.Dict() | ast.List() | ast.Tuple():
            return _is_only_written(ctx, above, depth + 1)
        case ast.Assign(targets=[ast.Name() as name]):
            return _is_only_written_as(ctx, name, depth)
        case ast.Assign(targets=[ast.Subscript() as item]):  # all["loader"] = {…}
            return _is_only_written(ctx, item, depth + 1)
        case ast.Return():
            return _is_only_written_by_callers(ctx, options, depth)
    return False


def _is_only_written_by_callers(ctx: Context, returned: ast.expr, depth: int) -> bool:
    """Whether all that call a plain function of this file write what it returns as text."""
    function = ctx.names.function(returned)
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return False
    scope = ctx.names.scope_of(function)
    if isinstance(scope.node, ast.ClassDef) or _is_taken(ctx, function, function.name):
        return False
    calls = [ctx.names.call_of(use) for use in ctx.names.uses(function.name, scope)]
    return bool(calls) and all(c is not None and _is_only_written(ctx, c, depth + 1) for c in calls)


def _is_taken(ctx: Context, node: ast.AST, name: str) -> bool:
    """Whether another file may import a name that is bound by a node."""
    at_top = ctx.names.scope_of(node) is ctx.names.top
    return at_top and ctx.project is not None and name in ctx.project.taken_names()


def _is_only_written_as(ctx: Context, name: ast.Name, depth: int) -> bool:
    scope = ctx.names.scope_of(name)
    if _is_taken(ctx, name, name.id):
        return False
    bound = ctx.names.lookup(name)
    if len(bound) != 1 or bound[0].kind != "assign":
        return False
    uses = [*ctx.names.uses(name.id, scope)]
    written = [use for use in uses if not (_is_stored_to(ctx, use) or _is_read(ctx, use))]
    return bool(written) and all(_is_only_written(ctx, use, depth + 1) for use in written)


def _is_stored_to(ctx: Context, use: ast.Name) -> bool:
    above = ctx.names.parent(use)
    while isinstance(above, ast.Subscript) and isinstance(above.ctx, ast.Load):
        above = ctx.names.parent(above)
    return isinstance(above, ast.Subscript) and isinstance(above.ctx, ast.Store)


def _is_read(ctx: Context, use: ast.Name) -> bool:
    """Whether one item is read that is a number or a text, or goes back: `d["lr"] * 2`."""
    match above := ctx.names.parent(use):
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            item: ast.AST | None = above
        case ast.Attribute(attr="get"):
            item = ctx.names.call_of(above)
            given = item.args if isinstance(item, ast.Call) else []
            key = str(given[0].value) if given and isinstance(given[0], ast.Constant) else ""
        case _:
            return False
    if not isinstance(item, ast.expr) or not key:
        return False
    statement = ctx.names.statement(item)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    owners = (_owner(each) for each in targets if isinstance(each, ast.Subscript))
    if any(isinstance(owner, ast.Name) and owner.id == use.id for owner in owners):
        return True
    return "pin_memory" not in key and isinstance(ctx.names.parent(item), ast.BinOp | ast.Compare)


def _owner(node: ast.expr) -> ast.expr:
    """The `d` of `d["a"]["b"]`"""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


_OPTIONS = ("dict", "update", "EasyDict", "Namespace", "SimpleNamespace")


def _unpinned(ctx: Context, key: str, value: ast.expr) -> Decision:
    if key == "pin_memory_device":
        return Rewrite([Replace(value, "''")])
    if not ctx.target.portable:
        return Rewrite([Replace(value, "False")])
    asked = gpu_question(ctx)
    if asks_for_gpu(ctx, value):
        return Keep("asks for the GPU", leaves=[value])
    if isinstance(value, ast.Constant):
        return Rewrite([Replace(value, asked.code)], asked.requires)
    code = f"{{value}} and {asked.code}"
    return Rewrite([Replace(value, code, {"value": value})], asked.requires)


@PIN.on("method", "pin_memory")
@PIN.on("name", "torch.Tensor.pin_memory")
def pin_method(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    if call is None or not isinstance(found.node, ast.Attribute):
        return Report("a TPU has no pinned memory")
    if ctx.names.is_statement(call) and not ctx.values.evidence.is_tensor(found.node.value):
        return Report("the source doesn't show whose method this is; remove it if it is a tensor's")
    return Rewrite([Replace(call, "{x}", {"x": found.node.value})])


@NON_BLOCKING.on("keyword", "non_blocking")
def non_blocking(ctx: Context, found: Construct) -> Decision:
    return Keep("accepted, and without effect")


def _is_set_to(ctx: Context, node: ast.Attribute) -> bool:
    """Whether the attribute of this object is assigned: `self.record_stream = …`."""
    same = [n for n in ctx.names.by_attribute[node.attr] if isinstance(n.ctx, ast.Store)]
    return ast.unparse(node.value) in {ast.unparse(n.value) for n in same}


@NON_BLOCKING.on("method", "record_stream", node=ast.Attribute)
def record_stream(ctx: Context, found: Construct, node: ast.Attribute) -> Decision:
    call = ctx.names.call_of(node)
    stream = argument(call, 0, "stream") if call is not None else None
    known = ctx.flow.kind(stream) & Kind.STREAM or ctx.values.evidence.is_tensor(node.value)
    if not known and _is_set_to(ctx, node):
        return Keep("a function of the program's own, under this name")
    if stream is None or not known:
        return Report("on a tensor, it is for CUDA's caching allocator: remove it")
    if call is not None and ctx.names.is_statement(call):
        if ctx.api.on_gpu is not None:
            return behind_question(ctx, node)
        statement = ctx.names.statement(call)
        assert statement is not None
        return Rewrite([Delete(statement)])
    return Report("CUDA's caching allocator has no counterpart")
