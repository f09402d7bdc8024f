"""Packages, images and environment variables that TensorFlow programs are installed and started
with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice

from migrator.analysis import gpu_text_patterns
from migrator.analysis.setup_py import required
from migrator.analysis.syntax.names import Names
from migrator.construct import Construct
from migrator.formats.embedded_text import (
    CELL,
    COMMAND,
    COMPILED,
    CONDA,
    CONSTRAINT,
    REQUIRED,
    REQUIREMENT,
    SETTING,
)

# Distributions of the module `tensorflow`.
TENSORFLOW = frozenset({
    "intel-tensorflow", "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel",
    "tensorflow-macos", "tensorflow-rocm", "tensorflow-tpu", "tf-nightly", "tf-nightly-gpu",
})  # fmt: skip
# Packages that depend on the distribution `tensorflow`, whose files would overwrite another's.
BRINGS_TENSORFLOW = frozenset({
    "keras-hub", "keras-nlp", "tensorflow-hub", "tensorflow-text", "tf-keras",
    "tf-models-official",
})  # fmt: skip
# Conda packages that are the distribution, or select one.
OF_CONDA = frozenset({
    "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-eigen", "tensorflow-mkl",
})  # fmt: skip
_PACKAGES = re.compile(r"tensorflow|tf[-_]nightly|keras|tf[-_]models|-cu\d\d|jax|libtpu", re.I)
_OF_CUDA = re.compile(r"cudatoolkit|cudnn|nccl|cuda-", re.I)
_INSTALLS = re.compile(
    r"(?<![\w.-])(?:pip[\d.]*(?:\s+-\S+)*\s+install|(?:uv|poetry|pdm)(?:\s+-\S+)*\s+add)\b"
)
_IMAGE = re.compile(r"^\s*FROM\s.*(?:tensorflow/tensorflow|nvidia|cuda)", re.I)
_VARIABLES = re.compile(
    r"\b(?:CUDA_VISIBLE_DEVICES|TF_(?:FORCE_GPU|GPU_|CUDNN|ENABLE_TENSOR_FLOAT|CUDA)\w*)"
)
_XLA_OF_GPUS = re.compile(r"\bXLA_FLAGS\b.*--xla_gpu")
_COMPILED = re.compile(r"^(?:tensorflow(?:-gpu|-cpu)?|keras)==", re.MULTILINE)
_STARTED = ("nvidia-smi", "slurm", "container")


def installed(names: Names) -> Iterator[Construct]:
    """Requirements and commands that concern TensorFlow, or its GPUs."""
    found = [*_found(names)]
    yield from found
    if CELL in names.by_id and not any(each.key == "pip" for each in found):
        brings = (s for s in names.imports if _brings_tensorflow(s))
        yield from (Construct("tensorflow command", "notebook", s) for s in islice(brings, 1))


def _brings_tensorflow(statement: ast.Import | ast.ImportFrom) -> bool:
    own = statement.module if isinstance(statement, ast.ImportFrom) else statement.names[0].name
    return (own or "").partition(".")[0] in ("tensorflow", "keras")


def _found(names: Names) -> Iterator[Construct]:
    for call in names.order:
        match call:
            case ast.Call(func=ast.Name(id=function), args=[ast.Constant(value=str(text)) as node]):
                if function == COMPILED:
                    if _COMPILED.search(text):
                        yield Construct("tensorflow package", "compiled", node)
                elif function == CONDA and (_PACKAGES.search(text) or _OF_CUDA.search(text)):
                    yield Construct("tensorflow package", "conda", node)
                elif function in REQUIRED and _PACKAGES.search(
                    gpu_text_patterns.without_comment(text)
                ):
                    own = function in (REQUIREMENT, CONSTRAINT)
                    key = "package" if own else "other"
                    yield Construct("tensorflow package", key, node)
                elif function == COMMAND and (key := command(text)):
                    yield Construct("tensorflow command", key, node)
                elif function == SETTING and _IMAGE.search(text.replace("image:", "FROM ")):
                    yield Construct("tensorflow command", "image", node)
            case ast.Call(args=[ast.Constant(value=str(text)) as node]):
                if names.qualified(call.func) == "os.system" and (key := command(text)):
                    yield Construct("tensorflow command", key, node)
            case ast.Call():
                for _, said in required(names, call):
                    if _PACKAGES.search(str(said.value)):
                        yield Construct("tensorflow package", "other", said)


def command(text: str) -> str:
    """The kind of a shell command that concerns TensorFlow or GPUs; "" for others."""
    said = gpu_text_patterns.without_comment(text)
    if _INSTALLS.search(said):
        return "pip" if _PACKAGES.search(said) else ""
    if _IMAGE.search(said):
        return "image"
    if _XLA_OF_GPUS.search(said):
        return "flags"
    if gpu_text_patterns.hides_gpus(said):
        return "hides"
    key = gpu_text_patterns.command(text)
    if key in _STARTED:
        return str(key)
    return "variable" if _VARIABLES.search(said) else ""
