"""Precision: flags of cuDNN and TF32."""

import ast
from dataclasses import replace

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    EditCall,
    Example,
    Family,
    Keep,
    ReplaceStatement,
    Report,
    Rewrite,
    Rule,
    Unwrap,
)

FAMILY = Family("PRE", "Precision", 50)

FLAG = Rule(
    code="PRE001",
    name="cudnn-flag",
    imports=("torch.backends",),
    summary="a cuDNN or CUDA kernel flag, without meaning on a TPU",
    why="""`benchmark`, `deterministic` and the choice of attention kernels control CUDA libraries.
XLA compiles its own kernels, and its programs are deterministic. The statement is removed. Reading
a flag stays, because it works without CUDA.""",
    examples=(
        Example(
            """
            import torch
            torch.backends.cudnn.benchmark = True
            x = 1
            """,
            after="""
            import torch
            x = 1
            """,
        ),
        Example(
            """
            import torch.backends.cudnn as cudnn
            import torch
            cudnn.deterministic = True
            """,
            after="import torch\n",
        ),
        Example(
            """
            import torch
            if torch.backends.cudnn.benchmark:
                print("the first steps are slow")
            """,
            says={2: "only read; it answers without CUDA too"},
        ),
        Example(
            """
            import torch
            print(torch.backends.cuda.cufft_plan_cache.size)
            """,
            says={2: "asks CUDA, and raises without it"},
        ),
    ),
)

TF32 = Rule(
    code="PRE002",
    name="float32-matmul-precision",
    summary="TF32 and matmul precision become the precision of the TPU's float32 products",
    why="""A TPU multiplies float32 in bfloat16 by default. The set-up asks for full float32
("highest"). If the script allows TF32, or asks for "high" or "medium", the target gets the same
request: "high" is three bfloat16 passes (at least as exact as TF32), "medium" is one.""",
    examples=(
        Example(
            """
            import torch
            torch.backends.cuda.matmul.allow_tf32 = True
            """,
            after="""
            import torch
            import tpu_runtime
            tpu_runtime.set_matmul_precision(True)
            """,
        ),
        Example(
            """
            import torch
            torch.set_float32_matmul_precision("high")
            """,
            after="""
            import torch
            import tpu_runtime
            tpu_runtime.set_matmul_precision("high")
            """,
        ),
        Example(
            """
            import torch
            was = torch.backends.cuda.matmul.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = was
            """,
            says={2: "only read; it answers without CUDA too", 3: "sets back what was read before"},
        ),
        Example(
            """
            import torch
            setattr(torch.backends.cuda.matmul, "allow_tf32", True)
            setattr(torch.backends.cudnn, "benchmark", True)
            """,
            after="""
            import torch
            import tpu_runtime
            tpu_runtime.set_matmul_precision(True)
            setattr(torch.backends.cudnn, "benchmark", True)
            """,
        ),
        Example(
            """
            import torch
            print(torch.get_float32_matmul_precision())
            """,
        ),
    ),
)


_TF32_FLAGS = ("torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32",
               "torch.backends.cuda.matmul.fp32_precision", "torch.backends.cudnn.fp32_precision",
               "torch.backends.cudnn.conv.fp32_precision",
               "torch.backends.cudnn.rnn.fp32_precision",
               "torch.backends.fp32_precision")  # fmt: skip
_RAISING = ("torch.backends.cuda.cufft_plan_cache", "torch.backends.cuda.can_use_cudnn_attention")


@FLAG.on("name", "torch.backends.cudnn*", "torch.backends.cuda*", "torch.backends.miopen*",
         "torch.backends.cusparselt*", node=ast.expr)  # fmt: skip
