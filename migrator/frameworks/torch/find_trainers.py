"""Libraries that train for a program, and choose the device themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis.syntax.literals import values
from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.nodes import dotted
from migrator.construct import Construct
from migrator.frameworks.torch.find_lightning_settings import lightning
from migrator.frameworks.torch.library_classes import LibraryClasses, bound_by
from migrator.frameworks.torch.trainer_arguments import (
    SETTINGS,
    is_off,
    says_gpu,
    told,
    told_by_keyword,
)

_CPU = ("cpu", "use_cpu", "no_cuda")  # arguments that keep a program on the CPU
_PIPELINE = re.compile(r"transformers\.(?:\w+\.)*pipeline")
_INSTANTIATE = ("hydra.utils.instantiate", "hydra.utils.call")
_TRAINER = re.compile(r"trainer|fabric|accelerator", re.IGNORECASE)
_PRECISION_AT = {"accelerator": 2, "launcher": 3}  # position of the argument
TOKENS = (
    rb"Accelerator\b", b"notebook_launcher", b"AcceleratorState", b"PartialState", rb"Trainer\b",
    b"TrainingArguments", rb"pipeline\(", rb"\bfp16\b", rb"\btf32\b", rb"\bmixed_precision\b",
    b"ACCELERATE_",
)  # fmt: skip


def of_trainers(classes: LibraryClasses, node: ast.AST) -> Iterator[Construct]:
    """How a node uses such a library."""
    match node:
        case ast.Call():
            yield from trainers(classes, node)
            yield from configured(classes, node)
            yield from told_by_keyword(classes, node)
        case ast.ClassDef():
            yield from subclassed(classes, node)
    if isinstance(node, ast.Name | ast.Attribute | ast.Call):
        made = classes.referred_to(node)  # as a default, or in a table
        if made is not None and made.kind != "arguments":
            yield Construct("trainer", made.kind, node)
    yield from told(classes, node)


def trainers(classes: LibraryClasses, node: ast.Call) -> Iterator[Construct]:
    """The object of such a library that a call creates, or its settings."""
    names = classes.names
    if _PIPELINE.fullmatch(names.qualified(node.func) or "") and _takes_gpu(node):
        yield Construct("trainer", "pipeline", node)
    bound = bound_by(names, node)
    made = classes.made_by(bound or node.func)
    if made is None:
        return
    if made.kind == "lightning":
        yield from lightning(node, classes.is_said(node.func))
        return
    if any(keyword.arg in _CPU and _is_on(keyword.value) for keyword in node.keywords):
        yield Construct("trainer", "cpu", node)
        return
    if made.kind != "arguments" and classes.is_said(node.func):
        yield Construct("trainer", made.kind, node)
    if made.kind != "trainer":
        given = node.args[1:] if bound is not None else node.args
        yield from _by_position(given, made.kind)
    for keyword in node.keywords:
        if keyword.arg is None and made.kind != "trainer":
            if _may_hold_settings(names, keyword.value):
                yield Construct("trainer", "passed on", keyword)
        if keyword.arg in SETTINGS and not is_off(keyword.value):
            if made.plain and bound is None:
                yield Construct("trainer", keyword.arg, keyword)
            elif says_gpu(keyword.arg, keyword.value, unknown=True):
                yield Construct("trainer", "told elsewhere", keyword)


def configured(classes: LibraryClasses, node: ast.Call) -> Iterator[Construct]:
    """`trainer: Trainer = hydra.utils.instantiate(cfg.trainer)`: the class is in a file of YAML."""
    if not classes.spoken_of or classes.names.qualified(node.func) not in _INSTANTIATE:
        return
    if node.args and _TRAINER.search((dotted(node.args[0]) or "").rpartition(".")[2]):
        yield Construct("trainer", "lightning", node)


def _by_position(given: list[ast.expr], kind: str) -> Iterator[Construct]:
    """`Accelerator(True, False, "fp16")`, `Accelerator(*options)`"""
    for place, value in enumerate(given):
        if isinstance(value, ast.Starred):
            yield Construct("trainer", "passed on", value)
        elif place == _PRECISION_AT.get(kind):
            if says_gpu("mixed_precision", value, unknown=True):
                yield Construct("trainer", "told elsewhere", value)


def subclassed(classes: LibraryClasses, node: ast.ClassDef) -> Iterator[Construct]:
    """A trainer class of the program's own, or its settings."""
    made = [(base, classes.made_by(base)) for base in node.bases]
    for base, each in made:
        if each is not None and each.kind != "arguments" and classes.is_said(base):
            yield Construct("trainer", "lightning" if each.kind == "lightning" else "trainer", base)
    if any(each is not None and each.kind == "arguments" for _, each in made):
        for statement in node.body:
            match statement:
                case ast.AnnAssign(value=ast.expr() as value) | ast.Assign(value=value):
                    keys = _stored(statement) & SETTINGS
                    # GPU names are settings in every class
                    default = _default(value)
                    if any(says_gpu(k, default, True) and not says_gpu(k, value) for k in keys):
                        yield Construct("trainer", "told elsewhere", statement)


def _default(value: ast.expr) -> ast.expr:
    """The default of a dataclass option: `field(default="sgd")`."""
    if isinstance(value, ast.Call):
        return next((k.value for k in value.keywords if k.arg == "default"), value)
    return value


def _stored(statement: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _may_hold_settings(names: Names, options: ast.expr) -> bool:
    """Whether an argument passed by `**` may be a setting; an unknown one may.

    A known one is a construct itself, if it concerns GPUs.
    """
    match names.only_value(options):
        case ast.Dict(keys=keys, values=given):
            said = [key.value if isinstance(key, ast.Constant) else None for key in keys]
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            said, given = [k.arg for k in keywords], [k.value for k in keywords]
        case _:
            return True
    pairs = zip(said, given, strict=True)
    return any(key is None or (key in SETTINGS and ... in values(value)) for key, value in pairs)


def _takes_gpu(node: ast.Call) -> bool:
    """Whether a pipeline uses the device that it finds, or one given by number."""
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    if given.keys() & {"device_map", None}:
        return False
    if "device" not in given:
        return True
    return any(type(value) is int and value >= 0 for value in values(given["device"]))


def _is_on(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is True
