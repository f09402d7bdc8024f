"""Attention by CUDA-only libraries: flash_attn and xformers."""

import ast
from collections.abc import Sequence

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Delete,
    Edit,
    EditCall,
    Example,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
)

ATTENTION = Rule(
    code="LIB004",
    name="fused-attention",
    summary="attention by flash_attn and xformers becomes torch's",
    why="""Both compute what `torch.nn.functional.scaled_dot_product_attention` does, with tensors
of (batch, tokens, heads, dim), or with fewer dimensions, which the source doesn't show. So the
runtime has their functions, built on torch's. Groups of queries that share keys, causal masks
(flash_attn's last query sees the last key, since 2.1), windows, scales and biases mean the same. On
torchax, a TPU kernel is used from 4,096 keys on, if it fits.

What torch's attention lacks (softcap, ALiBi, log-sum-exps) is reported, or raises an error if only
a run can tell. A mask keeps packed sequences (varlen) apart, so time and memory grow with the
square of all tokens together.

An import under `try`/`except` stays with its uses: it fails on a TPU machine, and the fallback
runs. `flash_attn_interface` (FlashAttention 3) returns a tensor or a tuple, depending on its
version, and is reported.""",
    references=(
        "https://github.com/Dao-AILab/flash-attention",
        "https://facebookresearch.github.io/xformers/components/ops.html",
    ),
    examples=(
        Example(
            """
            import torch
            from flash_attn import flash_attn_func


            def attend(q, k, v):
                return flash_attn_func(q, k, v, causal=True)
            """,
            after="""
            import torch
            import tpu_runtime


            def attend(q, k, v):
                return tpu_runtime.flash_attn_func(q, k, v, causal=True)
            """,
        ),
        Example(
            """
            import torch
            import xformers
            import xformers.ops as xops


            def attend(q, k, v):
                mask = xops.LowerTriangularMask()
                return xops.memory_efficient_attention(q, k, v, attn_bias=mask, op=None)
            """,
            after="""
            import torch
            import tpu_runtime


            def attend(q, k, v):
                mask = tpu_runtime.LowerTriangularMask()
                return tpu_runtime.memory_efficient_attention(q, k, v, attn_bias=mask)
            """,
        ),
        Example(
            """
            import torch
            try:
                from flash_attn import flash_attn_func
            except ImportError:
                flash_attn_func = None


            def attend(q, k, v):
                return flash_attn_func(q, k, v)
            """,
        ),
        Example(
            """
            from flash_attn import flash_attn_func
            y = flash_attn_func(q, k, v, softcap=30.0)
            """,
            says={2: "has no softcap"},
        ),
        Example(
            """
            from flash_attn.bert_padding import unpad_input
            x, rows, *_ = unpad_input(x, mask)
            """,
            says={2: "keep the padding and mask it"},
        ),
        Example(
            """
            import torch
            if is_xformers_available():
                unet.enable_xformers_memory_efficient_attention()
            """,
            says={3: "only runs if xformers is there"},
        ),
    ),
)

# How many positional arguments are the same in all versions of flash_attn 2; then follows
# window_size since 2.3, and after it, arguments of other versions.
_FLASH = {
    "flash_attn_func": 6,
    "flash_attn_qkvpacked_func": 4,
    "flash_attn_kvpacked_func": 5,
    "flash_attn_varlen_func": 10,
    "flash_attn_varlen_qkvpacked_func": 6,
    "flash_attn_varlen_kvpacked_func": 9,
}
# Arguments that torch's attention lacks, and the values that don't need them.
_UNKNOWN = {
    "softcap": (0, 0.0), "alibi_slopes": (None,), "return_attn_probs": (False,),
    "block_table": (None,),
}  # fmt: skip
_MINE = ("flash_attn.", "xformers.")
_ADVICE = {
    "flash_attn.bert_padding": "its shapes depend on data; keep the padding and mask it",
    "flash_attn.layers.rotary": "write the rotation out in PyTorch, which XLA fuses",
    "flash_attn.ops.rms_norm": "use torch.nn.RMSNorm",
    "flash_attn.ops.layer_norm": "use torch.nn.LayerNorm, and add before it",
    "flash_attn.ops.fused_dense": "use torch.nn.Linear",
    "flash_attn.losses": "use torch.nn.CrossEntropyLoss",
    "flash_attn.modules": "use torch.nn.functional.scaled_dot_product_attention between torch.nn's "
    "projections",
    "flash_attn.flash_attn_with_kvcache": "write the new keys and values into the cache, then "
    "torch.nn.functional.scaled_dot_product_attention with a mask",
    "flash_attn.flash_attn_unpadded": "of version 1; call flash_attn_varlen_func, which is "
    "rewritten",
    "xformers.ops.SwiGLU": "write it out by torch.nn.Linear and torch.nn.functional.silu",
    "xformers.ops.swiglu": "write it out by torch.nn.Linear and torch.nn.functional.silu",
    "xformers.ops.RMSNorm": "use torch.nn.RMSNorm",
    "xformers.ops": "masks other than LowerTriangularMask: make a tensor of bool for "
    "torch.nn.functional.scaled_dot_product_attention",
}


