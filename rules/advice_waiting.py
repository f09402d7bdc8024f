"""Advice on values that are read: the program waits for the device."""

import ast
import re

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Keep,
    Rule,
    Safety,
    advice,
    dotted,
)
from migrator.rule_api.training import (
    CHECK_IN_MODEL,
    is_asked,
    is_checked_later,
    only_checks,
    prints_tensor,
    reads_tensor_value,
)

_TROUBLE = "https://docs.pytorch.org/xla/release/r2.8/learn/troubleshoot.html"

READ = Rule(
    code="ADV003",
    name="read-in-each-round",
    summary="a value that is read in each iteration makes the program wait for the device",
    safety=Safety.DISPLAY_ONLY,
    why="""Python prepares the next iteration while the device computes this one, until it needs a
value: `.item()`, `.cpu()`, `.tolist()`, `float()` and `print` wait. In a forward pass, a read also
keeps the model from being compiled as a whole.

Keep sums and lists as tensors, and read them after the loop, or every N iterations, under an `if`
that counts. For iterations that train, see TRN005.""",
    examples=(
        Example.moved(
            "import torch\n\nmodel = Net().cuda()\ntotal = 0.0\nfor x, y in batches:\n"
            "    loss = loss_fn(model(x), y)\n    total += loss.item()\nprint(total)\n"
        ),
        Example.moved(
            "import torch\n\nmodel = Net().cuda()\ntotal = 0.0\nfor x, y in batches:\n"
            "    loss = loss_fn(model(x), y)\n    total += loss.detach()\nprint(float(total))\n"
        ),
        Example.moved(
            """
            import torch

            model = Net().cuda()
            for step, (x, y) in enumerate(batches):
                loss = loss_fn(model(x), y)
                if step % 100 == 0:
                    print(loss.item())
            """
        ),
        Example.moved(
            """
            import torch

            model = Net().cuda()
            total = 0
            for x, y in batches:
                loss = loss_fn(model(x), y)
                total += float(x.size(0))  # a shape is known
            """
        ),
    ),
    references=(_TROUBLE,),
)

BRANCH = Rule(
    code="ADV007",
    name="branch-on-tensor",
    summary="a branch on the value of a tensor waits, and splits the program",
    safety=Safety.DISPLAY_ONLY,
    why="""`if x.max() > 1:` waits for a value, and the model can't be compiled as a whole.
`torch.clamp`, and `torch.where(condition, this, that)`, which computes both and chooses, stay on
the device. A check that only stops the program (an assertion, for NaN, for ranges) can come after
the step, which keeps its condition as a tensor; or every N iterations, or only while debugging.
Where the runtime computes whole steps, it checks a model's assertions then, so they may stay. For
iterations that train, see TRN005. Branches on `torch.all` and `torch.any` in a forward pass belong
to TEN001, which rewrites some of them.""",
    examples=(
        Example.moved(
            "import torch\nfrom torch import nn\n\nmodel = Net().cuda()\n\n\n"
            "class Net(nn.Module):\n    def forward(self, x):\n        if x.abs().max() > 1:\n"
            "            x = x / x.abs().max()\n        return self.layers(x)\n"
        ),
        Example.moved(
            "import torch\nfrom torch import nn\n\nmodel = Net().cuda()\n\n\n"
            "class Net(nn.Module):\n    def forward(self, x):\n"
            "        x = x / x.abs().max().clamp(min=1)\n        return self.layers(x)\n"
        ),
        Example.moved(
            """
            from torch import nn

            model = Net().cuda()


            class Net(nn.Module):
                def forward(self, x, mask=None):
                    if mask is not None and x.shape[0] > 1:
                        x = x * mask
                    return self.layers(x)
            """
        ),
        Example.moved(
            """
            import torch

            model = Net().cuda()
            for step, x in enumerate(batches):
                y = model(x)
                if step % 100 == 0 and y.max() > 5:
                    print("large")
            """
        ),
    ),
    references=(_TROUBLE,),
)

# ---- reads ---------------------------------------------------------------------------------------

