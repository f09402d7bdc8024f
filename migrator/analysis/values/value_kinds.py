"""Kinds of values, and the kinds of PyTorch's functions and attributes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Flag, auto

from migrator.analysis import foreign_code
from migrator.targets import RUNTIME

CUDA_STRING = re.compile(r"cuda(?::\d+)?\Z")
# also a part of one: "cuda:", "cuda:%d"
DEVICE_TEXT = re.compile(r"cuda(?::(?:\d+|%[ds]|\{[^}]*\})?)?\Z")
TENSOR_TYPE = re.compile(r"torch\.cuda\.(?:sparse\.)?(\w*Tensor)\Z")
TENSOR_TYPE_DTYPES = {
    "FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16", "ByteTensor": "uint8", "CharTensor": "int8",
    "ShortTensor": "int16", "IntTensor": "int32", "LongTensor": "int64", "BoolTensor": "bool",
}  # fmt: skip


class Kind(Flag):
    """What a value may be; `NOTHING` if the source does not tell."""

    NOTHING = 0
    DEVICE = auto()  # a torch.device
    DEVICE_STRING = auto()  # "cuda", "cuda:1", f"cuda:{i}"
    DEVICE_INT = auto()  # a rank or an index used as a device
    CPU = auto()  # "cpu" or torch.device("cpu")
    TENSOR = auto()
    MODULE = auto()
    OPTIMIZER = auto()
    SCALER = auto()
    SCHEDULER = auto()
    LOADER = auto()
    STREAM = auto()
    EVENT = auto()
    GENERATOR = auto()
    TENSOR_TYPE = auto()  # torch.cuda.FloatTensor
    INT = auto()
    STRING = auto()
    BOOL = auto()
    DTYPE = auto()


# Kinds that are tracked through lists, tuples and dicts.
HELD = Kind.OPTIMIZER | Kind.SCALER | Kind.SCHEDULER | Kind.LOADER
OPTIMIZER_CLASS = re.compile(
    r"\.(?:\w*Adam\w*|SGD\w*|Lion|LAMB|Lamb|LARS|Adafactor|RMSprop\w*|NovoGrad|Ranger\w*|\w*Optimizer)$"
)
ANY_DEVICE = Kind.DEVICE | Kind.DEVICE_STRING | Kind.DEVICE_INT
DTYPES = {
    "float16", "half", "bfloat16", "float32", "float", "float64", "double", "int8", "uint8",
    "int16", "short", "int32", "int", "int64", "long", "bool", "complex64", "complex128",
}  # fmt: skip
CONSTRUCTED = {
    "torch.device": Kind.DEVICE,
    "torch.accelerator.current_accelerator": Kind.DEVICE,
    **dict.fromkeys(foreign_code.DEVICE_FUNCTIONS, Kind.DEVICE),  # written by a migration
    f"{RUNTIME}.device": Kind.DEVICE,
    "torch.cuda.current_device": Kind.DEVICE_INT,
    "torch.distributed.get_rank": Kind.DEVICE_INT,
    "torch.cuda.Event": Kind.EVENT,
    "torch.Event": Kind.EVENT,
    "torch.cuda.Stream": Kind.STREAM,
    "torch.cuda.current_stream": Kind.STREAM,
    "torch.cuda.default_stream": Kind.STREAM,
    "torch.Generator": Kind.GENERATOR,
    "torch.cuda.amp.GradScaler": Kind.SCALER,
    "torch.amp.GradScaler": Kind.SCALER,
    f"{RUNTIME}.GradScaler": Kind.SCALER,
    "torch.utils.data.DataLoader": Kind.LOADER,
    "torch.load": Kind.NOTHING,
    "torch.compile": Kind.MODULE,
    f"{RUNTIME}.compile": Kind.MODULE,
    "torch.hub.load": Kind.MODULE,
    "int": Kind.INT,
    "str": Kind.STRING,
    "bool": Kind.BOOL,
}
SAME_KIND = {"to", "cuda", "cpu", "float", "half", "double", "bfloat16", "eval", "train", "detach",
              "contiguous", "clone", "requires_grad_", "pin_memory"}  # fmt: skip
COPYING = {"copy.copy", "copy.deepcopy"}


def any_of(kinds: Iterable[Kind]) -> Kind:
    result = Kind.NOTHING
    for kind in kinds:
        result |= kind
    return result


def kind_of_constant(value: object) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOL
    if isinstance(value, int):
        return Kind.INT
    if isinstance(value, str):
        if CUDA_STRING.match(value):
            return Kind.DEVICE_STRING
        if TENSOR_TYPE.match(value):
            return Kind.TENSOR_TYPE
        return Kind.CPU if value == "cpu" else Kind.STRING
    return Kind.NOTHING
