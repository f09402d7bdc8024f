"""Training loops on the device: where an iteration ends, and which step() is an optimizer's."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Family,
    Insert,
    Keep,
    Report,
    Rewrite,
    Rule,
    Safety,
    advice,
)
from migrator.rule_api.python import own_nodes
from migrator.rule_api.training import (
    end_of_round,
    end_of_step,
    following,
    is_of_an_optimizer,
    may_step,
    only_evaluates,
    samples,
    trains,
    trains_in_calls,
)

FAMILY = Family("TRN", "Training", 70)

STEP = Rule(
    code="TRN001",
    name="step-boundary",
    summary="each optimizer step ends with a sync, so XLA runs one compiled program per step",
    why="""torch_xla only records operations until a value is needed, and then evaluates that value
alone. Without a sync, the steps pile up in one graph, which compiles ever longer, or never runs.
`torch_xla.sync()` after the optimizer's step, outside an `if` that counts iterations, makes each
step one program that is compiled once. torchax needs none.""",
    examples=(
        Example(
            """
            import torch
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for x, y in data:
                loss = f(net(x.cuda()), y.cuda())
                opt.zero_grad()
                loss.backward()
                opt.step()
                print(loss.item())
            """,
            after="""
            import torch
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for x, y in data:
                loss = f(net(x.to("{device}")), y.to("{device}"))
                opt.zero_grad()
                loss.backward()
                opt.step()
                print(loss.item())
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                opt = torch.optim.SGD(net.parameters(), lr=0.1)
                for x, y in data:
                    loss = f(net(x.to("{device}")), y.to("{device}"))
                    opt.zero_grad()
                    loss.backward()
                    opt.step()
                    torch_xla.sync()
                    print(loss.item())
                """
            },
        ),
        Example(
            """
            import torch
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(opt, 30)
            for epoch in range(90):
                scheduler.step()
            """,
        ),
        Example(
            """
            import torch
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for x, y in data:
                f(net(x), y).backward()
                results.append(opt.step())
            """,
        ),
    ),
)

UNCLEAR = Rule(
    code="TRN002",
    name="unclear-step",
    summary="a step() that may be an optimizer's, or not",
    why="""The file doesn't show what the object is. If it is an optimizer, add the target's step
boundary, `torch_xla.sync()`, after it. A scheduler or an environment needs none.""",
    safety=Safety.DISPLAY_ONLY,
    examples=(
        Example(
            """
            import torch
            thing.step()
            """,
        ),
        Example(
            """
            import torch
            scheduler = torch.optim.lr_scheduler.StepLR(opt, 30)
            scheduler.step()
            """,
        ),
    ),
)


ROUND = Rule(
    code="TRN003",
    name="loop-boundary",
    summary="each iteration of a loop that calls a model and trains nothing ends with a sync",
    why="""Without a sync, loops of evaluation, sampling and generation keep recording, and the
graph grows; `.item()` and `.cpu()` only evaluate one value. So the sync goes after the model,
before the first value that is read. torchax needs none.

