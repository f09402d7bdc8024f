"""What the rules for old versions share: where they apply, their reports, and code from data."""

import ast
import re

from migrator.rule_api import RUNTIME, Context, Decision, Keep, Replace, Report, Rewrite
from migrator.rule_api.devices import never_runs, tpu_answer
from migrator.rule_api.upgrades import BUILTIN, METHOD, Removed

# Modules whose names any code uses: outside of a program for GPUs they are not the tool's matter.
_OF_TORCH = ("torch.", "torchvision.")
_HOLE = re.compile(r"\{([\w.]+)\}")
_QUESTION = re.compile(r"(?i)version|hasattr|\bpy_?[23]\b|python[23]|TORCH_?\d|torch_ver|_compat\b")
_CAUGHT = ("ImportError", "ModuleNotFoundError", "AttributeError", "NameError")
_LIBRARIES = {
    "torch": "PyTorch", "numpy": "NumPy 2", "PIL": "Pillow", "scipy": "SciPy",
    "sklearn": "scikit-learn", "matplotlib": "Matplotlib", "skimage": "scikit-image",
    "networkx": "NetworkX",
}  # fmt: skip


def reason_to_keep(ctx: Context, node: ast.AST, name: str) -> Decision | None:
    """Why an old name stays: nothing runs it on a TPU, or the program knows that it may be gone."""
    if not name.startswith(_OF_TORCH) and not is_of_gpu_code(ctx):
        return Keep("nothing here uses a device")
    if ctx.names.is_guarded_import(node) and _is_caught(ctx, node):
        return Keep("the import fails, and the fallback is used")
    if never_runs(ctx.names, node) is not None:
        return Keep("no TPU machine runs it")
    if _is_asked_for(ctx, node):
        return Keep("the program asks for the version first")
    return None


def is_of_gpu_code(ctx: Context) -> bool:
    """Whether this file is, or may be, part of a program that uses a device, or is migrated."""
    project, text = ctx.project, ctx.source.text
    if RUNTIME in text or f'"{ctx.api.device}"' in text or f"'{ctx.api.device}'" in text:
        return True
    if ctx.file.uses_device or project is None:
        return ctx.file.uses_device
    return project.is_imported_by_gpu_code(ctx.framework) or (
        not ctx.file.is_entry and project.may_be_of_gpu_code()
    )


def _is_caught(ctx: Context, node: ast.AST) -> bool:
    """Whether an import is tried, or the error of a name that is gone is caught."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    for above in ctx.names.ancestors(node):
        if isinstance(above, ast.ExceptHandler):
            return True
        if isinstance(above, ast.Try):
            caught = (h.type for h in above.handlers if h.type is not None)
            if any(word in ast.unparse(each) for each in caught for word in _CAUGHT):
                return True
    return False


def _is_asked_for(ctx: Context, node: ast.AST) -> bool:
    """Whether a condition around a node is about versions, and nobody knows how it turns out.

    If it is known, code behind it never runs, or does as if nothing were asked.
    """
    return any(
        isinstance(above, ast.If | ast.IfExp)
        and _QUESTION.search(ast.unparse(above.test))
        and tpu_answer(ctx.names, above.test) is None
        for above in ctx.names.ancestors(node)
    )


def report(gone: Removed, name: str = "") -> Report:
    instead = gone.instead.removeprefix(BUILTIN)
    said = "" if name in ("", gone.name) else f" ({gone.name})"
    if _library(gone) == gone.name:  # all of a library
        return Report(f"does not run with the versions of the target{said}; use {instead}")
    return Report(f"{_library(gone)} no longer has it{said}; use {instead}")


def _library(gone: Removed) -> str:
    library = gone.name.partition(".")[0]
    if gone.since.startswith("Python") or gone.source.startswith("https://docs.python.org"):
        return gone.since if gone.since >= "Python 3.1" else "Python 3"
    if gone.name.startswith(METHOD):
        return gone.since
    return _LIBRARIES.get(library, library)


def with_code(
    ctx: Context, gone: Removed, node: ast.expr, owner: ast.expr | None = None
) -> Decision:
    """Put the code of an entry in place of a name, or of its call with as many arguments."""
    holes = _HOLE.findall(gone.code)
    arguments = [hole for hole in holes if hole.isdigit()]
    replaced: ast.expr = node
    if arguments or owner is not None or "(" in gone.code:
        call = ctx.names.call_of(node)
        if call is None or call.keywords or len(call.args) != len(arguments):
            return report(gone)
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            return report(gone)
        replaced = call
    elif not isinstance(getattr(node, "ctx", None), ast.Load):
        return report(gone)
    requires: list[str] = []
    template, parts = gone.code, {}
    for hole in dict.fromkeys(holes):
        if hole.isdigit():
            assert isinstance(replaced, ast.Call)
            template = template.replace(f"{{{hole}}}", f"{{argument{hole}}}")
            parts[f"argument{hole}"] = replaced.args[int(hole)]
        elif hole == "owner":
            assert owner is not None
            parts[hole] = owner
        else:
            spelled, needed = ctx.code.module(hole)
            template = template.replace(f"{{{hole}}}", spelled)
            requires += needed
    return Rewrite([Replace(replaced, template, parts)], requires)
