"""Advice on values that are read: the program waits for the device."""

import ast
import re

from migrator.analysis.syntax.nodes import argument, dotted
from migrator.analysis.training.loops import READING_METHODS, is_optimizer_step
from migrator.analysis.training.passes import reads_in_passes
from migrator.construct import Construct
from migrator.diagnostics import Safety
from migrator.rule import Context, Decision, Example, Keep, Rule, advice

_TROUBLE = "https://docs.pytorch.org/xla/release/r2.8/learn/troubleshoot.html"

READ = Rule(
    code="ADV003",
    name="read-in-each-round",
    summary="a value that is read in each iteration makes the program wait for the device",
    safety=Safety.DISPLAY_ONLY,
    why="""Python prepares the next iteration while the device still computes this one, until a
value is needed: `.item()`, `.cpu()`, `.tolist()`, `float()` and `print` wait for it. In a
forward pass, reading a value also prevents compiling the model as a whole. Sums and lists of
tensors stay on the device without waiting. Read them after the loop, or every N iterations: a
read under an `if` that counts iterations is fine. In iterations that train, see TRN005.""",
    examples=(
        Example.moved(
            "import torch\n\nmodel = Net().cuda()\ntotal = 0.0\nfor x, y in batches:\n"
            "    loss = loss_fn(model(x), y)\n    total += loss.item()\nprint(total)\n"
        ),
        Example.moved(
            "import torch\n\nmodel = Net().cuda()\ntotal = 0.0\nfor x, y in batches:\n"
            "    loss = loss_fn(model(x), y)\n    total += loss.detach()\nprint(float(total))\n"
        ),
    ),
    references=(_TROUBLE,),
)

BRANCH = Rule(
    code="ADV007",
    name="branch-on-tensor",
    summary="a branch on the value of a tensor waits, and splits the program",
    safety=Safety.DISPLAY_ONLY,
    why="""`if x.max() > 1:` needs a value: the device must have computed it before Python can go
on, and the model can't be compiled as a whole. `torch.clamp`, and `torch.where(condition, this,
that)`, which computes both and chooses, stay on the device. Do checks (for NaN, for ranges)
every N iterations, or only while debugging. In iterations that train, see TRN005. Branches on
`torch.all` and `torch.any` in a forward pass belong to TEN001, which rewrites some of them.""",
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
    ),
    references=(_TROUBLE,),
)

