"""Advice on training steps: what divides the program of a step."""

import ast

from migrator.rule_api import Construct, Context, Decision, Example, Rule, Safety, advice
from migrator.rule_api.example_steps import with_step_end
from migrator.rule_api.generation import reads_in_passes
from migrator.rule_api.training import (
    READING_METHODS,
    is_asked,
    is_optimizer_step,
    only_checks,
    prints_tensor,
    reads_tensor_value,
)

_BEGIN = """import torch

model = Net().cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
for x, y in batches:
"""


def _step(*lines: str) -> Example:
    """Iterations of these lines. On torch_xla a step ends below the optimizer's."""
    before = _BEGIN + "".join(f"    {line}\n" for line in lines)
    after = before.replace(".cuda()", '.to("{device}")')
    return with_step_end(Example(before, after), "opt.step()")


STEP = Rule(
    code="TRN005",
    name="divided-step",
    summary="a value that is read in the middle of a training step divides its program in two",
    safety=Safety.DISPLAY_ONLY,
    why="""torchax and torch_xla compute a step as one program: forward pass, loss, backward pass,
clipping, and the optimizer's step. A value that Python reads before its end (`.item()`, `.cpu()`,
`float()`, `print`, `if loss > 5:`) is computed at once: the step becomes two programs, and more is
kept in memory between them.

After `optimizer.step()` a read divides nothing: read losses and scores there. A condition becomes
`torch.where`, or is checked every N iterations. Models from other files that read values in their
forward pass are named here, too: docs/compiled-steps.md.""",
    examples=(
        _step(
            "opt.zero_grad()",
            "loss = loss_fn(model(x), y)",
            "total += loss.item()",
            "loss.backward()",
            "opt.step()",
        ),
        _step(
            "opt.zero_grad()",
            "loss = loss_fn(model(x), y)",
            "loss.backward()",
            "opt.step()",
            "total += loss.item()",
        ),
        _step(
            "loss = loss_fn(model(x), y)",
            "total += y.size(0)  # known without waiting",
            "loss.backward()",
            "opt.step()",
        ),
        _step(
            "loss = loss_fn(model(x), y)",
            "losses.append(loss.detach())  # stays on the device",
            "loss.backward()",
            "opt.step()",
        ),
    ),
    references=("https://docs.pytorch.org/xla/release/r2.8/learn/troubleshoot.html",),
)

_IN_TWO = (
    "needs a value between the forward pass and the optimizer's step, which divides the step into "
    "two programs: "
)
_DIVIDES = advice(_IN_TWO + "read it after the step, or compute with the tensor")
_DECIDES = advice(_IN_TWO + "use torch.where, or check every N iterations")
_CHECKS = advice(_IN_TWO + "a check that only stops the program can come after the step")


@STEP.on("advice", "item()", "cpu()", "numpy()", "tolist()", "float()", "int()", "bool()",
         "print()", node=ast.Call)  # fmt: skip
def read_in_step(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    if not _reads_tensor(ctx, call) or ctx.training.hot.in_pass(call) or is_asked(ctx.names, call):
        return None
    return _DIVIDES if _divides(ctx, call) else None


def _reads_tensor(ctx: Context, call: ast.Call) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[], keywords=[]):
            return method in READING_METHODS and ctx.training.hot.is_tensor(owner)
        case ast.Call(func=ast.Name(id="float" | "int" | "bool"), args=[value]):
            return ctx.training.hot.is_tensor(value)
        case ast.Call(func=ast.Name(id="print")):
            return prints_tensor(ctx.training.hot, call)
    return False


@STEP.on("advice", "If", "IfExp", "While", "Assert")
def branch_in_step(ctx: Context, found: Construct) -> Decision | None:
    node = found.node
    assert isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert)
    if not reads_tensor_value(ctx.training.hot, node.test) or ctx.training.hot.in_pass(node):
        return None
    if not _divides(ctx, node.test):
        return None
    return _CHECKS if only_checks(ctx.names, node) else _DECIDES


def _divides(ctx: Context, node: ast.expr) -> bool:
    if not ctx.api.records:
        return False
    return ctx.training.iterations.are_divided_by(node, only_steps_end=not ctx.api.holds_steps)


@STEP.on("advice", "step()")
def model_that_reads(ctx: Context, found: Construct) -> Decision | None:
    """Once in a file: at its first step."""
    call = found.node
    if not ctx.api.records or call is not _first_step(ctx):
        return None
    lines = reads_in_passes(ctx.training.computation)
    if not lines:
        return None
    return advice(
        f"the step is divided by a value that a forward pass reads ({', '.join(lines)}): "
        "compute with the tensor there"
    )


def _first_step(ctx: Context) -> ast.Call | None:
    for function in ctx.names.by_attribute.get("step", ()):
        call = ctx.names.call_of(function)
        if call is not None and is_optimizer_step(ctx.names, ctx.flow, call):
            return call
    return None
