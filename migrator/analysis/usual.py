"""Whether a program only calls models of usual layers, and reads what comes of it.

That is what a script for inference does. It needs the files of the runtime that move tensors and
compute usual layers, and none of those that mend writes to views, seldom used operators, types and
ways to index. All that is not listed here counts as unusual. What is listed is held against CPU
torch without those files, name by name, by tests/runtime/test_usual_programs.py.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from fnmatch import fnmatchcase

LAYERS = frozenset({
    "Linear", "Conv1d", "Conv2d", "BatchNorm1d", "BatchNorm2d", "LayerNorm", "GroupNorm", "ReLU",
    "LeakyReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "MaxPool2d",
    "AvgPool2d", "AdaptiveAvgPool2d", "Flatten", "Dropout", "Identity", "Embedding",
})  # fmt: skip
FUNCTIONS = frozenset({
    "relu", "leaky_relu", "gelu", "silu", "sigmoid", "tanh", "softmax", "log_softmax", "linear",
    "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "cat", "stack", "matmul", "exp",
    "argmax", "topk", "max", "min", "mean", "sum", "flatten", "squeeze", "unsqueeze", "permute",
    "transpose", "reshape", "normalize", "one_hot",
})  # fmt: skip
METHODS = frozenset({
    "item", "tolist", "numpy", "cpu", "to", "float", "size", "shape", "dim", "numel", "view",
    "reshape", "flatten", "squeeze", "unsqueeze", "permute", "transpose", "contiguous", "softmax",
    "log_softmax", "sigmoid", "argmax", "max", "min", "mean", "sum", "topk", "exp", "detach",
    "clone", "matmul",
})  # fmt: skip
# What has further options by position, and how many of its arguments are usual: none of those that
# a keyword may not name (`max_norm` of an Embedding, `inplace`, `dilation`).
POSITIONS = {
    "Linear": 3, "Conv1d": 5, "Conv2d": 5, "BatchNorm1d": 2, "BatchNorm2d": 2, "LayerNorm": 2,
    "GroupNorm": 3, "ReLU": 0, "LeakyReLU": 1, "GELU": 0, "SiLU": 0, "MaxPool2d": 3, "AvgPool2d": 3,
    "Dropout": 1, "Embedding": 2, "relu": 1, "leaky_relu": 2, "silu": 1, "max_pool2d": 4,
    "avg_pool2d": 4,
}  # fmt: skip
MAKERS = frozenset({"ones", "zeros", "rand", "randn", "tensor", "from_numpy"})
# Files of models whose operators are among those; each was run.
MODELS = (
    "resnet*", "resnext*", "wide_resnet*", "vgg*", "alexnet", "squeezenet*", "densenet*",
    "mobilenet_v*", "mnasnet*", "shufflenet_v2_*", "efficientnet_*", "regnet_*", "convnext_*",
    "googlenet", "inception_v3",
)  # fmt: skip
# What computes nothing on the device.
_AROUND = frozenset({
    "torch", "nn", "functional", "Module", "Sequential", "eval", "no_grad", "inference_mode",
    "device", "load", "load_state_dict", "parameters", "manual_seed", "float32",
    "forward", "torchvision", "models", "transforms", "Compose", "Resize", "CenterCrop", "ToTensor",
    "PILToTensor", "Normalize", "*_Weights", "DEFAULT", "IMAGENET1K_V*", "meta", "synchronize",
    "manual_seed_all", "tpu_runtime", "setup", "Tensor",
    "__init__",
})  # fmt: skip
# Methods of text, paths, images and containers, none of which a tensor has.
_PLAIN = frozenset({
    "append", "extend", "insert", "pop", "get", "setdefault", "items", "keys", "update", "join",
    "strip", "rstrip", "lstrip", "format", "replace", "startswith", "endswith", "lower", "upper",
    "title", "encode", "decode", "zfill", "ljust", "rjust", "center", "splitlines", "read",
    "readline", "readlines", "write", "close", "open", "convert", "exists", "glob", "iterdir",
    "is_file", "is_dir", "mkdir", "joinpath", "read_text", "read_bytes", "parse_args",
    "add_argument", "json", "content", "raise_for_status",
})  # fmt: skip
_KEYWORDS = frozenset({
    "dim", "keepdim", "weights", "pretrained", "progress", "num_classes", "map_location",
    "weights_only", "strict", "mean", "std", "device", "in_features", "out_features", "bias",
    "in_channels", "out_channels", "kernel_size", "stride", "padding", "groups", "eps", "k", "p",
})  # fmt: skip
# Modules of Python that copy models, or run them elsewhere.
_COPYING = frozenset({
    "copy", "pickle", "multiprocessing", "concurrent", "threading", "asyncio", "runpy",
})  # fmt: skip
_TORCH = ("torch", "torchvision", "tpu_runtime")
# Nodes that mean nothing by themselves.
_NODES = (
    ast.Module, ast.Import, ast.ImportFrom, ast.alias, ast.Expr, ast.Assign, ast.AnnAssign,
    ast.For, ast.If, ast.With, ast.withitem, ast.Return, ast.Pass, ast.Assert, ast.Raise,
    ast.FunctionDef, ast.ClassDef, ast.arguments, ast.arg, ast.Call, ast.keyword, ast.Name,
    ast.Attribute, ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.List, ast.Tuple, ast.Dict,
    ast.Set, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.comprehension, ast.Starred,
    ast.IfExp, ast.BoolOp, ast.Compare, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Slice,
    ast.expr_context, ast.boolop, ast.cmpop, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.MatMult,
    ast.USub, ast.Not,
)  # fmt: skip
_UNUSUAL_BUILTINS = frozenset({
    "getattr", "setattr", "delattr", "exec", "eval", "vars", "globals", "locals", "compile",
    "__import__", "pow", "divmod", "abs", "round", "hash", "id",
})  # fmt: skip
_BUILTINS = frozenset(vars(builtins)) - _UNUSUAL_BUILTINS


def is_usual(nodes: Sequence[ast.AST]) -> bool:
    """Of all nodes of a module."""
    imported = dict(_imported(nodes))
    if not _COPYING.isdisjoint(imported.values()):
        return False
    own = _own_attributes(nodes)
    defined = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    defined |= {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    defined |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    counters = set(_counters(nodes))
    known = defined | imported.keys() | _BUILTINS | {"__name__", "__file__"}
    of_others = set(_calls_of_others(nodes, imported))
    called = {node.func for node in nodes if isinstance(node, ast.Call) and _has_few(node)}
    for node in nodes:
        if not isinstance(node, _NODES):
            return False
        if _last(node) in POSITIONS and node not in called:
            return False
        match node:
            case (
                ast.Attribute(ctx=ast.Store() | ast.Del())
                | ast.Subscript(ctx=ast.Store() | ast.Del())
            ):
                if not _is_of_self(node):
                    return False
            case ast.Attribute(attr=name):
                if not (
                    _is_listed(name)
                    or _library(node, imported) not in (None, *_TORCH)
                    or (name in own and _is_of_self(node))
                ):
                    return False
            case ast.Name(id=name):
                if name not in known:
                    return False
            case ast.ImportFrom(module=module, names=aliases, level=level):
                is_torch = (module or "").partition(".")[0] in _TORCH
                if level or (is_torch and not all(_is_listed(a.name) for a in aliases)):
                    return False
            case ast.alias(name=name, asname=str()) if name in POSITIONS:
                return False
            case ast.Import(names=aliases):
                modules = [alias.name.split(".") for alias in aliases]
                if not all(map(_is_listed, (p for m in modules if m[0] in _TORCH for p in m))):
                    return False
            case ast.Call(func=function) if _last(function) == "Tensor":
                return False
            case ast.keyword(arg=keyword):
                if keyword not in _KEYWORDS and node not in of_others:
                    return False
            case ast.ClassDef(bases=bases):
                if node.keywords or [_last(base) for base in bases] != ["Module"]:
                    return False
            case ast.Subscript(slice=place):
                if not _is_plain_place(place, counters):
                    return False
    return True


_LISTED = LAYERS | FUNCTIONS | METHODS | MAKERS | _PLAIN | _AROUND | {*MODELS}
_PATTERNS = tuple(name for name in (*_AROUND, *MODELS) if "*" in name)


def _is_listed(name: str) -> bool:
    return name in _LISTED or any(fnmatchcase(name, p) for p in _PATTERNS)


def _imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Local names, and the library that each comes from."""
    for node in nodes:
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    library = alias.name.partition(".")[0]
                    yield alias.asname or library, library
            case ast.ImportFrom(level=0, module=str(module), names=aliases):
                for alias in aliases:
                    yield alias.asname or alias.name, module.partition(".")[0]


