"""Code that newer versions of PyTorch and NumPy read otherwise, and refuse."""

import ast
from dataclasses import replace

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Edit,
    EditCall,
    Example,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
)
from migrator.rule_api.upgrade_templates import reason_to_keep
from migrator.rule_api.upgrades import numbers, owner_of

from .files import LOAD

MEANINGS = Rule(
    code="UPG005",
    of_python=True,
    name="changed-meaning",
    summary="code that newer versions refuse because it means something else now",
    why="""`loss.data[0]` was the number of a loss, which has no dimension since PyTorch 0.4. A mask
is a tensor of booleans, no longer of bytes. `copy=False` forbids NumPy 2 to copy, where NumPy 1
only avoided it, and `numpy.fromstring` reads text alone. A function with gradients of its own has
static methods; one with a state is reported. `torch.load` takes only tensors since PyTorch 2.6: a
checkpoint that the file uses as a model, or saves as one or with the command line's arguments, is
loaded as before; so is one with the keys of a checkpoint that another file saves so. What gave a
list in Python 2, and whose elements are taken, becomes one: `d.keys()[0]`. What compares a
transposed tensor has its order in memory since PyTorch 1.7, and no view as one row: it is
reshaped.""",
    references=(
        "https://numpy.org/doc/stable/numpy_2_0_migration_guide.html#adapting-to-changes-in-the-copy-keyword",
        "https://docs.pytorch.org/docs/stable/notes/extending.html",
    ),
    examples=(
        Example(
            """
            import torch
            loss = model(x.cuda()).sum()
            loss.backward()
            total += loss.data[0]
            y = x.masked_fill(mask.byte(), 0)
            """,
            after="""
            import torch
            loss = model(x.to("{device}")).sum()
            loss.backward()
            total += loss.item()
            y = x.masked_fill(mask.bool(), 0)
            """,
        ),
        Example(
            """
            import torch

            def accuracy(output, target, k=5):
                pred = output.cuda().topk(k, 1)[1].t()
                correct = pred.eq(target.view(1, -1).expand_as(pred))
                return correct[:k].view(-1).float().sum(0)
            """,
            after="""
            import torch

            def accuracy(output, target, k=5):
                pred = output.to("{device}").topk(k, 1)[1].t()
                correct = pred.eq(target.view(1, -1).expand_as(pred))
                return correct[:k].reshape(-1).float().sum(0)
            """,
        ),
        Example(
            """
            import torch
            class Double(torch.autograd.Function):
                def forward(self, x):
                    return 2 * x
            y = Double()(x.cuda())
            """,
            after="""
            import torch
            class Double(torch.autograd.Function):
                def forward(self, x):
                    return 2 * x
            y = Double()(x.to("{device}"))
            """,
        ),
        Example(
            """
            import torch
            first = losses.data[0]
            """,
            says={2: "fails if this is a mean or a sum"},
        ),
        Example(
            """
            import torch
            class Scale(torch.autograd.Function):
                def __init__(self, by):
                    self.by = by
                def forward(self, x):
                    return self.by * x
            y = Scale(2)(x)
            """,
            says={5: "runs no function with a state"},
        ),
        Example(
            """
            import torch
            class Double(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return 2 * x
            y = Double.apply(x)
            """,
        ),
    ),
)


@MEANINGS.on("changed", "number", node=ast.Subscript)
def number(ctx: Context, found: Construct, node: ast.Subscript) -> Decision:
    owner = owner_of(node) or node.value
    if not isinstance(node.ctx, ast.Load):
        return Report("a loss has no dimension; assign to its data with `[...]`")
    kept = reason_to_keep(ctx, node, "torch.Tensor")
    item = Replace(node, "{owner}.item()", {"owner": owner})
    return kept or Rewrite([item], drops=[node.value] if owner_of(node) else ())


@MEANINGS.on("changed", "perhaps number", node=ast.Subscript)
def perhaps_number(ctx: Context, found: Construct, node: ast.Subscript) -> Decision:
    """Of something that is named like a loss, and may be one for each example."""
    kept = reason_to_keep(ctx, node, "torch.Tensor")
    return kept or Report("fails if this is a mean or a sum, which has no dimension: use .item()")


@MEANINGS.on("changed", "mask", node=ast.expr)
def mask(ctx: Context, found: Construct, node: ast.expr) -> Decision:
    if (kept := reason_to_keep(ctx, node, "torch.Tensor")) is not None:
        return kept
    match node:
        case ast.Call(func=ast.Attribute(attr="byte"), args=[], keywords=[]) as call:
            return Rewrite([EditCall(call, method="bool")])
    return Rewrite([Replace(node, "{mask}.bool()", {"mask": node})])


