"""Advice on texts: batches of one length."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Rule,
    Safety,
    advice,
    argument,
    dotted,
)

PADDED = Rule(
    code="ADV011",
    name="padded-to-the-longest",
    summary="texts padded to the longest of a batch have a new length in each batch",
    safety=Safety.DISPLAY_ONLY,
    why="""Each new length is compiled again. With `padding="max_length"` and `max_length=`, all
batches have one shape; with `pad_to_multiple_of=64` there are a few. Padding is masked and has no
label, so the loss is the same up to rounding; a longer batch takes longer. Nothing is rewritten: a
program may use the lengths.""",
    examples=(
        Example.moved(
            "from transformers import DataCollatorWithPadding\n\nmodel.cuda()\n"
            "collate = DataCollatorWithPadding(tokenizer)\n"
        ),
        Example.moved(
            "from transformers import DataCollatorWithPadding\n\nmodel.cuda()\n"
            "collate = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=64)\n"
        ),
        Example.moved(
            """
            model.cuda()
            batch = tokenizer(texts, padding="max_length", max_length=128, return_tensors="pt")
            """
        ),
        Example.moved(
            """
            model.cuda()
            lengths = [len(ids) for ids in tokenizer(texts)["input_ids"]]
            """
        ),
    ),
    references=("https://docs.pytorch.org/xla/release/r2.8/perf/recompilation.html",),
)

_ADVICE = advice(
    "each batch is as long as its longest text, and each new length is compiled again: "
    'padding="max_length" gives one length, pad_to_multiple_of=64 only a few'
)


@PADDED.on(
    "advice", "DataCollatorWithPadding()", "DataCollatorForSeq2Seq()",
    "DataCollatorForTokenClassification()", "DataCollatorForMultipleChoice()",
    node=ast.Call,
)  # fmt: skip
def collated(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    if not (ctx.names.qualified(call.func) or "").startswith("transformers."):
        return None
    return _ADVICE if _is_longest(call, default=True) else None


@PADDED.on("advice", "tokenizer()", "pad()", node=ast.Call)
def padded(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    by_method = isinstance(call.func, ast.Attribute) and call.func.attr == "pad"
    owner = call.func.value if by_method and isinstance(call.func, ast.Attribute) else call.func
    if not (dotted(owner) or "").lower().endswith("tokenizer"):
        return None
    return _ADVICE if _is_longest(call, default=by_method) else None


def _is_longest(call: ast.Call, *, default: bool) -> bool:
    """Whether it pads to the longest; ``default``: the answer if nothing is specified."""
    if any(keyword.arg is None for keyword in call.keywords):
        return False
    multiple = argument(call, None, "pad_to_multiple_of")
    if multiple is not None and not (isinstance(multiple, ast.Constant) and multiple.value is None):
        return False
    match argument(call, None, "padding"):
        case None:
            return default and len(call.args) < 2
        case ast.Constant(value=True | "longest"):
            return True
    return False
