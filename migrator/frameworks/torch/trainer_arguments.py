"""Trainer settings given elsewhere than at the trainer's creation: in a table, an attribute, …"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from migrator.analysis.syntax.literals import values
from migrator.analysis.syntax.names import Binding, Names
from migrator.analysis.syntax.nodes import argument, dotted
from migrator.construct import Construct
from migrator.frameworks.torch.find_lightning_settings import GPUS, HALF
from migrator.frameworks.torch.library_classes import LibraryClasses, bound_by

SETTINGS = frozenset({
    "fp16", "fp16_full_eval", "tf32", "torch_compile", "torch_compile_backend",
    "torch_compile_mode", "optim", "deepspeed", "fsdp", "mixed_precision", "deepspeed_plugin",
    "deepspeed_plugins", "fsdp_plugin", "dynamo_backend", "dynamo_plugin", "megatron_lm_plugin",
    "use_liger_kernel",
})  # fmt: skip
GPU_OPTIMIZERS = ("8bit", "bnb", "paged", "apex")
_SWITCHES = ("fp16", "fp16_full_eval", "tf32", "torch_compile", "use_liger_kernel")
_LIGHTNING = ("accelerator", "precision")
# Environment variables that accelerate reads.
VARIABLES = {
    "ACCELERATE_MIXED_PRECISION": "mixed_precision",
    "ACCELERATE_DYNAMO_BACKEND": "dynamo_backend",
    "ACCELERATE_USE_DEEPSPEED": "deepspeed",
    "ACCELERATE_USE_FSDP": "fsdp",
}
# Nodes that give a name a value, or may be a command line.
_TELLING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Call, ast.ClassDef, ast.Dict, ast.List,
            ast.Tuple)  # fmt: skip


def told(classes: LibraryClasses, node: ast.AST) -> Iterator[Construct]:
    """A GPU setting that isn't an argument of a class of such a library."""
    names = classes.names
    if not isinstance(node, _TELLING) or not classes.take_settings:
        return
    argument_of_lightning = _given_to_lightning(classes, node)
    if argument_of_lightning == "trainer_defaults":
        return  # each of those is a construct
    for at, key, value, owner in _assigned_values(names, node):
        unknown = owner is not None and key in SETTINGS and _is_settings(classes, owner)
        yield from _constructs_of_settings(at, key, value, unknown)
    for at, key, value in _options(names, node):
        yield from _constructs_of_settings(at, key, value, argument_of_lightning == "args")
    match node:
        case ast.Call(func=ast.Attribute(attr="set_optimizer")):
            optimizer = argument(node, 0, "name")
            if optimizer is not None and says_gpu("optim", optimizer):
                yield Construct("trainer", "optim", optimizer)
        case ast.Call(func=function, args=[*_, owner, name, _]) if _sets(function):
            if not isinstance(name, ast.Constant) and _is_settings(classes, owner):
                yield Construct("trainer", "told elsewhere", node)
        case ast.ClassDef(body=body, keywords=keywords):
            for keyword in keywords:  # for the `__init_subclass__` of a base
                yield from _constructs_of_settings(keyword, keyword.arg or "", keyword.value)
            for statement in body:  # a mixin
                yield from _of_class(statement)


def _options(names: Names, node: ast.AST) -> Iterator[tuple[ast.AST, str, ast.expr]]:
    """Options in a command line: `["--fp16", "--optim=adafactor", "--trainer.precision", "16"]`."""
    words: list[ast.expr]
    match node:
        case ast.List() | ast.Tuple():
            words = node.elts
        case ast.Call(func=ast.Attribute(attr="append"), args=[ast.Constant() as one]):
            words = [one]  # sys.argv.append("--fp16")
        case (
            ast.Call(func=ast.Attribute(attr="split", value=ast.Constant(value=str(text))))
            | ast.Call(func=ast.Attribute(attr="split"), args=[ast.Constant(value=str(text)), *_])
        ):
            words = [ast.copy_location(ast.Constant(word), node) for word in text.split()]
        case _:
            return
    for word, following in itertools.zip_longest(words, words[1:]):
        value: ast.expr
        match _text(word).partition("="):
            case (name, "", "") if name.startswith("--"):
                value = following or ast.Constant(True)
                if _text(value).startswith("-"):
                    value = ast.Constant(True)
            case (name, "=", value_text) if name.startswith("--"):
                value = ast.Constant(value_text) if isinstance(word, ast.Constant) else word
            case _:
                continue
        yield node if word not in names.parents else word, name[2:], value


