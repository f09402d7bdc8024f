"""TensorFlow's functions that `keras.ops` has under another name, with the same arguments."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migrator.analysis.syntax.names import Names
from migrator.frameworks.tensorflow.keras_names import computing_backend


@dataclass(frozen=True)
class KerasOp:
    """The function of `keras.ops`, and the arguments its call may have, in this order.

    `renamed` are arguments that have another name there; `needs` is the number of required
    arguments, because defaults differ. `added` is always passed.
    """

    name: str
    arguments: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...] = ()
    needs: int = 0
    added: str = ""


def _same(*arguments: str) -> tuple[str, ...]:
    return arguments


_UNARY = (
    "abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "isfinite", "isinf", "isnan", "log",
    "log1p", "logical_not", "negative", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin",
    "sqrt", "square", "tan", "tanh",
)  # fmt: skip
_BINARY = (
    "add", "divide", "equal", "floordiv", "greater", "greater_equal", "less", "less_equal",
    "logical_and", "logical_or", "maximum", "minimum", "mod", "multiply", "not_equal", "subtract",
)  # fmt: skip
_TWO = (("x", "x1"), ("y", "x2"))
_OTHER_NAMES = {"floordiv": "floor_divide"}
_REDUCED = ("max", "mean", "min", "prod", "sum", "any", "all")
_NN = ("elu", "relu", "relu6", "selu", "sigmoid", "silu", "softplus", "softsign", "tanh")

_OPERATIONS: dict[str, KerasOp] = {
    **{name: KerasOp(name, _same("x")) for name in _UNARY},
    **{
        name: KerasOp(_OTHER_NAMES.get(name, name), _same("x", "y"), _TWO) for name in _BINARY
    },
    **{
        f"reduce_{name}": KerasOp(name, _same("input_tensor", "axis", "keepdims"),
                                    (("input_tensor", "x"),))
        for name in _REDUCED
    },
    **{f"nn.{name}": KerasOp(name, _same("features"), (("features", "x"),)) for name in _NN},
    "nn.leaky_relu": KerasOp("leaky_relu", _same("features", "alpha"),
                               (("features", "x"), ("alpha", "negative_slope"))),
    "nn.softmax": KerasOp("softmax", _same("logits", "axis"), (("logits", "x"),)),
    "nn.log_softmax": KerasOp("log_softmax", _same("logits", "axis"), (("logits", "x"),)),
    "nn.gelu": KerasOp("gelu", _same("features"), (("features", "x"),),
                         added="approximate=False"),
    "argmax": KerasOp("argmax", _same("input", "axis"), (("input", "x"),), needs=2),
    "argmin": KerasOp("argmin", _same("input", "axis"), (("input", "x"),), needs=2),
    "broadcast_to": KerasOp("broadcast_to", _same("input", "shape"), (("input", "x"),)),
    "cast": KerasOp("cast", _same("x", "dtype")),
    "clip_by_value": KerasOp(
        "clip", _same("t", "clip_value_min", "clip_value_max"),
        (("t", "x"), ("clip_value_min", "x_min"), ("clip_value_max", "x_max")),
    ),
    "concat": KerasOp("concatenate", _same("values", "axis"), (("values", "xs"),)),
    "einsum": KerasOp("einsum", ("", "", "", "", "")),
    "expand_dims": KerasOp("expand_dims", _same("input", "axis"), (("input", "x"),), needs=2),
    "gather": KerasOp("take", _same("params", "indices"), (("params", "x"),), added="axis=0"),
    "matmul": KerasOp("matmul", _same("a", "b"), (("a", "x1"), ("b", "x2"))),
    "ones": KerasOp("ones", _same("shape", "dtype")),
    "ones_like": KerasOp("ones_like", _same("input", "dtype"), (("input", "x"),)),
    "pow": KerasOp("power", _same("x", "y"), _TWO),
    "range": KerasOp("arange", ("", "", "")),
    "repeat": KerasOp("repeat", _same("input", "repeats", "axis"), (("input", "x"),)),
    "reshape": KerasOp("reshape", _same("tensor", "shape"),
                         (("tensor", "x"), ("shape", "newshape"))),
    "shape": KerasOp("shape", _same("input"), (("input", "x"),)),
    "squeeze": KerasOp("squeeze", _same("input", "axis"), (("input", "x"),)),
    "stack": KerasOp("stack", _same("values", "axis"), (("values", "x"),)),
    "stop_gradient": KerasOp("stop_gradient", _same("input"), (("input", "variable"),)),
    "tile": KerasOp("tile", _same("input", "multiples"),
                      (("input", "x"), ("multiples", "repeats"))),
    "transpose": KerasOp("transpose", _same("a", "perm"), (("a", "x"), ("perm", "axes"))),
    "where": KerasOp("where", ("condition", "x", "y"), _TWO, needs=3),
    "zeros": KerasOp("zeros", _same("shape", "dtype")),
    "zeros_like": KerasOp("zeros_like", _same("input", "dtype"), (("input", "x"),)),
}  # fmt: skip
# keras.backend (K): its arguments are those of keras.ops.
_OF_BACKEND = {
    **{name: KerasOp(name, _same("x")) for name in
       ("abs", "cos", "exp", "log", "round", "sigmoid", "sign", "sin", "sqrt", "square", "tanh",
        "softplus", "softsign", "ones_like", "zeros_like", "shape", "cast")},
    **{name: KerasOp(name, _same("x", "y"), _TWO) for name in
       ("equal", "greater", "greater_equal", "less", "less_equal", "maximum", "minimum",
        "not_equal")},
    **{name: KerasOp(name, _same("x", "axis", "keepdims")) for name in
       ("all", "any", "max", "mean", "min", "prod", "std", "sum", "var")},
    "cast": KerasOp("cast", _same("x", "dtype")),
    "clip": KerasOp("clip", ("x", "", "")),
    "reshape": KerasOp("reshape", ("x", "")),
    "square": KerasOp("square", _same("x")),
    "transpose": KerasOp("transpose", _same("x")),
}  # fmt: skip
_DTYPES = frozenset({
    "bfloat16", "bool", "float16", "float32", "int16", "int32", "int64", "int8", "uint8",
})  # fmt: skip
_ACTIVATIONS = frozenset({
    "elu", "gelu", "leaky_relu", "relu", "relu6", "selu", "sigmoid", "silu", "softmax", "softplus",
    "softsign", "tanh",
})  # fmt: skip
_ALIASES = {"nn.swish": "nn.silu", "sigmoid": "nn.sigmoid", "tanh": "nn.tanh"}
_SECOND_NAMES = ("math.", "linalg.")


def dtype_of(qualname: str) -> str:
    """The dtype that a TensorFlow name stands for; "" for any other name."""
    name = qualname.removeprefix("tensorflow.").removeprefix("dtypes.")
    return name if name in _DTYPES else ""


def operation(names: Names, node: ast.expr, qualname: str) -> KerasOp | None:
    """The counterpart of a function in `keras.ops`, if it supports all arguments of the call."""
    call = names.call_of(node)
    if of_backend := computing_backend(qualname):
        found = _OF_BACKEND.get(of_backend)
    else:
        name = qualname.removeprefix("tensorflow.")
        for second in _SECOND_NAMES:
            name = name.removeprefix(second)
        found = _OPERATIONS.get(_ALIASES.get(name, name))
    if found is None or call is None or not _fits(call, found):
        return None
    return found if found.name != "shape" or _is_of_numbers(names, call) else None


def activation(qualname: str) -> str:
    """The Keras activation that a function passed as an argument stands for; "" for others."""
    name = _ALIASES.get(qualname.removeprefix("tensorflow."), qualname.removeprefix("tensorflow."))
    return name.removeprefix("nn.") if name.removeprefix("nn.") in _ACTIVATIONS else ""


def _is_of_numbers(names: Names, call: ast.Call) -> bool:
    """Whether a shape is only used by its elements: in Keras it is a tuple."""
    match names.parents.get(call):
        case ast.Subscript(slice=ast.Constant() | ast.UnaryOp()):
            return True
        case ast.Call() | ast.keyword():
            return True
    return False


def _fits(call: ast.Call, operation: KerasOp) -> bool:
    given = len(call.args) + len(call.keywords)
    if any(isinstance(a, ast.Starred) for a in call.args):
        return False
    if len(call.args) > len(operation.arguments) or given < operation.needs:
        return False
    rest = [a for a in operation.arguments[len(call.args) :] if a]
    return all(k.arg in rest for k in call.keywords)
