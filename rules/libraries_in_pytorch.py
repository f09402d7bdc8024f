"""Libraries for CUDA whose functions the runtime has in PyTorch, by the same names."""

import ast
from collections.abc import Iterator, Mapping

from migrator.rule_api import (
    RUNTIME,
    Construct,
    Context,
    Decision,
    Delete,
    Edit,
    EditImport,
    Effort,
    Example,
    Insert,
    Replace,
    Report,
    Rewrite,
    Rule,
    Signature,
)
from migrator.rule_api.libraries import MODULES, is_optional

IN_PYTORCH = Rule(
    code="LIB020",
    name="library-in-pytorch",
    summary="functions of libraries for CUDA come from the runtime, which has them in PyTorch",
    why="""Only the import changes. The runtime has functions of torch_scatter, torch_cluster,
`pointnet2_ops.pointnet2_utils`, `mmcv.ops` and KNN_CUDA, detectron2's deformable convolutions, and
functions of the extensions `chamfer`, `MultiScaleDeformableAttention` and, of StyleGAN2,
`upfirdn2d` and `fused`: the same arguments, results and gradients, in PyTorch. Except for
torch_cluster's, shapes don't depend on data.

torch_scatter's functions without `dim_size` read the number of results from the index, as the
library does: give it where it is known. How many pairs torch_cluster's find depends on the points,
so their number is read, too. If a file uses something else of a library, all of it is reported.""",
    effort=Effort.HOURS,
    for_cuda=True,
    references=(
        "https://pytorch-scatter.readthedocs.io",
        "https://github.com/rusty1s/pytorch_cluster",
        "https://github.com/erikwijmans/Pointnet2_PyTorch",
        "https://github.com/unlimblue/KNN_CUDA",
        "https://mmcv.readthedocs.io/en/latest/api.html#module-mmcv.ops",
        "https://github.com/fundamentalvision/Deformable-DETR",
        "https://github.com/rosinality/stylegan2-pytorch",
    ),
    examples=(
        Example(
            """
            from torch_scatter import scatter_add, scatter_mean


            def pool(x, batch):
                return scatter_mean(x, batch, dim=0, dim_size=32)
            """,
            after="""
            from tpu_runtime.torch_scatter import scatter_add, scatter_mean


            def pool(x, batch):
                return scatter_mean(x, batch, dim=0, dim_size=32)
            """,
        ),
        Example(
            """
            from pointnet2_ops import pointnet2_utils
            index = pointnet2_utils.furthest_point_sample(points, 512)
            """,
            after="""
            from tpu_runtime import pointnet2_utils
            index = pointnet2_utils.furthest_point_sample(points, 512)
            """,
        ),
        Example(
            """
            from torch.utils.cpp_extension import load
            upfirdn2d_op = load("upfirdn2d", sources=["upfirdn2d.cpp", "upfirdn2d_kernel.cu"])


            def blur(x, kernel):
                return upfirdn2d_op.upfirdn2d(x, kernel, 1, 1, 1, 1, 2, 1, 2, 1)
            """,
            after="""
            from tpu_runtime import stylegan_ops as upfirdn2d_op


            def blur(x, kernel):
                return upfirdn2d_op.upfirdn2d(x, kernel, 1, 1, 1, 1, 2, 1, 2, 1)
            """,
        ),
        Example(
            """
            from detectron2.layers import DeformConv, ShapeSpec
            from mmcv.ops import point_sample


            def layer(shape: ShapeSpec):
                return DeformConv(shape.channels, 8, 3, padding=1)
            """,
            after="""
            from detectron2.layers import ShapeSpec
            from tpu_runtime.mmcv_ops import point_sample
            import tpu_runtime.deform_conv


            def layer(shape: ShapeSpec):
                return tpu_runtime.deform_conv.DeformConv(shape.channels, 8, 3, padding=1)
            """,
        ),
        Example(
            """
            from torch_scatter import scatter_std
            spread = scatter_std(x, index)
            """,
            says={1: "the runtime has no counterpart for scatter_std"},
        ),
        Example(
            """
            try:
                from torch_scatter import scatter_add
            except ImportError:
                scatter_add = None
            """,
        ),
    ),
)

