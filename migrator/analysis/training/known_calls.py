"""Names of functions and methods that are known to do nothing but compute, or to do more."""

from __future__ import annotations

PURE = frozenset({
    "len", "range", "enumerate", "zip", "list", "tuple", "sum", "reversed", "min", "max",
    "isinstance", "getattr", "hasattr", "abs", "dict", "super", "round", "sorted", "set", "slice",
    "filter", "map", "any", "all", "ord", "chr", "divmod", "issubclass", "callable", "frozenset",
})  # fmt: skip
# Methods of tensors, and of what takes part in training, that do nothing else.
METHODS = frozenset({
    "to", "cuda", "float", "half", "bfloat16", "double", "long", "int", "short", "bool", "detach",
    "clone", "contiguous", "view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose",
    "permute", "t", "expand", "expand_as", "repeat", "mean", "sum", "std", "var", "norm", "pow",
    "sqrt", "exp", "log", "abs", "clamp", "clip", "max", "min", "argmax", "argmin", "softmax",
    "log_softmax", "sigmoid", "tanh", "relu", "square", "mul", "add", "sub", "div", "matmul", "mm",
    "bmm", "dot", "eq", "ne", "gt", "lt", "ge", "le", "masked_fill", "masked_select", "gather",
    "scatter", "index_select", "chunk", "split", "stack", "type", "type_as", "requires_grad_",
    "size", "dim", "numel", "new_zeros", "new_ones", "new_full", "new_tensor", "zero_grad",
    "backward", "scale", "unscale_", "unbind", "parameters", "named_parameters", "buffers",
    "named_buffers", "modules", "named_modules", "children", "named_children", "keys", "values",
    "items", "log_prob", "entropy", "rsample", "cumsum", "cumprod", "prod", "neg", "logsumexp",
    "narrow", "select", "diag", "triu", "tril", "any", "all", "view_as", "reshape_as", "rsqrt",
    "reciprocal", "roll", "flip", "topk", "sort", "unfold", "fold", "amax", "amin", "clamp_min",
    "clamp_max", "sign", "round", "floor", "ceil", "erf", "log1p", "expm1", "sin", "cos", "atan2",
    "outer", "addmm", "baddbmm", "where", "logical_not", "logical_and", "logical_or", "isnan",
    "isinf", "isfinite", "nan_to_num", "ndim", "swapaxes", "movedim", "unflatten",
    "repeat_interleave", "index_add", "scatter_add", "fill_", "zero_", "add_", "sub_", "mul_",
    "div_", "clamp_", "copy_", "lerp_", "addcmul_", "addcdiv_", "masked_fill_", "scatter_",
    "detach_", "uniform_", "normal_", "unsqueeze_", "squeeze_", "sigmoid_", "tanh_", "relu_",
    "index_fill_", "index_copy_", "index_add_",
})  # fmt: skip
CHANGING = frozenset({"append", "extend", "insert", "setdefault", "update", "pop"})
DRAWS = ("torch.rand", "torch.normal", "torch.bernoulli", "torch.multinomial", "numpy.random.",
          "random.")  # fmt: skip
