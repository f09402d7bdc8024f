"""Training loops: left whole by default, rewritten with --unsafe."""

import ast

from migrator.edits import Insert
from migrator.facts import backward_line
from migrator.inventory import Construct
from migrator.rule import Context, Decision, Example, Keep, Report, Rewrite, Rule
from migrator.training import end_of_step, following

LOOP = Rule(
    code="TRN001",
    name="training-loop",
    summary="a program with a backward pass stays whole, unless --unsafe asks for it",
    why="""Stock torchax loses gradients silently, and torch_xla needs a step boundary in the right
place. The runtimes mend what a rewrite can not, and the rewrite puts the boundaries; but until
the numbers of many programs were compared on both targets, a file that trains, or a script that
imports one, is only rewritten on request, and never by halves.""",
    examples=(
        Example("import torch\nloss = model(x.cuda()).sum()\nloss.backward()\n"),
        Example(
            "import torch\nloss = model(x.cuda()).sum()\nloss.backward()\n",
            torchax='import torch\nloss = model(x.to("jax")).sum()\nloss.backward()\n',
            torch_xla='import torch\nloss = model(x.to("xla")).sum()\nloss.backward()\n',
            unsafe=True,
        ),
    ),
)

STEP = Rule(
    code="TRN002",
    name="step-boundary",
    summary="each optimizer step ends with a sync, so that XLA runs one compiled program a step",
    why="""torch_xla only records operations until something asks for a value. Without a sync the
steps pile up in one graph that grows, compiles for ever, or never runs; a value that is read
instead evaluates that value alone. One torch_xla.sync() behind the optimizer's step, outside an
`if` that counts rounds, is the whole secret of speed. Under torchax nothing is needed.""",
    examples=(
        Example(
            "import torch\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
            "for x, y in data:\n    loss = f(net(x.cuda()), y.cuda())\n    opt.zero_grad()\n"
            "    loss.backward()\n    opt.step()\n    print(loss.item())\n",
            torchax="import torch\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
            'for x, y in data:\n    loss = f(net(x.to("jax")), y.to("jax"))\n    opt.zero_grad()\n'
            "    loss.backward()\n    opt.step()\n    print(loss.item())\n",
            torch_xla="import torch\nimport torch_xla\n"
            "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
            'for x, y in data:\n    loss = f(net(x.to("xla")), y.to("xla"))\n    opt.zero_grad()\n'
            "    loss.backward()\n    opt.step()\n    torch_xla.sync()\n    print(loss.item())\n",
            unsafe=True,
        ),
    ),
)

UNCLEAR = Rule(
    code="TRN003",
    name="unclear-step",
    summary="a step() that may or may not be an optimizer's",
    why="""Nothing in the file tells what the object is. If it is an optimizer, put the target's
step boundary behind it.""",
    examples=(Example("import torch\nthing.step()\n"),),
)


@STEP.on("method", "step")
def step(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    assert call is not None
    word = ctx.target.step_boundary
    if word is None:
        return Keep("torch's own optimizer makes the step")
    if not isinstance(ctx.parent(call), ast.Expr | ast.Assign):
        return Report(f"a step inside an expression; put {word.code} behind its statement")
    end = end_of_step(ctx.names, call)
    if any(word.code in ast.unparse(s) for s in following(ctx.names, end)[:1]):
        return Keep("the step boundary is there")
    if _is_covered(ctx, call, end):
        return Keep("the boundary behind the last step covers it")
    return Rewrite([Insert(ctx.names.tree, end, [word.code])], word.requires)


def _is_covered(ctx: Context, call: ast.Call, end: ast.stmt) -> bool:
    """True where an earlier step has the same end: one boundary is enough."""
    for construct in ctx.constructs:
        if construct.kind == "method" and construct.key == "step":
            other = ctx.names.call_of(construct.node)
            if other is not None and end_of_step(ctx.names, other) is end:
                return other is not call
    return False


@UNCLEAR.on("method", "unclear step")
def unclear(ctx: Context, found: Construct) -> Decision:
    if ctx.target.step_boundary is None:
        return Keep("if it is an optimizer's, torch makes the step")
    return Report(
        "it can not be told whether this is an optimizer's step; if it is, put "
        f"{ctx.target.step_boundary.code} behind it"
    )


@LOOP.on("file", "gate")
def whole(ctx: Context, found: Construct) -> Decision | None:
    if ctx.options.unsafe:
        return None
    line = backward_line(ctx.names)
    if line is not None:
        return Report(
            f"this file trains (backward on line {line}), so the whole file stays; "
            "--unsafe rewrites it"
        )
    trains = ctx.project.imported_with("trains_on") if ctx.project is not None else None
    if trains is not None:
        return Report(
            f"this file imports {trains.name}, which trains, so the whole file stays; "
            "--unsafe rewrites both"
        )
    return None