@ATTENTION.on("name", *(f"flash_attn.{name}" for name in _FLASH), node=ast.expr)
def flash(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    name = found.key.rpartition(".")[2]
    for call, given in ctx.names.calls(node):
        reason = _unknown(call, given[_FLASH[name] :])
        if reason is not None:
            return _not_here(ctx, found, call, reason)
    note = ""
    if "varlen" in name:
        note = (
            "a mask keeps the sequences apart: time and memory grow with the square of all tokens "
            "together"
        )
    return _by_runtime(ctx, found, name, note)


@ATTENTION.on("name", "xformers.ops.memory_efficient_attention", node=ast.expr)
def memory_efficient(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    direct = ctx.names.call_of(node)
    edits: list[Edit] = []
    for call, _ in ctx.names.calls(node):
        reason = _unknown_to_xformers(ctx, call)
        if reason is not None:
            return _not_here(ctx, found, call, reason)
        chooses: list[ast.expr | ast.keyword] = [k for k in call.keywords if k.arg == "op"]
        if chooses and call is not direct:
            edits.append(EditCall(call, drop=chooses))
    word = ctx.code.runtime("memory_efficient_attention")
    if word is None:
        return ctx.code.lacks(found.key)
    if direct is None:
        return Rewrite([Replace(node, word.code), *edits], word.requires)
    chooses = [k for k in direct.keywords if k.arg == "op"]
    return Rewrite([EditCall(direct, function=word.code, drop=chooses)], word.requires)


def _unknown(call: ast.Call, more: Sequence[ast.expr]) -> str | None:
    """The argument of a flash_attn call that torch's attention doesn't support."""
    if any(isinstance(a, ast.Starred) for a in call.args):
        return "its arguments are unpacked (*, **); write them out"
    if more and not (len(more) == 1 and isinstance(more[0], ast.Tuple)):
        return "what its last arguments mean differs by version; name them"
    for keyword in call.keywords:
        allowed = _UNKNOWN.get(keyword.arg or "")
        value = keyword.value
        if allowed and isinstance(value, ast.Constant) and value.value not in allowed:
            return f"torch's attention has no {keyword.arg}; write it out"
    return None


def _unknown_to_xformers(ctx: Context, call: ast.Call) -> str | None:
    if any(k.arg == "output_dtype" for k in call.keywords):
        return "torch's attention has no output_dtype; convert its result"
    bias = next((k.value for k in call.keywords if k.arg == "attn_bias"), None)
    for node in ast.walk(bias or ast.Pass()):
        kind = ctx.names.qualified(node) or ""
        if kind.startswith("xformers.ops.") and not kind.endswith(".LowerTriangularMask"):
            return f"{kind} has no counterpart; make a tensor of bool for torch's attention"
    return None


def _not_here(ctx: Context, found: Construct, call: ast.Call, reason: str) -> Report:
    """A reason that belongs to a call, which may be in another place."""
    own = call.func is found.node or call is ctx.names.partial_of(found.node)
    return Report(reason if own else f"line {call.lineno}: {reason}")


@ATTENTION.on("name", "xformers.ops.LowerTriangularMask")
def triangle(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    if call is not None and (call.args or call.keywords):
        return Report("a mask of an old version; make it without arguments")
    if isinstance(ctx.names.parent(found.node), ast.ClassDef | ast.Attribute):
        return Report("only the mask itself has a counterpart")
    return _by_runtime(ctx, found, "LowerTriangularMask")


@ATTENTION.on("name", "xformers.ops.unbind", node=ast.expr)
def unbind(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    torch, requires = ctx.code.torch()
    return Rewrite([Replace(node, f"{torch}.unbind")], requires)


@ATTENTION.on("method", "enable_xformers_memory_efficient_attention")
def of_diffusers(ctx: Context, found: Construct) -> Decision:
    """diffusers' models use torch's attention unless configured otherwise."""
    for around in ctx.names.ancestors(found.node):
        asks = isinstance(around, ast.If) and "xformers" in ast.unparse(around.test)
        if asks or isinstance(around, ast.Try):
            return Keep("only runs if xformers is there or asked for")
    call = ctx.names.call_of(found.node)
    statement = ctx.names.statement(found.node)
    if ctx.target.portable or call is None or not ctx.names.is_statement(call) or statement is None:
        return Report("raises without xformers; remove it, torch's attention is the default")
    return Rewrite([Delete(statement)], note="torch's attention is diffusers' default")


def _by_runtime(ctx: Context, found: Construct, name: str, note: str = "") -> Decision:
    assert isinstance(found.node, ast.expr)
    word = ctx.code.runtime(name)
    if word is None:
        return ctx.code.lacks(found.key)
    return Rewrite([Replace(found.node, word.code)], word.requires, note)


@ATTENTION.on("name", *(f"{library}*" for library in _MINE))
def other(ctx: Context, found: Construct) -> Decision:
    if isinstance(ctx.names.parent(found.node), ast.Assign) and found.key == "xformers.ops":
        return Keep("the module itself; its import is reported")
    advice = next((text for start, text in _ADVICE.items() if found.key.startswith(start)), "")
    return Report(f"{found.key} is for CUDA only" + (f": {advice}" if advice else ""))
