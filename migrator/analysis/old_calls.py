"""Calls, methods and expressions that newer versions refuse or read otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from migrator.analysis import old_frames
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import imported_names, is_given
from migrator.analysis.upgrade_tables import (
    CALLED,
    FRAME,
    METHOD,
    keyword_only,
    removed_arguments,
    removed_builtins,
    removed_methods,
)
from migrator.analysis.values.dtypes import Dtype, dtype
from migrator.construct import Construct

# Methods of other classes, too: these are told by their object, or their arguments.
_BY_OBJECT = {"getsize": re.compile("font", re.IGNORECASE)}
_KERAS = ("keras", "tensorflow")
_WITH_NUMBER = ("rfft", "irfft")
_MASKED = ("masked_fill", "masked_fill_", "masked_select", "masked_scatter", "masked_scatter_")
_MASKING = frozenset(f"torch.{name}" for name in _MASKED)


def find(names: Names, node: ast.AST) -> Iterator[Construct]:
    """What a call, a name without a meaning, a class or another expression is."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            if name in removed_builtins() and not names.lookup(node) and not names.star_imports:
                yield Construct("removed builtin", name, node)
        case ast.Subscript(value=ast.Call() as call, slice=at) if _is_place(at):
            if _gave_list(names, call):
                yield Construct("changed", "list", call)
        case ast.Call():
            yield from _of_call(names, node)
        case ast.Attribute():
            yield from old_frames.find(names, node)
        case ast.ClassDef():
            bases = map(names.qualified, node.bases)
            if any(base in _FUNCTIONS for base in bases) and (old := _legacy_method(names, node)):
                yield Construct("changed", "function", old)


def _is_place(at: ast.expr) -> bool:
    value = at.operand if isinstance(at, ast.UnaryOp) else at
    return isinstance(value, ast.Slice) or (
        isinstance(value, ast.Constant) and isinstance(value.value, int)
    )


def _gave_list(names: Names, call: ast.Call) -> bool:
    """Whether a call gave a list in Python 2, and gives an iterator or a view."""
    match call.func:
        case ast.Name(id="map" | "zip" | "filter") as function:
            return not names.lookup(function) and not names.star_imports
        case ast.Attribute(attr="keys" | "values" | "items"):
            return not call.args and not call.keywords and names.qualified(call.func) is None
    return False


_FUNCTIONS = ("torch.autograd.Function", "torch.autograd.function.Function")


def _of_call(names: Names, call: ast.Call) -> Iterator[Construct]:
    called = names.qualified(call.func)
    if called is not None:
        if called in CALLED:
            yield Construct("removed", f"{called}()", call)
        if called in _WITH_LOADER and len(call.args) == 1 and not call.keywords:
            yield Construct("loader", called, call)
        if called in _STYLES and call.args:
            for node in ast.walk(call.args[0]):
                if isinstance(node, ast.Constant) and _is_old_style(node.value):
                    yield Construct("style", called, node)
        if (now := keyword_only().get(called)) is not None and len(call.args) > now.takes:
            yield Construct("without names", called, call)
        if called == "torch.stft" and _gives_pairs(call):
            yield Construct("pairs", called, call)
        if called == "torch.istft" and call.args and not isinstance(call.args[0], ast.Starred):
            yield Construct("pairs of istft", called, call)
        if called in _MASKING and len(call.args) > 1 and _is_byte(names, call.args[1]):
            yield Construct("changed", "mask", call.args[1])
        if called == "numpy.fromstring" and not is_given(call, "sep", 3):
            yield Construct("changed", "bytes", call)
        for keyword in call.keywords:
            if called == "numpy.array" and _is_false_copy(keyword):
                yield Construct("changed", "copy", call)
            if (called, keyword.arg) in removed_arguments():
                yield Construct("removed argument", called, keyword)
        if (extra := _extra(called, call)) is not None:
            yield Construct("extra argument", called, extra)
    elif isinstance(call.func, ast.Attribute):
        for keyword in call.keywords:
            if (name := f"{METHOD}{call.func.attr}", keyword.arg) in removed_arguments():
                yield Construct("removed argument", name, keyword)
        now = keyword_only().get(f"{FRAME}{call.func.attr}")
        if now is not None and len(call.args) > now.takes:
            if old_frames.is_frame(names, call.func.value):
                yield Construct("without names", now.name, call)
        if call.func.attr in removed_methods() and _is_meant(names, call, call.func):
            yield Construct("removed method", call.func.attr, call)
        if call.func.attr in _MASKED and call.args and _is_byte(names, call.args[0]):
            yield Construct("changed", "mask", call.args[0])


def _extra(called: str, call: ast.Call) -> ast.expr | None:
    """A scheduler's `verbose` that is given without its name.

    `ReduceLROnPlateau` has another argument there now, which is no boolean.
    """
    gone = removed_arguments().get((called, "verbose"))
    if gone is None or not gone.takes or len(call.args) <= gone.takes:
        return None
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    extra = call.args[gone.takes]
    is_bool = isinstance(extra, ast.Constant) and isinstance(extra.value, bool)
    return extra if is_bool or not called.endswith("ReduceLROnPlateau") else None