# The runtime's modules, by those of libraries that have the same functions.
_MODULES = {
    "torch_scatter": "torch_scatter",
    "torch_scatter.scatter": "torch_scatter",
    "torch_scatter.composite": "torch_scatter",
    "torch_cluster": "torch_cluster",
    "torch_cluster.knn": "torch_cluster",
    "torch_cluster.radius": "torch_cluster",
    "pointnet2_ops.pointnet2_utils": "pointnet2_utils",
    "knn_cuda": "knn_cuda",
    "chamfer": "chamfer",
    "MultiScaleDeformableAttention": "ms_deform_attn",
    **{f"mmcv.ops{module}": "mmcv_ops"
       for module in ("", ".deform_conv", ".focal_loss", ".modulated_deform_conv",
                      ".multi_scale_deform_attn", ".nms", ".point_sample", ".roi_align")},
}  # fmt: skip
_LIBRARIES = {
    library for library in MODULES for each in _MODULES if f"{each}.".startswith(f"{library}.")
}
# What detectron2 compiles itself; its other operators are torchvision's.
_DEFORM_CONV = "deform_conv"  # the runtime's module
_DEFORMABLE = {
    f"detectron2.layers.{module}{name}": name
    for module, names in {
        "": ("DeformConv", "ModulatedDeformConv"),
        "deform_conv.": (
            "DeformConv",
            "ModulatedDeformConv",
            "deform_conv",
            "modulated_deform_conv",
        ),
    }.items()
    for name in names
}
# Arguments that a function of the runtime has for the sake of its place only; and one whose values
# aren't all served.
_NONE = {"scatter_max": "out", "scatter_min": "out", "segment_csr": "out"}
_REDUCTIONS = ("sum", "add", "mean", "min", "max")
# The extensions of StyleGAN2: the name under which each is compiled, and a part of its sources'.
_STYLEGAN = {"upfirdn2d": "upfirdn2d", "fused": "fused_bias_act"}


@IN_PYTORCH.on("library", *sorted(_LIBRARIES))
def imported(ctx: Context, found: Construct) -> Decision | None:
    if is_optional(ctx.names, found.node, found.key) or ctx.file.is_own(found.key):
        return None
    statement = ctx.names.statement(found.node)
    if isinstance(statement, ast.Import):
        return _module(ctx, statement, found.key)
    assert isinstance(statement, ast.ImportFrom)
    names = [alias.name for alias in statement.names]
    if (module := _MODULES.get(statement.module or "")) is not None:
        offered = ctx.target.signatures(module)
        problem = _missing(names, offered) or _refused(ctx, statement, offered)
        return _decided([EditImport(statement, module=f"{RUNTIME}.{module}")], problem, found.key)
    modules = [_MODULES.get(f"{statement.module}.{name}") for name in names]
    if len(modules) == 1 and modules[0] is not None:
        alias, new = statement.names[0], modules[0]
        text = new if (alias.asname or alias.name) == new else f"{new} as {alias.asname}"
        problem = _used(ctx, statement, alias.asname or alias.name, ctx.target.signatures(new))
        return _decided([EditImport(statement, (), {alias: text}, RUNTIME)], problem, found.key)
    return None


def _module(ctx: Context, statement: ast.Import, library: str) -> Decision | None:
    """`import torch_scatter as ts`"""
    alias = statement.names[0]
    module = _MODULES.get(alias.name)
    if module is None or len(statement.names) > 1 or ("." in alias.name and not alias.asname):
        return None
    local = alias.asname or alias.name
    text = f"from {RUNTIME} import " + (module if local == module else f"{module} as {local}")
    problem = _used(ctx, statement, local, ctx.target.signatures(module))
    return _decided(_instead(ctx, statement, text), problem, library)


@IN_PYTORCH.on("name", "torch.utils.cpp_extension.load")
def compiled(ctx: Context, found: Construct) -> Decision | None:
    """`fused = load("fused", sources=[…"fused_bias_act.cpp"…])`"""
    call = ctx.names.call_of(found.node)
    statement = ctx.names.statement(found.node)
    match call, statement:
        case (
            ast.Call(args=[ast.Constant(value=name)])
            | ast.Call(
                args=[], keywords=[ast.keyword(arg="name", value=ast.Constant(value=name)), *_]
            ),
            ast.Assign(targets=[ast.Name(id=local)], value=value),
        ) if value is call and name in _STYLEGAN and statement in ctx.names.tree.body:
            pass
        case _:
            return None
    texts = [str(n.value) for n in ast.walk(call) if isinstance(n, ast.Constant)]
    if not any(text.endswith(f"{_STYLEGAN[name]}.cpp") for text in texts):
        return None
    problem = _used(ctx, statement, local, ctx.target.signatures("stylegan_ops"))
    if problem:
        return None
    text = f"from {RUNTIME} import stylegan_ops as {local}"
    return Rewrite(_instead(ctx, statement, text), note=_NOTE)


