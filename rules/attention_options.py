"""Options of transformers that ask for attention by flash_attn."""

import ast
import re

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    EditCall,
    Example,
    Replace,
    Report,
    Rewrite,
    Rule,
)
from migrator.rule_api.texts import ATTENTION_OPTION, ATTENTION_SETTING, FLASH_SETTING
from migrator.rule_api.yaml_settings import with_setting

OPTION = Rule(
    code="LIB008",
    name="attention-option",
    summary="models of transformers compute attention by torch instead of flash_attn",
    why="""`attn_implementation="flash_attention_2"` needs flash_attn, which is for CUDA only;
without it, the model raises an ImportError. With `"sdpa"` it calls torch's
`scaled_dot_product_attention`, which computes the same, also in float32. On torchax a TPU kernel is
used from 4,096 keys on, if it fits.

It is rewritten as an argument, in a dictionary, in YAML, JSON and commands, as an attribute of a
configuration, and as the default of a parameter or an option; so is `use_flash_attention_2=True`,
its older form, which becomes False in a dictionary or a configuration, whatever reads it.
Comparisons, choices and keys stay. What the source doesn't show to be this option is reported.""",
    references=("https://huggingface.co/docs/transformers/attention_interface",),
    examples=(
        Example(
            """
            from transformers import AutoModel
            model = AutoModel.from_pretrained(name, attn_implementation="flash_attention_2")
            """,
            after="""
            from transformers import AutoModel
            model = AutoModel.from_pretrained(name, attn_implementation="sdpa")
            """,
        ),
        Example(
            """
            from transformers import AutoModel
            model = AutoModel.from_pretrained(name, use_flash_attention_2=True)
            """,
            after="""
            from transformers import AutoModel
            model = AutoModel.from_pretrained(name, attn_implementation="sdpa")
            """,
        ),
        Example(
            "attn_implementation: flash_attention_2  # on GPUs\n",
            after="attn_implementation: sdpa  # on GPUs\n",
            path="config.yaml",
        ),
        Example(
            """
            options = {"use_flash_attention_2": True}
            """,
            after="""
            options = {"use_flash_attention_2": False}
            """,
        ),
        Example(
            """
            kind = "flash_attention_2"
            """,
        ),
        Example(
            """
            if config._attn_implementation == "flash_attention_2":
                mask = None
            """,
        ),
        Example(
            """
            classes = {"eager": Attention, "flash_attention_2": FlashAttention}
            """,
        ),
        Example(
            """
            import torch
            from network import build
            model = build(use_flash_attention_2=True)
            """,
            says={3: "if this is given to transformers"},
        ),
        Example(
            """
            from transformers import AutoModel
            model = AutoModel.from_pretrained(name, use_flash_attention_2=args.fast)
            """,
            says={2: "needs flash_attn"},
        ),
    ),
)


@OPTION.on("attention option", "flash", node=ast.Constant)
def flash(ctx: Context, found: Construct, node: ast.Constant) -> Decision:
    quote = "'" if ctx.source.code(node).startswith("'") else '"'
    return Rewrite([Replace(node, f"{quote}sdpa{quote}")])


@OPTION.on("keyword", "use_flash_attention_2")
def flag(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.parent(found.node)
    assert isinstance(found.node, ast.keyword) and isinstance(call, ast.Call)
    is_true = isinstance(found.node.value, ast.Constant) and found.node.value.value is True
    if is_true and ctx.names.qualified(call.func) == "dict":
        return Rewrite([Replace(found.node.value, "False")])
    if not is_true or not _makes_model(ctx, call):
        return Report(
            "needs flash_attn, which is for CUDA only, wherever it is true; if this is given to "
            'transformers, write attn_implementation="sdpa"'
        )
    if any(keyword.arg == "attn_implementation" for keyword in call.keywords):
        return Rewrite([EditCall(call, drop=[found.node])])
    put = {"attn_implementation": '"sdpa"'}
    return Rewrite([EditCall(call, drop=[found.node], put=put)])


def _makes_model(ctx: Context, call: ast.Call) -> bool:
    """`AutoModel.from_pretrained(…)`: a function of the program may know the older name alone."""
    is_making = isinstance(call.func, ast.Attribute) and call.func.attr in _MAKING
    return is_making and ctx.flow.called_definition(call) is None


_MAKING = ("from_pretrained", "from_config", "_from_config")


@OPTION.on("attention option", "flag", node=ast.Constant)
def in_dictionary(ctx: Context, found: Construct, node: ast.Constant) -> Decision:
    return Rewrite([Replace(node, "False")])


@OPTION.on("attention option", "unknown")
def unknown(ctx: Context, found: Construct) -> Decision:
    return Report(
        "flash_attn is for CUDA only; if this is given to transformers, write 'sdpa', which "
        "computes the same"
    )


@OPTION.on("setting", "attention")
def in_settings(ctx: Context, found: Construct) -> Decision:
    return with_setting(ctx, found, ATTENTION_SETTING, r"\g<before>sdpa\g<after>")


@OPTION.on("setting", "flash")
def flag_in_settings(ctx: Context, found: Construct) -> Decision:
    def off(match: re.Match[str]) -> str:
        no = "False" if match["yes"][0].isupper() else "false"
        return f"{match['before']}{no}{match['after']}"

    return with_setting(ctx, found, FLASH_SETTING, off)


@OPTION.on("command", "attention")
def in_command(ctx: Context, found: Construct) -> Decision:
    return ctx.code.with_text(found, ATTENTION_OPTION.sub(r"\g<option>sdpa", found.content))