STEP = Rule(
    code="TRN005",
    name="divided-step",
    summary="a value that is read in the middle of a training step divides its program in two",
    safety=Safety.DISPLAY_ONLY,
    why="""torchax and torch_xla record the operations of a step, and compute them as one program:
forward pass, loss, backward pass, clipping, and the optimizer's step. A value that Python reads
before the step is over (`.item()`, `.cpu()`, `float()`, `print`, `if loss > 5:`) is computed at
once, so the step becomes two programs, and more is kept in memory between them. After
`optimizer.step()` a read divides nothing, and gets no advice. So read losses and scores there; a
condition becomes `torch.where`, or is checked every N iterations. Models from other files that
read values in their forward pass are named here, too: docs/compiled-steps.md.""",
    examples=(
        Example(
            """
            import torch

            model = Net().cuda()
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            total = 0.0
            for x, y in batches:
                opt.zero_grad()
                loss = loss_fn(model(x), y)
                total += loss.item()
                loss.backward()
                opt.step()
            """,
            after="""
            import torch

            model = Net().to("{device}")
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            total = 0.0
            for x, y in batches:
                opt.zero_grad()
                loss = loss_fn(model(x), y)
                total += loss.item()
                loss.backward()
                opt.step()
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla

                model = Net().to("{device}")
                opt = torch.optim.SGD(model.parameters(), lr=0.1)
                total = 0.0
                for x, y in batches:
                    opt.zero_grad()
                    loss = loss_fn(model(x), y)
                    total += loss.item()
                    loss.backward()
                    opt.step()
                    torch_xla.sync()
                """
            },
        ),
        Example(
            """
            import torch

            model = Net().cuda()
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            total = 0.0
            for x, y in batches:
                opt.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                opt.step()
                total += loss.item()
            """,
            after="""
            import torch

            model = Net().to("{device}")
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            total = 0.0
            for x, y in batches:
                opt.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                opt.step()
                total += loss.item()
            """,
            except_on={
                "torch_xla": """
                import torch
                import torch_xla

                model = Net().to("{device}")
                opt = torch.optim.SGD(model.parameters(), lr=0.1)
                total = 0.0
                for x, y in batches:
                    opt.zero_grad()
                    loss = loss_fn(model(x), y)
                    loss.backward()
                    opt.step()
                    torch_xla.sync()
                    total += loss.item()
                """
            },
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


@READ.on("advice", "item()", "cpu()", "tolist()")
def read(ctx: Context, found: Construct) -> Decision | None:
    call = found.node
    assert isinstance(call, ast.Call)
    if not isinstance(call.func, ast.Attribute) or call.args or call.keywords:
        return None
    owner = call.func.value
    if ctx.hot.in_pass(call):
        return _IN_PASS if ctx.hot.is_tensor(owner) and not _is_asked(ctx, call) else None
    return _use(ctx, call) if ctx.hot.is_tensor(owner) else None


def _is_asked(ctx: Context, node: ast.AST) -> bool:
    """Whether a branch tests a value, which ADV007 covers."""
    below = node
    for above in ctx.names.ancestors(node):
        if getattr(above, "test", None) is below:
            return True
        if isinstance(above, ast.stmt):
            break
        below = above
    return False


@READ.on("advice", "float()", "int()")
def converted(ctx: Context, found: Construct) -> Decision | None:
    call = found.node
    assert isinstance(call, ast.Call)
    if not isinstance(call.func, ast.Name) or len(call.args) != 1:
        return None
    return _use(ctx, call) if ctx.hot.is_tensor(call.args[0]) else None


@READ.on("advice", "print()")
def printed(ctx: Context, found: Construct) -> Decision | None:
    call = found.node
    assert isinstance(call, ast.Call)
    return _PRINTED if _in_each_round(ctx, call) and _prints_tensor(ctx, call) else None


def _prints_tensor(ctx: Context, call: ast.Call) -> bool:
    texts = [a for a in call.args if isinstance(a, ast.JoinedStr)]
    values = [v.value for t in texts for v in t.values if isinstance(v, ast.FormattedValue)]
    return any(map(ctx.hot.is_tensor, [*call.args, *values]))


def _in_each_round(ctx: Context, node: ast.AST) -> bool:
    """Whether a node is reached in each iteration of a loop in which the device works."""
    if _is_of_step(ctx, node):
        return False
    loop = ctx.hot.loop(node)
    return (
        loop is not None
        and not ctx.hot.in_some_rounds(node, loop)
        and not ctx.hot.waits_for_a_person(loop)
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
_READS = ("torch.equal", "torch.allclose", "torch.is_nonzero")


@BRANCH.on("advice", "If", "IfExp", "While", "Assert")
def branch(ctx: Context, found: Construct) -> Decision | None:
    node = found.node
    assert isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert)
    if not _asks(ctx, node.test):
        return None
    if any(c.kind == "branch" and c.node is node for c in ctx.constructs):
        return None
    if ctx.hot.in_pass(node):
        return _IN_MODEL
    if _in_each_round(ctx, node):
        return _IN_LOOP
    if isinstance(node, ast.While) and ctx.hot.works(node) and not _is_of_step(ctx, node):
        return _IN_LOOP
    return None


def _asks(ctx: Context, test: ast.expr) -> bool:
    """Whether a condition is the value of a tensor."""
    hot = ctx.hot
    match test:
        case ast.BoolOp(op=ast.And(), values=values) if any(_is_of_half(ctx, v) for v in values):
            return False  # `x.dtype == torch.float16 and torch.isinf(x).any()`
        case ast.BoolOp(values=values):
            return any(_asks(ctx, value) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _asks(ctx, operand)
        case ast.Compare(left=left, comparators=others, ops=ops):
            if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in ops):
                return False
            return any(hot.is_tensor(v) or _is_read(ctx, v) for v in (left, *others))
        case ast.Call():
            return hot.is_tensor(test) or _is_read(ctx, test)
    return False


def _is_of_half(ctx: Context, node: ast.expr) -> bool:
    match node:
        case ast.Compare(comparators=[ast.expr() as dtype]):
            return ctx.names.qualified(dtype) in ("torch.float16", "torch.half")
    return False


def _is_read(ctx: Context, node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="item", value=owner)):
            return ctx.hot.is_tensor(owner)
        case ast.Call(func=ast.Name(id="bool" | "float" | "int"), args=[value]):
            return ctx.hot.is_tensor(value)
        case ast.Call(func=function) if ctx.names.qualified(function) in _READS:
            first = argument(node, 0, "input")
            return first is not None and ctx.hot.may_be_tensor(first)
    return False


# ---- steps ---------------------------------------------------------------------------------------

_DIVIDES = advice(
    "is read between the forward pass and the optimizer's step, which divides the step into two "
    "programs: read it after the step, or compute with the tensor"
)
_DECIDES = advice(
    "asks for a value between the forward pass and the optimizer's step, which divides the step "
    "into two programs: use torch.where, or check every N iterations"
)


def _is_of_step(ctx: Context, node: ast.AST) -> bool:
    """Whether TRN005 decides: a target records what an iteration does up to its step."""
    return ctx.words.records and ctx.iterations.hold(node)


@STEP.on("advice", "item()", "cpu()", "numpy()", "tolist()", "float()", "int()", "bool()",
         "print()")  # fmt: skip
def read_in_step(ctx: Context, found: Construct) -> Decision | None:
    call = found.node
    assert isinstance(call, ast.Call)
    if not _reads_tensor(ctx, call) or ctx.hot.in_pass(call) or _is_asked(ctx, call):
        return None
    return _DIVIDES if _divides(ctx, call) else None


def _reads_tensor(ctx: Context, call: ast.Call) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[], keywords=[]):
            return method in READING_METHODS and ctx.hot.is_tensor(owner)
        case ast.Call(func=ast.Name(id="float" | "int" | "bool"), args=[value]):
            return ctx.hot.is_tensor(value)
        case ast.Call(func=ast.Name(id="print")):
            return _prints_tensor(ctx, call)
    return False


@STEP.on("advice", "If", "IfExp", "While", "Assert")
def branch_in_step(ctx: Context, found: Construct) -> Decision | None:
    node = found.node
    assert isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert)
    if not _asks(ctx, node.test) or ctx.hot.in_pass(node):
        return None
    return _DECIDES if _divides(ctx, node.test) else None


def _divides(ctx: Context, node: ast.expr) -> bool:
    if not ctx.words.records:
        return False
    return ctx.iterations.are_divided_by(node, only_steps_end=not ctx.words.holds_steps)


@STEP.on("advice", "step()")
def model_that_reads(ctx: Context, found: Construct) -> Decision | None:
    """Once in a file: at its first step."""
    call = found.node
    if not ctx.words.records or call is not _first_step(ctx):
        return None
    lines = reads_in_passes(ctx.computation)
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