@MEANINGS.on("changed", "pickle", node=ast.Call)
def pickled(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    """A checkpoint with more than tensors, which PyTorch refuses since 2.6 unless it is told; also
    one with the keys of what another file saves."""
    if (kept := reason_to_keep(ctx, call, "torch.load")) is not None:
        return kept
    note = "as before PyTorch 2.6: loading runs code of the file, so it has to be trusted"
    told = EditCall(call, put={"weights_only": "False"})
    decision = _for_device(ctx, call)
    match decision:
        case Report():
            return Report(f"{decision.reason}; give it weights_only=False, too")
        case Rewrite():  # both edit one call
            edits = [_of_call(call, edit) for edit in decision.edits]
            return replace(decision, edits=[*edits, told], note=note)
    return Rewrite([told], note=note)


def _for_device(ctx: Context, call: ast.Call) -> Decision | None:
    """What becomes of the call for the device's sake."""
    if not ctx.options.enabled(LOAD.code):
        return Keep(f"{LOAD.code} is not selected")
    lines = ctx.source.text.splitlines()[call.lineno - 1 : call.end_lineno]
    if any("tpu-migrate:" in line for line in lines):
        return Report("a comment says what stays")
    return LOAD.decision(ctx, Construct("name", "torch.load", call.func))


def _of_call(call: ast.Call, edit: Edit) -> Edit:
    if isinstance(edit, Replace) and edit.node is call.func:
        return EditCall(call, function=edit.template)
    return edit


@MEANINGS.on("changed", "channels", node=ast.Call)
def channels(ctx: Context, found: Construct, node: ast.Call) -> Decision:
    """`Normalize` of images with one channel, which took the first numbers of several."""
    if (kept := reason_to_keep(ctx, node, "torchvision.transforms.Normalize")) is not None:
        return kept
    edits = []
    for several in numbers(node):
        if isinstance(several, ast.Tuple | ast.List) and len(several.elts) > 1:
            text = "({first},)" if isinstance(several, ast.Tuple) else "[{first}]"
            edits.append(Replace(several, text, {"first": several.elts[0]}))
    return Rewrite(edits)


@MEANINGS.on("changed", "perhaps channels")
def perhaps_channels(ctx: Context, found: Construct) -> Decision:
    kept = reason_to_keep(ctx, found.node, "torchvision.transforms.Normalize")
    return kept or Report("fails if an image has one channel: give it as many numbers as channels")


@MEANINGS.on("changed", "shapes")
def shapes(ctx: Context, found: Construct) -> Decision:
    kept = reason_to_keep(ctx, found.node, "torch.nn.BCELoss")
    return kept or Report(
        "fails where the prediction is (n, 1) and the target (n,): give both one shape, as with "
        ".squeeze(1)"
    )


@MEANINGS.on("changed", "one element", node=ast.Call)
def one_element(ctx: Context, found: Construct, node: ast.Call) -> Decision:
    kept = reason_to_keep(ctx, node, "torch.nn.CrossEntropyLoss")
    target = ctx.source.code(node.args[1])
    return kept or Report(
        f"fails if {target} is one number, which has no dimension since PyTorch 0.4, beside a row "
        f"of scores: give it {target}.unsqueeze(0)"
    )


@MEANINGS.on("changed", "view")
def view(ctx: Context, found: Construct) -> Decision:
    """`correct[:k].view(-1)`, in the memory of a transposed tensor."""
    assert isinstance(found.node, ast.Call)
    kept = reason_to_keep(ctx, found.node, "torch.Tensor")
    return kept or Rewrite([EditCall(found.node, method="reshape")])


@MEANINGS.on("changed", "function")
def function(ctx: Context, found: Construct) -> Decision:
    kept = reason_to_keep(ctx, found.node, "torch.autograd.Function")
    return kept or Report(
        "PyTorch runs no function with a state: make forward and backward static, with ctx for "
        "self, and call apply"
    )


@MEANINGS.on("changed", "copy", node=ast.Call)
def copied(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    if (kept := reason_to_keep(ctx, call, "numpy.array")) is not None:
        return kept
    if len(call.args) > 2 or {k.arg for k in call.keywords} - {"copy", "dtype", "order"}:
        return Report("NumPy 2 copies nothing then, and raises if it has to; use numpy.asarray")
    spelled, requires = ctx.code.module("numpy")
    drop = [keyword for keyword in call.keywords if keyword.arg == "copy"]
    return Rewrite([EditCall(call, function=f"{spelled}.asarray", drop=drop)], requires)


@MEANINGS.on("changed", "list", node=ast.Call)
def listed(ctx: Context, found: Construct, node: ast.Call) -> Decision:
    """`d.keys()[0]`, `zip(a, b)[0]`: lists in Python 2."""
    if (kept := reason_to_keep(ctx, node, "builtins.list")) is not None:
        return kept
    shadowed = ctx.names.top.bindings.get("list")
    if shadowed:
        return Report("is no list in Python 3, and has no elements to take")
    return Rewrite([Replace(node, "list({call})", {"call": node})])


@MEANINGS.on("changed", "bytes", node=ast.Call)
def from_bytes(ctx: Context, found: Construct, call: ast.Call) -> Decision:
    """Of bytes, `numpy.frombuffer` gives the same, as an array that can't be written to."""
    if (kept := reason_to_keep(ctx, call, "numpy.fromstring")) is not None:
        return kept
    if _is_only_read(ctx, call):
        spelled, requires = ctx.code.module("numpy")
        return Rewrite([EditCall(call, function=f"{spelled}.frombuffer")], requires)
    return Report("NumPy 2 reads text only; use numpy.frombuffer(…).copy() for bytes")


def _is_only_read(ctx: Context, call: ast.Call) -> bool:
    """Whether an array goes into a function that copies it."""
    parent = ctx.names.parent(call)
    return isinstance(parent, ast.Call) and ctx.names.qualified(parent.func) in _COPYING


_COPYING = ("cv2.imdecode", "torch.tensor", "numpy.array")