A loop over a DataLoader that records gradients gets its sync, too, if the source shows that no
value gets a backward pass later; otherwise there is advice.""",
    examples=(
        Example(
            """
            import torch
            model.cuda()
            with torch.no_grad():
                for x, y in loader:
                    out = model(x)
                    right += (out.argmax(1) == y).sum()
                    loss += f(out, y).item()
            """,
            after="""
            import torch
            model.to("{device}")
            with torch.no_grad():
                for x, y in loader:
                    out = model(x)
                    right += (out.argmax(1) == y).sum()
                    loss += f(out, y).item()
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                model.to("{device}")
                with torch.no_grad():
                    for x, y in loader:
                        out = model(x)
                        right += (out.argmax(1) == y).sum()
                        torch_xla.sync()
                        loss += f(out, y).item()
                """
            },
        ),
        Example(
            """
            import torch
            from torch.utils.data import DataLoader
            model.cuda()
            loader = DataLoader(test_set, batch_size=64)
            right = 0
            for x, y in loader:
                right += (model(x).argmax(1) == y).sum()
            print(right.item())
            """,
            after="""
            import torch
            from torch.utils.data import DataLoader
            model.to("{device}")
            loader = DataLoader(test_set, batch_size=64)
            right = 0
            for x, y in loader:
                right += (model(x).argmax(1) == y).sum()
            print(right.item())
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla
                from torch.utils.data import DataLoader
                model.to("{device}")
                loader = DataLoader(test_set, batch_size=64)
                right = 0
                for x, y in loader:
                    right += (model(x).argmax(1) == y).sum()
                    torch_xla.sync()
                print(right.item())
                """
            },
        ),
        Example(
            """
            import torch
            with torch.no_grad():
                for x, y in loader:
                    right += (model(x).argmax(1) == y).sum().item()
            """,
        ),
        Example(
            """
            import torch
            with torch.no_grad():
                for x, y in loader:
                    counts += torch.bincount(y)
            """,
        ),
    ),
)


@ROUND.on("loop", "without gradients")
def loop_without_gradients(ctx: Context, found: Construct) -> Decision:
    assert isinstance(found.node, ast.For | ast.While)
    return _with_boundary(ctx, found.node)


@ROUND.on("loop", "with gradients", node=ast.For)
def loop_with_gradients(ctx: Context, found: Construct, loop: ast.For) -> Decision:
    decision = _with_boundary(ctx, loop)
    if isinstance(decision, Rewrite) and not only_evaluates(ctx.training.computation, loop):
        return Keep("its values may get a backward pass")
    return decision


@ROUND.on("advice", "For")
def loop_that_may_train(ctx: Context, found: Construct) -> Decision | None:
    loop, word = found.node, ctx.api.step_boundary
    assert isinstance(loop, ast.For)
    if word is None or any(_ends_step(ctx, statement) for statement in loop.body):
        return None
    calls = [node for node in own_nodes(loop.body) if isinstance(node, ast.Call)]
    wrapper = next((call for call in calls if may_step(ctx.names, ctx.flow, call)), None)
    if wrapper is not None and not trains(loop):
        waits = any(ctx.names.qualified(call.func) == "torch.cuda.synchronize" for call in calls)
        if waits or ctx.training.computation.called(wrapper):
            return None
        return advice(
            f"{ctx.source.code(wrapper.func)}(…) may step the optimizer: if it does, and doesn't "
            f"end with {word.code}, put one after it, or the graph grows with each step"
        )
    if samples(ctx.names, ctx.flow, loop) and not any(each.node is loop for each in ctx.constructs):
        return advice(
            "if no gradients are recorded here, the graph grows with each iteration, and takes "
            f"minutes to compile: end each iteration with {word.code}"
        )
    if loop not in ctx.training.hot.evaluations:
        return None
    if trains_in_calls(ctx.training.computation, loop):
        return None
    if isinstance(_with_boundary(ctx, loop), Keep):
        return None
    return advice(
        "if nothing here is trained, the graph grows with each batch: run the loop under "
        f"torch.no_grad(), and end each iteration with {word.code}"
    )


def _with_boundary(ctx: Context, loop: ast.For | ast.While) -> Rewrite | Keep:
    word = ctx.api.step_boundary
    if word is None:
        return Keep("runs iteration by iteration")
    if ctx.file.is_without_device:
        return Keep("nothing here uses a device")
    end = end_of_round(ctx.names, ctx.flow, loop)
    if end is None:
        return Keep("each iteration reads the model's output")
    if _ends_step(ctx, loop):
        return Keep("the step boundary is there")
    return Rewrite([Insert(ctx.names.tree, end, [word.code])], word.requires)


@STEP.on("method", "step")
def step(ctx: Context, found: Construct) -> Decision:
    call = ctx.names.call_of(found.node)
    assert call is not None
    word = ctx.api.step_boundary
    if word is None:
        return Keep("nothing has to follow an optimizer's step")
    if ctx.file.is_without_device:
        return Keep("nothing here uses a device")
    if not isinstance(ctx.names.parent(call), ast.Expr | ast.Assign):
        return Report(f"a step inside an expression; put {word.code} after its statement")
    if is_of_an_optimizer(ctx.names, call):
        return Keep("the boundary comes after the step that it is part of")
    end = end_of_step(ctx.names, call)
    if any(_ends_step(ctx, s) for s in following(ctx.names, end)[:1]):
        return Keep("the step boundary is there")
    if _is_covered(ctx, call, end):
        return Keep("the boundary after the last step covers it")
    return Rewrite([Insert(ctx.names.tree, end, [word.code])], word.requires)


def _ends_step(ctx: Context, node: ast.AST) -> bool:
    """Whether the step boundary is in this statement, also under its older name."""
    word, text = ctx.api.step_boundary, ast.unparse(node)
    return word is not None and (word.code in text or "mark_step(" in text)


def _is_covered(ctx: Context, call: ast.Call, end: ast.stmt) -> bool:
    """Whether an earlier step has the same end: one boundary is enough."""
    for construct in ctx.constructs:
        if construct.kind == "method" and construct.key == "step":
            other = ctx.names.call_of(construct.node)
            if other is not None and end_of_step(ctx.names, other) is end:
                return other is not call
    return False


@UNCLEAR.on("method", "unclear step")
def unclear(ctx: Context, found: Construct) -> Decision:
    if ctx.api.step_boundary is None:
        return Keep("if it is an optimizer's step, nothing has to follow it")
    return Report(
        f"this may be an optimizer's step; if it is, put {ctx.api.step_boundary.code} after it"
    )
