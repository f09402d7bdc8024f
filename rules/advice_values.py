"""Advice on values of tensors: types that the hardware lacks, and values from the host."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Kind,
    Rule,
    Safety,
    advice,
    argument,
    dotted,
)

_GUIDE = "https://cloud.google.com/tpu/docs/performance-guide"
_CLASS = "import torch\nfrom torch import nn\n\nmodel = Net().cuda()\n\n\nclass Net(nn.Module):\n"

FROM_HOST = Rule(
    code="ADV008",
    name="tensor-from-the-host",
    summary="a tensor of Python numbers made in a forward pass is sent to the device each time",
    safety=Safety.DISPLAY_ONLY,
    why="""`torch.tensor([…])` and `torch.from_numpy` copy host memory to the device in every call;
on torch_xla each copy is a transfer. A buffer that `__init__` registers moves once, with the model
(`persistent=False` keeps it out of checkpoints). On torchax the numbers become constants of the
compiled program, so there is no advice; nor is there for tensors that stay on the host.""",
    examples=(
        Example.moved(
            _CLASS + "    def forward(self, x):\n"
            "        mean = torch.tensor([0.5, 0.4, 0.3], device=x.device)\n"
            "        return x - mean\n"
        ),
        Example.moved(
            _CLASS + "    def __init__(self):\n        super().__init__()\n"
            "        mean = torch.tensor([0.5, 0.4, 0.3])\n"
            '        self.register_buffer("mean", mean, persistent=False)\n\n'
            "    def forward(self, x):\n        return x - self.mean\n"
        ),
        Example.moved(
            """
            import torch
            from torch import nn

            model = Net().cuda()


            class Net(nn.Module):
                def forward(self, x, scale):
                    return x * torch.tensor([scale, 1.0], device=x.device)  # another in each call
            """
        ),
        Example.moved(
            """
            import torch
            from torch import nn

            model = Net().cuda()


            class Net(nn.Module):
                def forward(self, x):
                    sizes = torch.tensor([2, 3])  # stays on the host
                    return x.view(*sizes.tolist())
            """
        ),
    ),
)

WIDE = Rule(
    code="ADV009",
    name="64-bit-values",
    summary="a TPU computes in 32 bits: float64 changes or is slow, large integers don't fit",
    safety=Safety.DISPLAY_ONLY,
    why="""No TPU has 64-bit arithmetic. On torchax, float64 becomes float32 on the device, with a
warning, and moving an int64 value beyond 2³¹ raises an error (`JAX_ENABLE_X64=1` turns JAX's 64-bit
types on). On torch_xla float64 is emulated, which is slow. Tensors on the CPU don't change.

If you need the precision (the angles of a position embedding), compute once on the CPU, in
`__init__`, and register the result as a float32 buffer.""",
    examples=(
        Example.moved(
            _CLASS + "    def forward(self, x):\n        return self.head(x.double().mean(1))\n"
        ),
        Example.moved(_CLASS + "    def forward(self, x):\n        return self.head(x.mean(1))\n"),
        Example.moved(
            """
            import torch

            model = Net().cuda()
            for x in batches:
                total = model(x).cpu().double().sum()
            """
        ),
        Example.moved(
            """
            import torch

            model = Net().cuda()
            weights = torch.tensor(counts, dtype=torch.float64).reciprocal().float()
            """
        ),
    ),
    references=(
        "https://docs.jax.dev/en/latest/notebooks/Common_Gotchas_in_JAX.html#double-64bit-precision",
    ),
)

HALF = Rule(
    code="ADV010",
    name="float16",
    summary="float16 has no hardware on a TPU; bfloat16 is its 16-bit type",
    safety=Safety.DISPLAY_ONLY,
    why="""The compiler converts float16 for every product. bfloat16 takes the same memory, is what