_SUM = advice(
    "waits for the device in each iteration: add up on the device (loss.detach()), and "
    "read after the loop or every N iterations",
)
_PRINTED = advice("waits for the device in each iteration: print every N iterations")
_COPIED = advice(
    "copies to the host in each iteration, and waits for it: keep the tensors in a list, "
    "and copy them after the loop, if they fit into the device's memory",
)
_IN_PASS = advice(
    "reads values in a forward pass, which waits for the device, so the model can't be compiled as "
    "a whole: compute with the tensor, or pass the numbers as arguments"
)
_KEEPING = frozenset({
    "add", "add_scalar", "append", "extend", "log", "log_metric", "record", "set_description",
    "set_postfix", "set_postfix_str", "update",
})  # fmt: skip
_PRINTING = frozenset({"debug", "info", "print", "write", "set_description", "set_postfix"})
_MEASURE = re.compile(
    r"loss|acc|correct|score|metric|err|norm|psnr|ssim|iou|dice|mse|mae|total|sum|avg|mean", re.I
)


@READ.on("advice", "item()", "cpu()", "tolist()", node=ast.Call)
def read(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    if not isinstance(call.func, ast.Attribute) or call.args or call.keywords:
        return None
    owner = call.func.value
    if ctx.training.hot.in_pass(call):
        return (
            _IN_PASS
            if ctx.training.hot.is_tensor(owner) and not is_asked(ctx.names, call)
            else None
        )
    return _use(ctx, call) if ctx.training.hot.is_tensor(owner) else None


@READ.on("advice", "float()", "int()", node=ast.Call)
def converted(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    if not isinstance(call.func, ast.Name) or len(call.args) != 1:
        return None
    return _use(ctx, call) if ctx.training.hot.is_tensor(call.args[0]) else None


@READ.on("advice", "print()", node=ast.Call)
def printed(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    return _PRINTED if _in_each_round(ctx, call) and prints_tensor(ctx.training.hot, call) else None


def _in_each_round(ctx: Context, node: ast.AST) -> bool:
    """Whether a node is reached in each iteration of a loop in which the device works."""
    if _is_of_step(ctx, node):
        return False
    loop = ctx.training.hot.loop(node)
    return (
        loop is not None
        and not ctx.training.hot.in_some_rounds(node, loop)
        and not ctx.training.hot.waits_for_a_person(loop)
    )


def _use(ctx: Context, call: ast.Call) -> Keep | None:
    """How a value that is read is used: sums and lists can be read later."""
    if not _in_each_round(ctx, call):
        return None
    copied = isinstance(call.func, ast.Attribute) and call.func.attr in ("cpu", "tolist")
    at: ast.AST = call
    for above in ctx.names.ancestors(call):
        match above:
            case ast.Call(func=function) if function is not at:
                name = (dotted(function) or "").rpartition(".")[2]
                if isinstance(function, ast.Attribute):
                    name = function.attr
                if name in _PRINTING:
                    return _PRINTED
                if name in _KEEPING:
                    return _COPIED if copied else _SUM
                if name in ("backward", "step"):
                    return None
            case ast.AugAssign():
                return _SUM
            case ast.Assign(targets=[target]):
                name = (dotted(target) or "").rpartition(".")[2]
                return _SUM if not copied and _MEASURE.search(name) else None
            case ast.stmt():
                return None
        at = above
    return None


# ---- branches ------------------------------------------------------------------------------------

_IN_MODEL = advice(
    "waits for the device to read a value, so the model can't be compiled as a whole: "
    "use torch.where",
)
_IN_LOOP = advice(
    "waits for the device in each iteration: use torch.where, or check every N iterations",
)


@BRANCH.on("advice", "If", "IfExp", "While", "Assert")
def branch(ctx: Context, found: Construct) -> Decision | None:
    node = found.node
    assert isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert)
    if not reads_tensor_value(ctx.training.hot, node.test):
        return None
    if any(c.kind == "branch" and c.node is node for c in ctx.constructs):
        return None
    if ctx.training.hot.in_pass(node):
        if ctx.api.holds_steps and is_checked_later(ctx.names, node):
            return None
        return advice(CHECK_IN_MODEL) if only_checks(ctx.names, node) else _IN_MODEL
    if _in_each_round(ctx, node):
        return _IN_LOOP
    if isinstance(node, ast.While) and ctx.training.hot.works(node) and not _is_of_step(ctx, node):
        return _IN_LOOP
    return None


def _is_of_step(ctx: Context, node: ast.AST) -> bool:
    """Whether the target records what an iteration does around a node, up to its step."""
    return ctx.api.records and ctx.training.iterations.hold(node)