def _library(node: ast.expr, imported: Mapping[str, str]) -> str | None:
    """The library that an attribute is looked up in; None where it is that of a value."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return imported.get(node.id) if isinstance(node, ast.Name) else None


def _calls_of_others(nodes: Iterable[ast.AST], imported: Mapping[str, str]) -> Iterator[ast.AST]:
    """The keywords of calls of Python itself and of libraries that do not compute by torch."""
    for node in nodes:
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else None
            library = _library(node.func, imported)
            is_python = (library in sys.stdlib_module_names) or (
                name in _BUILTINS and name not in imported
            )
            if is_python or library not in (None, *_TORCH) or _last(node.func) == "add_argument":
                yield from node.keywords


def _own_attributes(nodes: Iterable[ast.AST]) -> Set[str]:
    """What the program's classes give to `self`, and their methods."""
    found = set()
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.ClassDef(body=body):
                found.update(n.name for n in body if isinstance(n, ast.FunctionDef))
    return found


def _is_of_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "self"


def _has_few(call: ast.Call) -> bool:
    """Whether all that is given by position is usual."""
    most = POSITIONS.get(_last(call.func) or "", len(call.args))
    return len(call.args) <= most and not any(isinstance(a, ast.Starred) for a in call.args)


def _last(node: ast.AST) -> str | None:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None


def _counters(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Names that are nothing but numbers: `for n in range(5)`, `for n, x in enumerate(xs)`"""
    bound = Counter(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    bound.update(n.arg for n in nodes if isinstance(n, ast.arg))
    counted = Counter(_counted(nodes))
    yield from (name for name, times in counted.items() if bound[name] == times)


def _counted(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
                yield name
            case ast.For(
                target=ast.Tuple(elts=[ast.Name(id=name), _]),
                iter=ast.Call(func=ast.Name(id="enumerate")),
            ):
                yield name


def _is_plain_place(place: ast.expr | None, counters: Set[str]) -> bool:
    """A number, a text, or slices by numbers: no tensor, and no list."""
    match place:
        case None | ast.Constant():
            return True
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case ast.Name(id=name):
            return name in counters
        case ast.Slice(lower=lower, upper=upper, step=None):
            return _is_plain_place(lower, counters) and _is_plain_place(upper, counters)
        case ast.Tuple(elts=places):
            return all(_is_plain_place(one, counters) for one in places)
        case ast.Call(func=ast.Attribute(attr="item")) | ast.Call(func=ast.Name(id="int")):
            return True
    return False