def _is_false_copy(keyword: ast.keyword) -> bool:
    value = keyword.value
    return keyword.arg == "copy" and isinstance(value, ast.Constant) and value.value is False


def _is_meant(names: Names, call: ast.Call, method: ast.Attribute) -> bool:
    """Whether the object may be one whose class had the method."""
    owner, name = method.value, method.attr
    if isinstance(owner, ast.Name) and owner.id in ("self", "cls"):
        return False
    if isinstance(owner, ast.Call) and names.qualified(owner.func) == "super":
        return False
    if name in _WITH_NUMBER:
        given = call.args[0] if call.args else None
        return isinstance(given, ast.Constant) and isinstance(given.value, int)
    if name == "next":
        value = names.only_value(owner)
        return isinstance(value, ast.Call) and names.qualified(value.func) == "iter"
    if name.endswith("_generator") or name == "predict_classes":
        taken = (name for statement in names.imports for name, _ in imported_names(statement))
        return any(name.startswith(_KERAS) for name in taken)
    said = _BY_OBJECT.get(name)
    return said is None or said.search(ast.unparse(owner)) is not None


def _is_byte(names: Names, mask: ast.expr) -> bool:
    """Whether a mask is a tensor of bytes: `x.byte()`, or a variable that is one."""
    if dtype(names, mask) is Dtype.BYTES:
        return True
    match names.only_value(mask):
        case ast.Call(func=ast.Attribute(attr="byte"), args=[], keywords=[]):
            return True
        case ast.Call(keywords=keywords):
            dtypes = [k.value for k in keywords if k.arg == "dtype"]
            return any(names.qualified(dtype) == "torch.uint8" for dtype in dtypes)
    return False


def _legacy_method(names: Names, node: ast.ClassDef) -> ast.FunctionDef | None:
    """The `forward` of a function with a state, which is called on an instance."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "forward":
            said = {names.qualified(decorator) for decorator in part.decorator_list}
            return None if "staticmethod" in said else part
    return None


def _gives_pairs(call: ast.Call) -> bool:
    """Whether a call of torch.stft doesn't say what it returns: once, real pairs."""
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return not starred and not is_given(call, "return_complex", 9)


# Functions of Matplotlib that take the name of a style.
_STYLES = ("matplotlib.pyplot.style.use", "matplotlib.pyplot.style.context",
           "matplotlib.style.use", "matplotlib.style.context")  # fmt: skip


def _is_old_style(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"seaborn(?!-v0_8)(-\w+)*", value) is not None


# Functions of PyYAML that had a default loader.
_WITH_LOADER = ("yaml.load", "yaml.load_all")
_LOADS = re.compile(rb"yaml\.load(?<=\byaml\.load)(?:_all)?\((?:[^(),]|\([^()]*\))*\)")


# ---- a cheap test --------------------------------------------------------------------------------


def may_be_in(source: bytes) -> bool:
    """Whether a file may have one of these, judging by its words."""
    if b"yaml" in source and _LOADS.search(source) is not None:
        return True
    if b"torch" in source and _OF_TORCH.search(source) is not None:
        return True
    if _LISTS.search(source) is not None:
        return True
    if b"transformers" in source and _OF_TRAINER.search(source) is not None:
        return True
    if b"copy=False" in source and b"array(" in source:
        return True
    if b"style." in source and b"seaborn" in source:
        return True
    if old_frames.may_be_in(source) or _with_names().search(source) is not None:
        return True
    return _methods().search(source) is not None or _builtins().search(source) is not None


_OF_TORCH = re.compile(
    rb"stft\(|autograd[^\n]*\bFunction\b|\bFunction\)|masked_\w+\(|torch\.fft\("
    rb"|lr_scheduler|resample\s*=|fillcolor\s*=|(?<!\w)range\s*="
    rb"|onnx\.export|download\s*="
)
_LISTS = re.compile(
    rb"\.(?:keys|values|items)\(\)[ ]*\[|\b(?:map|zip|filter)\([^\n]*\)[ ]*\[[-\d:]"
)
_OF_TRAINER = re.compile(rb"(?:Trainer|TrainingArguments)\(")


@cache
def _with_names() -> re.Pattern[bytes]:
    """An import of a module whose functions take arguments by their names alone, and a function."""
    heads, lasts = ({name.split(".")[at] for name in keyword_only()} for at in (0, -1))
    imports = rf"(?:import|from)[ ]+(?:{'|'.join(sorted(heads))})\b"
    return re.compile(rf"{imports}[\s\S]*\b(?:{'|'.join(sorted(lasts))})\b".encode())


@cache
def _methods() -> re.Pattern[bytes]:
    words = "|".join([*removed_methods(), "fromstring"])
    arguments = (
        r"\b(?:normed|db_path)\s*=|(?:percentile|quantile)\([^#]{0,200}interpolation|\bqk_scale\s*="
    )
    return re.compile(rf"\.(?:{words})\(|{arguments}".encode())


@cache
def _builtins() -> re.Pattern[bytes]:
    words = "|".join(removed_builtins())
    return re.compile(rf"(?<![\w.])(?:{words})\b(?=\s*[(),])".encode())
