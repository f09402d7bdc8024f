"""Functions of torch: which only compute, which return something new, which draw random numbers.

They are known by their imports, and methods by what they belong to.
"""

from __future__ import annotations

import ast
import re

from migrator.analysis.syntax.names import Names

# Functions of torch that change the state of the library or of the program.
_CHANGING = re.compile(
    r"torch\.(?:set_\w+|\w*seed|save|load|use_\w+|enable_\w+|compile|autocast|\w*grad|Generator"
    r"|inference_mode|import_ir_module|_\w+|[a-z]\w*_)\Z"
)
_SETTING = re.compile(
    r"torch\.(?:set_\w+|\w*seed|use_\w+|enable_\w+|autocast|\w*_grad|inference_mode)\Z"
)
_OF_METHODS = frozenset({
    "backward", "register_hook", "register_post_accumulate_grad_hook", "retain_grad",
    "record_stream", "resize",
})  # fmt: skip
# What these return shares no memory with anything else.
_NEW = frozenset({
    "arange", "argmax", "argmin", "argsort", "bernoulli", "cat", "clone", "concat", "concatenate",
    "cumsum", "empty", "eq", "exp", "eye", "full", "full_like", "gather", "ge", "gt",
    "index_select", "le", "linspace", "log", "log_softmax", "logical_and", "logical_not",
    "logical_or", "lt",
    "masked_fill", "matmul", "max", "mean", "min", "multinomial", "ne", "one_hot", "ones",
    "ones_like", "rand", "rand_like", "randint", "randn", "randn_like", "randperm", "softmax",
    "sort", "stack", "sum", "tensor", "topk", "where", "zeros", "zeros_like",
})  # fmt: skip
_DRAWING = re.compile(r"rand\w*|multinomial|bernoulli|normal|poisson|\w*dropout\w*|\w*gumbel\w*")


def is_of_torch(name: str | None) -> bool:
    """Whether a function, by its full name, is one of torch that only computes."""
    if name is None or not name.startswith("torch."):
        return False
    if name.startswith("torch.nn.functional."):
        return not name.endswith("_")
    return name.count(".") == 1 and name[6].islower() and _CHANGING.fullmatch(name) is None


def sets_state(name: str | None) -> bool:
    """Whether a function, by its full name, sets a state of torch, such as a mode, and no more."""
    return name is not None and _SETTING.fullmatch(name) is not None


def is_of_tensor(method: str) -> bool:
    """Whether a method of tensors only computes."""
    return not method.endswith("_") and method not in _OF_METHODS


def writes_elsewhere(call: ast.Call) -> bool:
    """`out=x`, `inplace=True`"""
    return any(k.arg in (None, "out", "inplace") for k in call.keywords)


def is_new(names: Names, call: ast.Call) -> bool:
    """Whether a function or method of torch returns something new, given that it is one."""
    return _last(names, call) in _NEW


def draws(names: Names, call: ast.Call) -> bool:
    return _DRAWING.fullmatch(_last(names, call)) is not None


def _last(names: Names, call: ast.Call) -> str:
    name = names.qualified(call.func)
    if name is not None:
        return name.rpartition(".")[2]
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""