the matrix unit multiplies, and has the range of float32, so nothing overflows. It keeps 8 bits of a
number instead of 11, so the type only changes if you ask. `.half()` belongs to PRE005, autocast to
PRE003.""",
    examples=(
        Example.moved(
            "import torch\n\nmodel.cuda()\n"
            "pipe = Pipeline.from_pretrained(name, torch_dtype=torch.float16)\n"
        ),
        Example.moved(
            "import torch\n\nmodel.cuda()\n"
            "pipe = Pipeline.from_pretrained(name, torch_dtype=torch.bfloat16)\n"
        ),
        Example.moved(
            """
            import torch

            model.cuda()
            if weights.dtype == torch.float16:
                weights = weights.float()
            """
        ),
        Example.moved(
            """
            import torch

            model = Net().cuda()
            small = model(x).cpu().to(torch.float16)  # for a file
            """
        ),
    ),
    references=("https://cloud.google.com/tpu/docs/bfloat16",),
)

# ---- from the host -------------------------------------------------------------------------------

_TRANSFER = advice(
    "sent to the device in each call: make it a buffer in __init__ (register_buffer), which moves "
    "with the model",
)


@FROM_HOST.on(
    "advice",
    "tensor()",
    "from_numpy()",
    "as_tensor()",
    "FloatTensor()",
    "LongTensor()",
    node=ast.Call,
)
def from_host(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    if ctx.api.compiles_constants or not call.args:
        return None
    name = ctx.names.qualified(call.func) or ""
    if name.count(".") != 1 or not name.startswith("torch."):
        return None
    value = call.args[0]
    if name != "torch.from_numpy" and not isinstance(value, ast.List | ast.Tuple | ast.ListComp):
        return None
    if not ctx.training.hot.in_pass(call) or _is_of_call(ctx, value):
        return None
    return _TRANSFER if _is_sent(ctx, call) else None


def _is_sent(ctx: Context, made: ast.expr) -> bool:
    """Whether a tensor is known to be on the device: made there, or moved, also by its name."""
    device = argument(made, None, "device") if isinstance(made, ast.Call) else None
    if device is not None:
        return ctx.flow.kind(device) != Kind.CPU
    method = ctx.names.parent(made)
    if isinstance(method, ast.Attribute) and (call := ctx.names.call_of(method)) is not None:
        if method.attr in ("cuda", "to", "type_as"):
            to = call.args[0] if call.args else argument(call, None, "device")
            if to is None:
                return method.attr == "cuda"
            return not ctx.flow.kind(to) & (Kind.DTYPE | Kind.CPU)
        return _is_sent(ctx, call)
    match method:
        case ast.Assign(targets=[ast.Name() as target]):
            uses = ctx.names.uses(target.id, ctx.names.scope_of(target))
            return any(_is_sent(ctx, use) for use in uses)
    return False


def _is_of_call(ctx: Context, value: ast.expr) -> bool:
    """Whether a value depends on computations of the forward pass, so that no buffer could hold
    it."""
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            for binding in ctx.names.lookup(node):
                scope = ctx.names.scope_of(node).node
                if binding.kind != "import" and isinstance(scope, ast.FunctionDef):
                    if not (scope.args.args and node.id == scope.args.args[0].arg):
                        return True
    return False


# ---- 64 bits -------------------------------------------------------------------------------------


@WIDE.on("advice", ".float64", ".double", node=ast.Attribute)
def double(ctx: Context, found: Construct, node: ast.Attribute) -> Decision | None:
    name = ctx.names.qualified(node)
    if name not in ("torch.float64", "torch.double"):
        return None
    call = _call_with(ctx, node)
    if call is None or (
        argument(call, None, "device") is None and not ctx.training.hot.is_tensor(call)
    ):
        return None
    return _wide(ctx, call)


@WIDE.on("advice", "double()", node=ast.Call)
def double_method(ctx: Context, found: Construct, call: ast.Call) -> Decision | None:
    if not isinstance(call.func, ast.Attribute) or call.args:
        return None
    owner = call.func.value
    is_module = ctx.flow.kind(owner) & Kind.MODULE or ctx.training.hot.is_model(owner)
    if is_module or ctx.training.hot.may_be_tensor(owner):
        return _wide(ctx, call, everywhere=bool(is_module))
    return None


def _wide(ctx: Context, call: ast.Call, everywhere: bool = False) -> Decision | None:
    """Only for tensors on the device: the CPU has 64 bits."""
    device = argument(call, None, "device")
    if device is not None and ctx.flow.kind(device) == Kind.CPU:
        return None
    if device is None and not everywhere:
        if not ctx.training.hot.is_hot(call):
            return None
    return advice(
        f"{ctx.api.float64}: compute in float32, or compute what needs the precision "
        "once on the CPU"
    )


def _call_with(ctx: Context, node: ast.expr) -> ast.Call | None:
    """The call that gets a dtype: as `dtype=`, or as the first argument of `to` and `type`."""
    parent = ctx.names.parent(node)
    if isinstance(parent, ast.keyword) and parent.arg in ("dtype", "torch_dtype"):
        call = ctx.names.parent(parent)
        return call if isinstance(call, ast.Call) else None
    if isinstance(parent, ast.Call) and node in parent.args:
        if isinstance(parent.func, ast.Attribute) and parent.func.attr in ("to", "type"):
            return parent
    return None


@WIDE.on("advice", "Constant", node=ast.Constant)
def large(ctx: Context, found: Construct, node: ast.Constant) -> Decision | None:
    if type(node.value) is not int or node.value < 2**31:
        return None
    parent = ctx.names.parent(node)
    beside: list[ast.expr] = []
    match parent:
        case ast.BinOp(left=left, right=right):
            beside = [left, right]
        case ast.Call(func=ast.Attribute(value=owner)):
            beside = [owner]
    if not any(ctx.training.hot.is_tensor(value) for value in beside):
        return None
    return advice(
        "a TPU computes in 32 bits, and integers beyond 2**31 do not fit: do this on the CPU"
    )


# ---- 16 bits -------------------------------------------------------------------------------------


@HALF.on("advice", ".float16", ".half", node=ast.Attribute)
def half(ctx: Context, found: Construct, node: ast.Attribute) -> Decision | None:
    if ctx.names.qualified(node) not in ("torch.float16", "torch.half"):
        return None
    given: ast.expr = node
    parent = ctx.names.parent(node)
    if isinstance(parent, ast.IfExp) and node in (parent.body, parent.orelse):
        other = parent.orelse if node is parent.body else parent.body
        if (ctx.names.qualified(other) or "").endswith("bfloat16"):
            return None
        given = parent
    call = _call_with(ctx, given)
    if call is None and not _names_dtype(ctx, given):
        return None
    if call is not None:
        if (ctx.names.qualified(call.func) or dotted(call.func) or "").endswith("autocast"):
            return None
        device = argument(call, None, "device")
        if device is not None and ctx.flow.kind(device) == Kind.CPU:
            return None
        if isinstance(call.func, ast.Attribute) and ctx.training.hot.is_on_host(call.func.value):
            return None
    return advice(
        "float16 has no hardware on a TPU, and is converted for every product: bfloat16 is "
        "its 16-bit type"
    )


def _names_dtype(ctx: Context, node: ast.expr) -> bool:
    """`dtype = torch.float16`"""
    match ctx.names.parent(node):
        case ast.Assign(targets=[target], value=value) if value is node:
            return "dtype" in (dotted(target) or "")
    return False
