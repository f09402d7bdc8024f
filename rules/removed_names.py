"""Names that PyTorch and NumPy had, and no longer have in the versions that a TPU needs."""

import ast

from migrator.construct import Construct
from migrator.diagnostics import Effort
from migrator.edits import Replace
from migrator.rule import Context, Decision, Example, Keep, Report, Rewrite, Rule

REMOVED = Rule(
    code="LIB010",
    name="removed-name",
    summary="a name that PyTorch or NumPy no longer has in the versions that a TPU needs",
    why="""Programs for GPUs often pin old versions; a TPU needs PyTorch 2.9 and NumPy 2. NumPy's
names that stood for another one are replaced by that. What has other arguments or results now is
reported, with what takes its place. Only programs that use a device are looked at.""",
    references=(
        "https://numpy.org/doc/stable/numpy_2_0_migration_guide.html",
        "https://numpy.org/doc/stable/release/1.20.0-notes.html",
    ),
    effort=Effort.MINUTES,
    examples=(
        Example(
            """
            import numpy as np
            import torch
            x = torch.ones(3).cuda()
            y = np.array([np.Inf], dtype=np.float)
            """,
            after="""
            import numpy as np
            import torch
            x = torch.ones(3).to("{device}")
            y = np.array([np.inf], dtype=float)
            """,
        ),
        Example(
            """
            import torch
            values, vectors = torch.symeig(torch.eye(3).cuda(), eigenvectors=True)
            """,
            after="""
            import torch
            values, vectors = torch.symeig(torch.eye(3).to("{device}"), eigenvectors=True)
            """,
        ),
    ),
)

# NumPy's other names for what is there.
_BUILTIN = {
    "float": "float", "int": "int", "object": "object", "complex": "complex",
    "str": "str", "unicode": "str",
}  # fmt: skip
_RENAMED = {
    "float_": "float64", "complex_": "complex128", "unicode_": "str_", "string_": "bytes_",
    "Inf": "inf", "Infinity": "inf", "infty": "inf", "PINF": "inf", "NaN": "nan", "NAN": "nan",
    "product": "prod", "cumproduct": "cumprod", "sometrue": "any", "alltrue": "all",
    "round_": "round", "mat": "asmatrix",
}  # fmt: skip
_INSTEAD = {
    "numpy.NINF": "-numpy.inf",
    "numpy.in1d": "numpy.isin of both, raveled",
    "numpy.trapz": "numpy.trapezoid, or scipy.integrate.trapezoid",
    "numpy.msort": "numpy.sort(…, axis=0)",
    "numpy.asfarray": "numpy.asarray(…, dtype=float)",
    "numpy.find_common_type": "numpy.result_type",
    "numpy.issctype": "isinstance(…, type) and issubclass(…, numpy.generic)",
    "numpy.asscalar": "`.item()`",
    "numpy.typeDict": "numpy.dtype(name).type",
    "numpy.disp": "print",
    "numpy.byte_bounds": "numpy.lib.array_utils.byte_bounds",
    "torch.symeig": "torch.linalg.eigh, whose results are in the same order",
    "torch.eig": "torch.linalg.eig, whose results are complex",
    "torch.lstsq": "torch.linalg.lstsq, with the arguments the other way round",
    "torch.gels": "torch.linalg.lstsq, with the arguments the other way round",
    "torch.solve": "torch.linalg.solve, with the arguments the other way round",
    "torch.gesv": "torch.linalg.solve, with the arguments the other way round",
    "torch.matrix_rank": "torch.linalg.matrix_rank",
    "torch.btrifact": "torch.linalg.lu_factor",
    "torch.btrisolve": "torch.linalg.lu_solve",
    "torch.potrf": "torch.linalg.cholesky",
    "torch.potrs": "torch.cholesky_solve",
    "torch.potri": "torch.cholesky_inverse",
    "torch.trtrs": "torch.linalg.solve_triangular",
    "torch.rfft": "torch.fft.rfftn, whose results are complex",
    "torch.irfft": "torch.fft.irfftn, which takes complex numbers",
    "torch.ifft": "torch.fft.ifftn, which takes complex numbers",
    "torch._six.string_classes": "str",
    "torch._six.int_classes": "int",
    "torch._six.container_abcs": "collections.abc",
    "torch._six.inf": "math.inf",
    "torch.utils.data._utils.collate.string_classes": "str",
    "torch.utils.data._utils.collate.container_abcs": "collections.abc",
}
# Modules that are gone as a whole.
_MODULES = {
    "torchvision.transforms.functional_tensor": "torchvision.transforms.functional",
    "torchvision.models.utils": "torch.hub",
    "torch.utils.ffi": "torch.utils.cpp_extension",
}


@REMOVED.on("name", *(f"{module}*" for module in sorted(_MODULES)))
def of_module(ctx: Context, found: Construct) -> Decision:
    if ctx.names.is_guarded_import(found.node):
        return Keep("the import fails, and the fallback is used")
    module = next(each for each in _MODULES if found.key.startswith(each))
    return Report(f"there is no {module} any more; use {_MODULES[module]}")


@REMOVED.on("name", *(f"numpy.{name}" for name in sorted({*_BUILTIN, *_RENAMED})))
def other_name(ctx: Context, found: Construct) -> Decision | None:
    node, name = found.node, found.key.rpartition(".")[2]
    if not _is_of_gpu_code(ctx):
        return None
    if not isinstance(node, ast.Attribute) or ctx.names.is_question(node):
        return Report(f"NumPy 2 has no {name}: use {_of(name)}")
    if name in _BUILTIN:
        if ctx.names.top.bindings.get(_BUILTIN[name]):
            return Report(f"NumPy 2 has no {name}: use Python's own {_BUILTIN[name]}")
        return Rewrite([Replace(node, _BUILTIN[name])])
    return Rewrite([Replace(node, f"{ast.unparse(node.value)}.{_RENAMED[name]}")])


@REMOVED.on("name", *sorted(_INSTEAD))
def removed(ctx: Context, found: Construct) -> Decision | None:
    if found.key.startswith("numpy.") and not _is_of_gpu_code(ctx):
        return None
    if ctx.names.is_guarded_import(found.node):
        return Keep("the import fails, and the fallback is used")
    library = "NumPy 2" if found.key.startswith("numpy.") else "PyTorch"
    return Report(f"{library} no longer has it; use {_INSTEAD[found.key]}")


def _of(name: str) -> str:
    return _BUILTIN.get(name) or f"numpy.{_RENAMED[name]}"


def _is_of_gpu_code(ctx: Context) -> bool:
    """Whether this file is part of a program that uses a device."""
    project = ctx.project
    return ctx.uses_device or (project is not None and project.is_imported_by_gpu_code())