def flag(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    if ctx.target.portable:
        return Keep("for GPUs only; no effect elsewhere")
    call = ctx.names.call_of(node)
    statement = ctx.names.statement(node)
    stored = _stored(ctx, node)
    if stored is not None:
        return stored
    if call is not None and ctx.names.is_statement(call):
        assert statement is not None
        return Rewrite([Delete(statement)])
    item = ctx.names.parent(call) if call is not None else None
    if isinstance(item, ast.withitem) and call is not None:
        owner = ctx.names.parent(item)
        if item.optional_vars is None and isinstance(owner, ast.With | ast.AsyncWith):
            return Rewrite([Unwrap(owner, [item])])
    if isinstance(ctx.names.parent(node), ast.Assign | ast.alias) and found.key.count(".") == 2:
        return Keep("an alias; its uses are rewritten or reported one by one")
    if found.key.startswith(_RAISING):
        return Report("asks CUDA, and raises without it")
    return Keep("only read; it answers without CUDA too")


_FLAGS = ("torch.backends.cudnn", "torch.backends.cuda", "torch.backends.miopen",
          "torch.backends.cusparselt", "torch.backends.fp32_precision")  # fmt: skip


def _stored(ctx: Context, node: ast.expr) -> Decision | None:
    """The edit for a statement that sets a flag; all flags that it sets are removed together."""
    if _set_by_name(ctx, node) is not None:
        return Keep("for GPUs only; no effect elsewhere")
    statement = ctx.names.statement(node)
    stores = _stores(statement)
    keys = [_flag_key(ctx, target) for target, _ in stores]
    if not any(_is_part(node, target) for target, _ in stores):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return Report("is set here in a way that is not analysed")
        return None
    assert statement is not None
    precise = [key for key in keys if key in _TF32_FLAGS]
    if None in keys:
        if precise:
            return Report("one of several targets of an assignment; set it in its own statement")
        return Keep("for GPUs only, without effect here; the statement has other targets")
    if not precise:
        return Rewrite([Delete(statement)])
    if ctx.options.precision:
        return Rewrite([Delete(statement)], note=f"--precision {ctx.options.precision} decides")
    first = next((key for key in precise if "cudnn" not in key), precise[0])
    value = stores[keys.index(first)][1]
    if value is None:
        return Report(f"is computed{_by_hand(ctx, ' with what is meant')}")
    return _set_precision(ctx, statement, first, value)


def _stores(statement: ast.stmt | None) -> list[tuple[ast.expr, ast.expr | None]]:
    """The targets of an assignment, each with its value if that is known."""
    match statement:
        case ast.Assign(
            targets=[ast.Tuple(elts=targets) | ast.List(elts=targets)],
            value=ast.Tuple(elts=values) | ast.List(elts=values),
        ) if len(targets) == len(values) and not any(
            isinstance(e, ast.Starred) for e in [*targets, *values]
        ):
            return list(zip(targets, values, strict=True))
        case ast.Assign(targets=targets, value=value):
            whole = [(t, value) for t in targets if not isinstance(t, ast.Tuple | ast.List)]
            parts = [e for t in targets if isinstance(t, ast.Tuple | ast.List) for e in t.elts]
            return [*whole, *((part, None) for part in parts)]
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            return [(target, value)]
        case ast.AugAssign(target=target):
            return [(target, None)]
    return []


def _flag_key(ctx: Context, target: ast.expr) -> str | None:
    """The flag that an assignment to `target` sets, or the CUDA namespace it belongs to."""
    at = target
    while isinstance(at, ast.Attribute | ast.Subscript):
        key = ctx.names.qualified(at) or ""
        if key.startswith(_FLAGS):
            return key
        at = at.value
    return None


def _is_part(node: ast.expr, target: ast.expr) -> bool:
    """Whether an assignment to `target` sets a part of `node`: `plan_cache[0].max_size`."""
    while target is not node and isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return target is node


@TF32.on("name", "torch.backends.flags", "torch.backends.set_flags")
def all_precisions(ctx: Context, found: Construct) -> Decision:
    if ctx.target.portable:
        return Keep("for GPUs only; the set-up decides on a TPU")
    return Report(f"sets the precision of CUDA's products{_by_hand(ctx)}")


@TF32.on("name", *_TF32_FLAGS, node=ast.expr)
def tf32(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        return Keep("only read; it answers without CUDA too")
    if ctx.target.portable:
        return Keep("for GPUs only; the set-up decides on a TPU")
    stored = _stored(ctx, node)
    return stored or Keep("only read; it answers without CUDA too")


@TF32.on("name", *dict.fromkeys(key.rpartition(".")[0] for key in _TF32_FLAGS[:-1]))
def tf32_by_name(ctx: Context, found: Construct) -> Decision | None:
    """`setattr(torch.backends.cudnn, "allow_tf32", True)`"""
    by_name = _set_by_name(ctx, found.node)
    if by_name is None or f"{found.key}.{by_name[1]}" not in _TF32_FLAGS:
        return None
    if ctx.target.portable:
        return Keep("for GPUs only; the set-up decides on a TPU")
    call, name = by_name
    statement = ctx.names.statement(call)
    if statement is None or not ctx.names.is_statement(call):
        return Report(f"sets {name}{_by_hand(ctx)}")
    if ctx.options.precision:
        note = f"--precision {ctx.options.precision} decides"
        return Rewrite([Delete(statement)], note=note, drops=(call,))
    decision = _set_precision(ctx, statement, f"{found.key}.{name}", call.args[2])
    return replace(decision, drops=(call,)) if isinstance(decision, Rewrite) else decision


def _set_by_name(ctx: Context, node: ast.AST) -> tuple[ast.Call, str] | None:
    """The `setattr` that sets an attribute of a module, and the attribute."""
    match ctx.names.parent(node):
        case (
            ast.Call(
                func=ast.Name(id="setattr"), args=[module, ast.Constant(value=str(name)), _]
            ) as call
        ) if module is node:
            return call, name
    return None


def _set_precision(ctx: Context, statement: ast.stmt, key: str, value: ast.expr) -> Decision:
    if key.endswith("fp32_precision"):
        if not isinstance(value, ast.Constant):
            return Report(f"is computed{_by_hand(ctx, ' with what is meant')}")
        tf32 = value.value == "tf32"
        return _precision(ctx, statement, "True" if tf32 else "False", {})
    if isinstance(value, ast.Constant):
        cudnn = key.startswith("torch.backends.cudnn")
        if cudnn and not value.value:
            return Rewrite([Delete(statement)], note="full float32 is what the set-up asks for")
        if cudnn and any(c.key == _MATMUL and _is_set(ctx, c) for c in ctx.constructs):
            return Rewrite([Delete(statement)], note="one setting covers products and convolutions")
        return _precision(ctx, statement, repr(bool(value.value)), {})
    reads = [b.value for b in ctx.names.lookup(value)] if isinstance(value, ast.Name) else []
    if any(read is not None and ctx.names.qualified(read) == key for read in reads):
        word = ctx.code.runtime("set_matmul_precision")
        how = f"; {word.code} does not tell" if word else ""
        return Report(f"sets back what was read before{how}")
    return _precision(ctx, statement, "{value}", {"value": value})


_MATMUL = "torch.backends.cuda.matmul.allow_tf32"


def _is_set(ctx: Context, found: Construct) -> bool:
    stores = _stores(ctx.names.statement(found.node))
    return any(target is found.node for target, _ in stores)


def _precision(
    ctx: Context, statement: ast.stmt, text: str, holes: dict[str, ast.expr]
) -> Decision:
    word = ctx.code.runtime("set_matmul_precision")
    if word is None:
        return ctx.code.lacks("the precision of products")
    edit = ReplaceStatement(statement, f"{word.code}({text})", holes)
    return Rewrite([edit], word.requires)


def _by_hand(ctx: Context, with_what: str = "") -> str:
    """What to write, if the runtime has a counterpart."""
    word = ctx.code.runtime("set_matmul_precision")
    return f"; call {word.code}{with_what}" if word else ""


@TF32.on("name", "torch.set_float32_matmul_precision")
def matmul_precision(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    if call is None:
        return Report("the function itself is passed on")
    statement = ctx.names.statement(call)
    if ctx.options.precision and ctx.names.is_statement(call) and statement is not None:
        return Rewrite([Delete(statement)], note=f"--precision {ctx.options.precision} decides")
    word = ctx.code.runtime("set_matmul_precision")
    if word is None and ctx.api.device_names:
        return Keep("the target reads it, too")
    if word is None:
        return ctx.code.lacks(found.key)
    return Rewrite([EditCall(call, function=word.code)], word.requires)
