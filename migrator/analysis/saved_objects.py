"""Checkpoints with more than tensors, which PyTorch refuses to load since 2.6 unless it is told."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migrator.analysis.syntax.names import Names, Scope


def holds_objects(names: Names, load: ast.Call) -> bool:
    """Whether a checkpoint holds more than tensors, as its file shows: it is used as a model, or
    the file saves models, the command line's arguments or NumPy's numbers."""
    match names.parents.get(load):
        case ast.Assign(targets=[ast.Name() as target]):
            only = len(names.scope_of(target).bindings.get(target.id, ())) == 1
            if only and _is_model(names, target.id, names.scope_of(target)):
                return True
        case ast.Attribute(attr=attr) if attr in _OF_MODEL:
            return True
    if any(_is_with_objects(names, each) for each in _saved(names)):
        return True
    saves = [call for n, name in names.meant if name == "torch.save" and (call := names.call_of(n))]
    held = (each for save in saves for saved in save.args[:1] for each in _held(names, saved))
    return any(_is_object(names, each) for each in held) or any(
        _saves_model(names, save, load) for save in saves
    )


def loaded_keys(names: Names, load: ast.Call) -> set[str]:
    """What a program takes from a checkpoint: `torch.load(path)["model"]`."""
    uses: list[ast.expr] = [load]
    match names.parents.get(load):
        case ast.Assign(targets=[ast.Name() as target]):
            uses += names.uses(target.id, names.scope_of(target))
    return {key for use in uses if (key := _key(names.parents.get(use), use)) is not None}


def _key(taken: ast.AST | None, of: ast.expr) -> str | None:
    match taken:
        case ast.Subscript(value=value, slice=ast.Constant(value=str(key))) if value is of:
            return key
    return None


def saved_keys(names: Names) -> set[str]:
    """The keys of the checkpoints that a file saves with more than tensors."""
    return {
        key.value
        for saved in _saved(names)
        if _is_with_objects(names, saved)
        for key in saved.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _saved(names: Names) -> Iterator[ast.Dict]:
    """The dictionaries that a file saves, by `torch.save` or a function that is named like it."""
    for call in names.order:
        if not isinstance(call, ast.Call) or not call.args:
            continue
        match call.func:
            case ast.Name(id=name) | ast.Attribute(attr=name) if "save" in name.lower():
                for part in (call.args[0], names.only_value(call.args[0])):
                    if isinstance(part, ast.Dict):
                        yield part


def _is_model(names: Names, name: str, scope: Scope, depth: int = 0) -> bool:
    """Whether a variable is called, used as only a model is, or given to a function for that."""
    for use in names.uses(name, scope):
        match names.parents.get(use):
            case ast.Attribute(attr=attr) if attr in _OF_MODEL:
                return True
            case ast.Call(func=called) as call:
                if called is use or (depth < 3 and _is_taken_as_model(names, call, use, depth)):
                    return True
    return False


def _is_taken_as_model(names: Names, call: ast.Call, given: ast.Name, depth: int) -> bool:
    """Whether a function of the file uses what it is given as a model."""
    bound = names.lookup(call.func) if isinstance(call.func, ast.Name) else []
    function = bound[0].node if len(bound) == 1 else None
    if not isinstance(function, ast.FunctionDef) or given not in call.args:
        return False
    place, taken = call.args.index(given), function.args.args
    inside = names.scopes[function]
    return place < len(taken) and _is_model(names, taken[place].arg, inside, depth + 1)


def _saves_model(names: Names, save: ast.Call, load: ast.Call) -> bool:
    """Whether a model is saved under the very name that is loaded."""
    match save.args, load.args:
        case [ast.Name() as saved, ast.Constant(value=one)], [ast.Constant(value=other), *_]:
            return one == other and _is_model(names, saved.id, names.scope_of(saved))
    return False


def _is_with_objects(names: Names, saved: ast.Dict) -> bool:
    """Whether there are objects in what is saved."""
    return any(_is_object(names, each) for each in _inside(saved))


def _held(names: Names, saved: ast.expr) -> Iterator[ast.expr]:
    """The values in what is saved: of a dictionary, also of one that is filled later."""
    if isinstance(saved, ast.Name) and names.lookup(saved):
        for use in names.uses(saved.id, names.scope_of(saved)):
            match names.parents.get(use), names.statement(use):
                case ast.Subscript(value=owner, ctx=ast.Store()), ast.Assign(value=value):
                    yield from _inside(value) if owner is use else ()
    yield from _inside(names.only_value(saved))


def _inside(value: ast.expr) -> Iterator[ast.expr]:
    match value:
        case ast.Dict(values=values):
            parts: list[ast.expr] = values
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            parts = elements
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            parts = [keyword.value for keyword in keywords]
        case _:
            yield value
            return
    for part in parts:
        yield from _inside(part)


def _is_object(names: Names, value: ast.expr) -> bool:
    if isinstance(value, ast.Name) and _is_of_command_line(names, value):
        return True
    match value:
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            return attr in _ARGUMENTS
    made = names.only_value(value)
    called = names.qualified(made.func) if isinstance(made, ast.Call) else None
    return called is not None and called.startswith(_OBJECTS)


def _is_of_command_line(names: Names, name: ast.Name) -> bool:
    match names.only_value(name):
        case ast.Call(func=ast.Attribute(attr="parse_args" | "parse_known_args")):
            return True
    bindings = names.lookup(name)
    return name.id in _ARGUMENTS and all(b.kind == "param" for b in bindings)


_OF_MODEL = ("eval", "train", "state_dict", "parameters", "named_parameters", "modules")
_ARGUMENTS = ("args", "opt", "opts")
_OBJECTS = ("argparse.Namespace", "collections.defaultdict", "datetime.", "easydict.", "numpy.",
            "omegaconf.", "pathlib.", "types.SimpleNamespace", "yacs.")  # fmt: skip