def _text(word: ast.expr) -> str:
    """A word of a command line, or the literal start of it."""
    match word:
        case (
            ast.Constant(value=str(text))
            | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_])
        ):
            return text
    return ""


def _given_to_lightning(classes: LibraryClasses, node: ast.AST) -> str | None:
    """The Lightning argument that a node is part of: `LightningCLI(args=[…])`."""
    match classes.names.parents.get(node):
        case ast.keyword(arg=name) as above:
            call = classes.names.parents[above]
            made = classes.made_by(call.func) if isinstance(call, ast.Call) else None
            return name if made is not None and made.kind == "lightning" else None
    return None


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


def told_to_accelerate(names: Names, node: ast.Constant) -> Iterator[Construct]:
    """One of the `VARIABLES` for accelerate, in a file that doesn't import it."""
    above = names.parents.get(node)
    if above is not None:
        whole = names.parents[above] if isinstance(above, ast.Subscript) else above
        for at, key, value, _ in _assigned_values(names, whole):
            if key == node.value:
                yield from _constructs_of_settings(at, key, value)


def told_by_keyword(classes: LibraryClasses, call: ast.Call) -> Iterator[Construct]:
    """`replace(arguments, fp16=True)`, `options.update(tf32=True)`"""
    given = [k for k in call.keywords if k.arg in SETTINGS or k.arg in _LIGHTNING]
    if not given or not classes.take_settings:
        return
    if classes.made_by(bound_by(classes.names, call) or call.func) is None:
        for keyword in given:
            if not _only_decides(classes, call.func, str(keyword.arg)):
                yield from _constructs_of_settings(keyword, str(keyword.arg), keyword.value)


def _only_decides(classes: LibraryClasses, function: ast.expr, name: str) -> bool:
    """Whether a function of the program's own only tests its argument."""
    names = classes.names
    found: ast.AST | None = None
    if isinstance(function, ast.Name):
        match names.lookup(function):
            case [Binding(kind="def", node=node)]:
                found = node
    qualname = names.qualified(function) if found is None else None
    if qualname and classes.project is not None:
        if (there := classes.project.definition(qualname)) is not None:
            names, found = there[0].names, there[2]
    if not isinstance(found, ast.FunctionDef) or name not in names.scopes[found].bindings:
        return False
    return all(_is_asked(names, use) for use in names.uses(name, names.scopes[found]))


def _is_asked(names: Names, use: ast.expr) -> bool:
    node: ast.AST = use
    while isinstance(above := names.parents[node], ast.BoolOp | ast.UnaryOp | ast.Compare):
        node = above
    return isinstance(above, ast.If | ast.IfExp | ast.While) and above.test is node


def _constructs_of_settings(
    at: ast.AST, key: str, value: ast.expr, unknown: bool = False
) -> Iterator[Construct]:
    key = key.rpartition(".")[2]  # {"trainer.precision": 16}
    if key not in SETTINGS and key not in _LIGHTNING and key not in VARIABLES:
        return
    if says_gpu(VARIABLES.get(key, key), value, unknown):
        yield Construct("lightning" if key in _LIGHTNING else "trainer", "told elsewhere", at)


def _assigned_values(
    names: Names, node: ast.AST
) -> Iterator[tuple[ast.AST, str, ast.expr, ast.expr | None]]:
    """What a node assigns: the place, the name, the value, and the owner of the attribute."""
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
            _sets(function)
        ):
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


def _is_settings(classes: LibraryClasses, owner: ast.expr) -> bool:
    """Whether an object is an instance of a class that takes settings."""
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
    """Whether the value of a setting is for GPUs; if it can't be determined, `unknown`."""
    if key == "optim":  # also `OptimizerNames.ADAMW_BNB`
        value = ast.Constant(value.attr.lower()) if isinstance(value, ast.Attribute) else value
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
