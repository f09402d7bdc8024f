"""What trainers are told elsewhere than where they are made: in a table, an attribute, …"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migrator.analysis.syntax.literals import values
from migrator.analysis.syntax.names import Names, dotted
from migrator.construct import Construct
from migrator.frameworks.torch.library_classes import LibraryClasses, bound_by
from migrator.frameworks.torch.lightning import GPUS, HALF

SETTINGS = frozenset({
    "fp16", "fp16_full_eval", "tf32", "torch_compile", "optim", "deepspeed", "fsdp",
    "mixed_precision", "deepspeed_plugin", "fsdp_plugin", "dynamo_backend", "dynamo_plugin",
    "megatron_lm_plugin",
})  # fmt: skip
GPU_OPTIMIZERS = ("8bit", "bnb", "paged", "apex")
_SWITCHES = ("fp16", "fp16_full_eval", "tf32", "torch_compile")
_LIGHTNING = ("accelerator", "precision")
# What accelerate reads of the environment.
_VARIABLES = {
    "ACCELERATE_MIXED_PRECISION": "mixed_precision",
    "ACCELERATE_DYNAMO_BACKEND": "dynamo_backend",
    "ACCELERATE_USE_DEEPSPEED": "deepspeed",
    "ACCELERATE_USE_FSDP": "fsdp",
}
_OPTION = re.compile(
    r"--(?:fp16(?:_full_eval)?|tf32|torch_compile)(?:[= ](?i:true|1))?"
    r"|--mixed_precision[= ]fp(?:16|8)"
)


def told(classes: LibraryClasses, node: ast.AST) -> Iterator[Construct]:
    """A setting for GPUs that is no argument of a class of such a library."""
    for at, key, value, owner in _said(classes.names, node):
        unknown = owner is not None and key in SETTINGS and _holds(classes, owner)
        yield from _told(at, key, value, unknown)
    if isinstance(node, ast.List | ast.Tuple):
        for item in node.elts:  # ["--fp16"], for a parser
            if isinstance(item, ast.Constant) and _OPTION.fullmatch(str(item.value)):
                yield Construct("trainer", "told elsewhere", item)
    match node:
        case ast.Call(func=ast.Attribute(attr="split", value=ast.Constant(value=str(text)))) if (
            _OPTION.search(text)
        ):
            yield Construct("trainer", "told elsewhere", node)
        case ast.Call(func=function, args=[*_, owner, name, _]) if _sets(function):
            if not isinstance(name, ast.Constant) and _holds(classes, owner):
                yield Construct("trainer", "told elsewhere", node)
        case ast.ClassDef(body=body):  # a mixin
            for statement in body:
                yield from _of_class(statement)


def _of_class(statement: ast.stmt) -> Iterator[Construct]:
    match statement:
        case (
            ast.Assign(targets=[ast.Name(id=key)], value=value)
            | ast.AnnAssign(target=ast.Name(id=key), value=ast.expr() as value)
        ):
            if key in SETTINGS and says_gpu(key, value):
                yield Construct("trainer", "told elsewhere", statement)
        case ast.FunctionDef(name=key, decorator_list=[ast.Name(id="property")]):
            if key in SETTINGS:
                yield Construct("trainer", "told elsewhere", statement)


def _sets(function: ast.expr) -> bool:
    return (dotted(function) or "").rpartition(".")[2] in ("setattr", "__setattr__")


def told_to_accelerate(names: Names, node: ast.AST) -> Iterator[Construct]:
    """What an environment tells accelerate, in a file that does not import it."""
    above = names.parents.get(node)
    if isinstance(node, ast.Constant) and node.value in _VARIABLES and above is not None:
        whole = names.parents[above] if isinstance(above, ast.Subscript) else above
        for at, key, value, _ in _said(names, whole):
            if key == node.value:
                yield from _told(at, key, value)


def told_by_keyword(classes: LibraryClasses, call: ast.Call) -> Iterator[Construct]:
    """`replace(arguments, fp16=True)`, `options.update(tf32=True)`"""
    given = [k for k in call.keywords if k.arg in SETTINGS or k.arg in _LIGHTNING]
    if given and classes.made_by(bound_by(classes.names, call) or call.func) is None:
        for keyword in given:
            yield from _told(keyword, str(keyword.arg), keyword.value)


def _told(at: ast.AST, key: str, value: ast.expr, unknown: bool = False) -> Iterator[Construct]:
    if says_gpu(_VARIABLES.get(key, key), value, unknown):
        yield Construct("lightning" if key in _LIGHTNING else "trainer", "told elsewhere", at)


def _said(names: Names, node: ast.AST) -> Iterator[tuple[ast.AST, str, ast.expr, ast.expr | None]]:
    """What a node gives a name: where, the name, the value, and what has the attribute."""
    match node:
        case ast.Dict(keys=keys, values=given):
            for key, value in zip(keys, given, strict=True):
                if isinstance(key, ast.Constant):
                    yield key, str(key.value), value, None
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _stored(node, target, value)
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.AugAssign(target=target, value=value)
        ):
            yield from _stored(node, target, value)
        case ast.Call(func=function, args=[*_, owner, ast.Constant(value=str(key)), value]) if (
            dotted(function) or ""
        ).rpartition(".")[2] in ("setattr", "__setattr__"):
            yield node, key, value, owner
        case ast.Call(
            func=ast.Attribute(attr="setdefault" | "putenv" | "setenv" | "__setitem__"),
            args=[ast.Constant(value=str(key)), value],
        ):
            yield node, key, value, None


def _stored(
    node: ast.AST, target: ast.expr, value: ast.expr
) -> Iterator[tuple[ast.AST, str, ast.expr, ast.expr | None]]:
    match target:
        case ast.Attribute(attr=key, value=owner):
            yield node, key, value, owner
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            yield node, key, value, None
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            match value:
                case ast.Tuple(elts=given) | ast.List(elts=given) if len(given) == len(targets):
                    for each, its in zip(targets, given, strict=True):
                        yield from _stored(node, each, its)


def _holds(classes: LibraryClasses, owner: ast.expr) -> bool:
    """Whether an object is made of a class that takes settings."""
    names = classes.names
    bound = [b.value for b in names.lookup(owner)] if isinstance(owner, ast.Name) else []
    bound += names.dotted_assignments.get(dotted(owner) or "", [])
    if isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name):
        of = names.owner_class(owner.value)
        bound += names.class_attributes[of].get(owner.attr, []) if of is not None else []
    calls = [value for value in bound if isinstance(value, ast.Call)]
    return any(made is not None for made in (classes.made_by(call.func) for call in calls))


def is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in (False, None, "", "no")


def says_gpu(key: str, value: ast.expr, unknown: bool = False) -> bool:
    """Whether a value of a setting is for GPUs; what can not be seen, if `unknown` is."""
    return any(unknown if each is ... else _is_for_gpus(key, each) for each in values(value))


def _is_for_gpus(key: str, value: object) -> bool:
    if key in _LIGHTNING:
        return value in (GPUS if key == "accelerator" else (*HALF, 64, "64", "64-true"))
    if key not in SETTINGS or value in (None, False, "", "no"):
        return False
    if key == "mixed_precision":
        return isinstance(value, str) and value != "bf16"
    if key == "optim":
        return any(word in str(value) for word in GPU_OPTIMIZERS)
    return key not in _SWITCHES or str(value).lower() in ("true", "1", "yes")
