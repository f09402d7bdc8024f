"""Libraries that train for a program, and choose the device by themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis.syntax.names import Binding, Names
from migrator.construct import Construct
from migrator.frameworks.torch.lightning import values

# What takes the device when it is made.
_ACCELERATOR = re.compile(r"accelerate\.(?:\w+\.)*(?:Accelerator|PartialState|AcceleratorState)")
_TRAINER = re.compile(
    r"transformers\.(?:\w+\.)*(?:Seq2Seq)?Trainer|trl\.(?:\w+\.)*[A-Z]\w*Trainer"
    r"|sentence_transformers\.(?:\w+\.)*(?:Sparse|Cross)?(?:Encoder|SentenceTransformer)Trainer"
)
# What it is told; some of it names kernels or types that a TPU has not.
_ARGUMENTS = re.compile(
    r"transformers\.(?:\w+\.)*(?:Seq2Seq)?TrainingArguments|trl\.(?:\w+\.)*[A-Z]\w*Config"
)
SETTINGS = frozenset({
    "fp16", "fp16_full_eval", "tf32", "torch_compile", "optim", "deepspeed", "fsdp",
    "mixed_precision", "deepspeed_plugin", "fsdp_plugin", "dynamo_backend", "dynamo_plugin",
    "megatron_lm_plugin",
})  # fmt: skip
_CPU = ("cpu", "use_cpu", "no_cuda")  # arguments that keep a program on the CPU
_PIPELINE = re.compile(r"transformers\.(?:\w+\.)*pipeline")
TOKENS = rb"Accelerator\(|PartialState|Trainer\b|TrainingArguments|pipeline\("


def trainers(names: Names, node: ast.Call) -> Iterator[Construct]:
    """What a call makes or tells of such a library."""
    qualname = _meaning(names, node.func)
    if _PIPELINE.fullmatch(qualname) and _takes_gpu(node):
        yield Construct("trainer", "pipeline", node)
    tells = _ARGUMENTS.fullmatch(qualname) is not None
    takes = _ACCELERATOR.fullmatch(qualname) is not None
    if not (tells or takes or _TRAINER.fullmatch(qualname)):
        return
    if any(keyword.arg in _CPU and _is_on(keyword.value) for keyword in node.keywords):
        yield Construct("trainer", "cpu", node)
        return
    if not tells:
        yield Construct("trainer", "accelerator" if takes else "trainer", node)
    for keyword in node.keywords:
        if keyword.arg is None and (tells or takes) and _may_hold_settings(names, keyword.value):
            yield Construct("trainer", "passed on", keyword)
        if keyword.arg in SETTINGS and not _is_off(keyword.value):
            yield Construct("trainer", keyword.arg, keyword)


def subclassed(names: Names, node: ast.ClassDef) -> Iterator[Construct]:
    """A trainer of the program's own, or what it is told."""
    bases = {base: _meaning(names, base) for base in node.bases}
    for base, qualname in bases.items():
        if _TRAINER.fullmatch(qualname) or _ACCELERATOR.fullmatch(qualname):
            yield Construct("trainer", "trainer", base)
    if any(map(_ARGUMENTS.fullmatch, bases.values())):
        for statement in node.body:
            match statement:
                case (
                    ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                    | ast.Assign(targets=[ast.Name(id=name)], value=value)
                ) if name in SETTINGS and not _is_off(value):
                    yield Construct("trainer", "told elsewhere", statement)


def changed_setting(names: Names, node: ast.Assign) -> Iterator[Construct]:
    """`arguments.fp16 = True`"""
    match node:
        case ast.Assign(targets=[ast.Attribute(attr=name, value=ast.Name() as owner)], value=value):
            if name in SETTINGS and not _is_off(value):
                made = [b.value for b in names.lookup(owner) if isinstance(b.value, ast.Call)]
                if any(_ARGUMENTS.fullmatch(_meaning(names, call.func)) for call in made):
                    yield Construct("trainer", "told elsewhere", node)


def _meaning(names: Names, node: ast.expr) -> str:
    """The full name of a library's class, also where the program calls it otherwise."""
    qualname = names.qualified(node)
    if qualname is None and isinstance(node, ast.Name):
        match names.lookup(node):
            case [Binding(kind="assign", value=ast.Name() | ast.Attribute() as value)]:
                qualname = names.qualified(value)
    return qualname or ""


def _may_hold_settings(names: Names, options: ast.expr) -> bool:
    """Whether what comes by `**` may be one of the settings; what can not be seen may."""
    if isinstance(options, ast.Name):
        match names.lookup(options):
            case [Binding(kind="assign", value=ast.expr() as value)]:
                options = value
    match options:
        case ast.Dict(keys=keys):
            said = [key.value if isinstance(key, ast.Constant) else None for key in keys]
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            said = [keyword.arg for keyword in keywords]
        case _:
            return True
    return any(key is None or key in SETTINGS for key in said)


def _takes_gpu(node: ast.Call) -> bool:
    """Whether a pipeline takes the device that it finds, or one by its number."""
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    if given.keys() & {"device_map", None}:
        return False
    if "device" not in given:
        return True
    return any(type(value) is int and value >= 0 for value in values(given["device"]))


def _is_on(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def _is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in (False, None, "", "no")
