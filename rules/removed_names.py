"""Names that PyTorch, NumPy and others no longer have in the versions that a TPU needs."""

import ast
import re

from migrator.analysis.removed_names import Removed, removed
from migrator.analysis.syntax.canonical import canonical
from migrator.analysis.syntax.nodes import taken_by
from migrator.construct import Construct
from migrator.diagnostics import Effort
from migrator.edits import EditCall, Replace
from migrator.rule import Context, Decision, Example, Keep, Report, Rewrite, Rule

from .replace import renamed, with_new_names

REMOVED = Rule(
    code="LIB010",
    name="removed-name",
    summary="a name that PyTorch, NumPy or another library no longer has",
    why="""Programs for GPUs often pin old versions; a TPU needs PyTorch 2.9 and NumPy 2. 300 names
of torch, torchvision, NumPy, SciPy, Pillow, pandas, scikit-learn, Matplotlib and Python itself are
known.

What is the same under another name gets that. What has other arguments or results now is reported,
with what takes its place. Only programs that use a device are looked at.""",
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
            from collections import Iterable
            from torch._six import inf
            from PIL import Image
            x = torch.full((3,), inf).cuda()
            print(isinstance(x, Iterable), Image.ANTIALIAS)
            """,
            after="""
            import torch
            from collections.abc import Iterable
            from math import inf
            from PIL import Image
            x = torch.full((3,), inf).to("{device}")
            print(isinstance(x, Iterable), Image.LANCZOS)
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

# Modules whose names any code uses: outside of a program for GPUs they are not the tool's matter.
_OF_TORCH = ("torch.", "torchvision.")
_OF_OTHER_CODE = Keep("nothing here uses a device")


@REMOVED.on("removed", "*")
def through_module(ctx: Context, found: Construct) -> Decision | None:
    node, gone = found.node, removed(found.key)
    if gone is None:
        return None
    if not _concerns(ctx, found.key):
        return _OF_OTHER_CODE
    assert isinstance(node, ast.Attribute)
    if ctx.names.is_guarded_import(node):
        return Keep("the import fails, and the fallback is used")
    is_itself = found.key in (gone.name, canonical(gone.name))
    if not gone.exact or not is_itself or ctx.names.is_question(node):
        return _report(gone, found.key)
    if (builtin := _builtin(gone)) is not None:
        return _report(gone) if ctx.names.top.bindings.get(builtin) else _replaced(node, builtin)
    if "." not in gone.instead:
        return _report(gone)
    module, _, name = gone.instead.rpartition(".")
    if module in _LOADED and isinstance(node.ctx, ast.Load):
        inside = f"{{owner}}.{module.rpartition('.')[2]}.{name}"
        return Rewrite([Replace(node, inside, {"owner": node.value})])
    return renamed(ctx, node, found.key, gone.instead)


@REMOVED.on("loader", "*")
def without_loader(ctx: Context, found: Construct) -> Decision | None:
    """PyYAML 6 has no default any more; that of PyYAML 5 was this one."""
    assert isinstance(found.node, ast.Call)
    if not _is_of_gpu_code(ctx):
        return _OF_OTHER_CODE
    spelled, requires = ctx.module("yaml")
    put = {"Loader": f"{spelled}.FullLoader"}
    return Rewrite([EditCall(found.node, put=put)], requires, "PyYAML 6 has to be told")


@REMOVED.on("pairs", "*")
def without_return_complex(ctx: Context, found: Construct) -> Decision:
    """PyTorch has no default any more; for real numbers, that of PyTorch 1 was this one."""
    assert isinstance(found.node, ast.Call)
    if _COMPLEX.search(ctx.source.text):  # then the signal may be complex, too
        return Report("PyTorch has to be told return_complex; False if the signal is real")
    put = {"return_complex": "False"}
    return Rewrite([EditCall(found.node, put=put)], note="PyTorch 2 has to be told")


@REMOVED.on("removed import", "*")
def imported(ctx: Context, found: Construct) -> Decision | None:
    gone, statement = removed(found.key), ctx.parent(found.node)
    if gone is None:
        return None
    if not _concerns(ctx, found.key):
        return _OF_OTHER_CODE
    assert isinstance(statement, ast.Import | ast.ImportFrom)
    if ctx.names.is_guarded_import(statement):
        return Keep("the import fails, and the fallback is used")
    table = _new_names(statement) if isinstance(statement, ast.ImportFrom) else {}
    return with_new_names(ctx, found, table) if found.key in table else _report(gone, found.key)


def _new_names(statement: ast.ImportFrom) -> dict[str, str]:
    """The names of an import that only have to be imported from elsewhere."""
    taken = [taken_by(statement, alias) for alias in statement.names]
    found = [gone for name in taken if (gone := removed(name)) is not None and gone.name == name]
    return {
        gone.name: gone.instead
        for gone in found
        if gone.exact and "." in gone.instead and _builtin(gone) is None
    }


def _replaced(node: ast.expr, text: str) -> Decision:
    return Rewrite([Replace(node, text)])


def _builtin(gone: Removed) -> str | None:
    """Python's own name that it stood for."""
    module, _, name = gone.instead.rpartition(".")
    return name if module == "builtins" else None


def _report(gone: Removed, name: str = "") -> Report:
    instead = _builtin(gone) or gone.instead
    library = gone.name.partition(".")[0]
    library = _LIBRARIES.get(library, library)
    said = "" if name in ("", gone.name) else f" ({gone.name})"
    return Report(f"{library} no longer has it{said}; use {instead}")


_COMPLEX = re.compile(r"(?<!return_)complex")
_LOADED = ("scipy.signal.windows",)  # with the package that had the name
_LIBRARIES = {
    "torch": "PyTorch", "numpy": "NumPy 2", "PIL": "Pillow", "scipy": "SciPy",
    "sklearn": "scikit-learn", "matplotlib": "Matplotlib",
    **dict.fromkeys(("asyncio", "base64", "cgi", "collections", "fractions", "inspect",
                     "platform", "time"), "Python"),
}  # fmt: skip


def _concerns(ctx: Context, name: str) -> bool:
    return name.startswith(_OF_TORCH) or _is_of_gpu_code(ctx)


def _is_of_gpu_code(ctx: Context) -> bool:
    """Whether this file is part of a program that uses a device."""
    project = ctx.project
    return ctx.uses_device or (project is not None and project.is_imported_by_gpu_code())