@IN_PYTORCH.on("name", *_DEFORMABLE)
def deformable(ctx: Context, found: Construct) -> Decision | None:
    """`detectron2.layers.DeformConv(…)`"""
    name, node = _DEFORMABLE[found.key], found.node
    if ctx.file.is_own("detectron2") or not isinstance(node, ast.expr):
        return None
    signature = ctx.target.signatures(_DEFORM_CONV).get(name)
    if signature is None:
        return Report(f"detectron2 compiles {name} for CUDA, and {ctx.target.name} has none")
    module = f"{RUNTIME}.{_DEFORM_CONV}"
    if not all(signature.takes(call) for call, _ in ctx.names.calls(node)):
        return Report(f"{name} is called with other arguments than the runtime's")
    return Rewrite([Replace(node, f"{module}.{name}")], (module,), note=_NOTE)


def _instead(ctx: Context, statement: ast.stmt, text: str) -> list[Edit]:
    return [Insert(ctx.names.tree, statement, [text], before=True), Delete(statement)]


_NOTE = "the runtime has these functions in PyTorch"


def _decided(edits: list[Edit], problem: str, library: str) -> Decision:
    if not problem:
        return Rewrite(edits, note=_NOTE)
    known = MODULES[library]
    effort = Effort.REWRITE if known.kernels else None
    return Report(f"{problem}; {known.reason(library)}", effort=effort)


def _missing(names: list[str], offered: Mapping[str, Signature]) -> str:
    missing = [name for name in dict.fromkeys(names) if name not in offered]
    return f"the runtime has no counterpart for {', '.join(missing)}" if missing else ""


def _used(ctx: Context, statement: ast.stmt, local: str, offered: Mapping[str, Signature]) -> str:
    """What a module is used for that the runtime doesn't have; "" if it has all."""
    attributes = [
        ctx.names.parent(use) for use in ctx.names.uses(local, ctx.names.scope_of(statement))
    ]
    if not all(isinstance(each, ast.Attribute) for each in attributes):
        return f"{local} is passed on as a whole: import its functions"
    names = [each.attr for each in attributes if isinstance(each, ast.Attribute)]
    return _missing(names, offered) or _refused(ctx, statement, offered)


def _refused(ctx: Context, statement: ast.stmt, offered: Mapping[str, Signature]) -> str:
    """The call that a function of the runtime doesn't serve; "" if there is none."""
    for name, call in _calls(ctx, statement):
        place = f"line {call.lineno}: {name}"
        signature = offered[name]
        if not signature.takes(call):
            return f"{place} is called with other arguments than the runtime's"
        given = dict(zip(signature.parameters, call.args, strict=False))
        given |= {k.arg: k.value for k in call.keywords if k.arg}
        argument = given.get(_NONE.get(name, ""))
        if argument is not None and not _is(argument, None):
            return f"{place} is called with {_NONE[name]}, which the runtime's doesn't serve"
        pool = given.get("pool_mode")
        if isinstance(pool, ast.Constant) and not _is(pool, "avg"):
            return f"{place}: the runtime has no pool_mode {pool.value!r}"
        reduction = given.get("reduce")
        if isinstance(reduction, ast.Constant) and not _is(reduction, *_REDUCTIONS):
            return f"{place}: the runtime has no reduction {reduction.value!r}"
    return ""


def _is(node: ast.expr, *values: object) -> bool:
    return isinstance(node, ast.Constant) and node.value in values


def _calls(ctx: Context, statement: ast.stmt) -> Iterator[tuple[str, ast.Call]]:
    """The calls of what a statement binds, each with the name of the function."""
    scope = ctx.names.scope_of(statement)
    if isinstance(statement, ast.ImportFrom) and statement.module in _MODULES:
        bound = {alias.asname or alias.name: alias.name for alias in statement.names}
        for local, name in bound.items():
            for use in ctx.names.uses(local, scope):
                yield from ((name, call) for call, _ in ctx.names.calls(use))
        return
    target = statement.names[0] if isinstance(statement, ast.Import | ast.ImportFrom) else None
    local = (
        (target.asname or target.name) if target is not None else statement.targets[0].id  # type: ignore[attr-defined]
    )
    for use in ctx.names.uses(local, scope):
        above = ctx.names.parent(use)
        if isinstance(above, ast.Attribute):
            yield from ((above.attr, call) for call, _ in ctx.names.calls(above))
