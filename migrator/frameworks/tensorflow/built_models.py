"""Models that have their variables once they are created, because their input is known."""

from __future__ import annotations

import ast

from migrator.analysis.syntax.names import Names
from migrator.frameworks.tensorflow.keras_names import keras_name
from migrator.frameworks.tensorflow.single_assignment import value_of

_MODELS = ("keras.Model", "keras.models.Model")
_ROWS = ("keras.Sequential", "keras.models.Sequential")
_INPUTS = ("keras.Input", "keras.layers.Input", "keras.layers.InputLayer")
_SHAPES = ("input_shape", "batch_input_shape", "batch_shape", "input_dim")
_DEPTH = 6


def is_built(names: Names, model: ast.expr, depth: int = 0) -> bool:
    """Whether a model, given by name or by the call that creates it, is known to have its
    variables."""
    value = value_of(names, model)
    if not isinstance(value, ast.Call) or depth > _DEPTH:
        return False
    name = keras_name(names, value.func)
    if name in _MODELS:
        return bool(value.args or value.keywords)
    if name in _ROWS:
        return _row_is_built(names, model, value)
    if name:
        return name.startswith("keras.applications.") or name.endswith(".load_model")
    if not isinstance(value.func, ast.Name):
        return False
    made = [bound.node for bound in names.lookup(value.func)]
    return bool(made) and all(_makes_built(names, each, depth + 1) for each in made)


def _row_is_built(names: Names, model: ast.expr, made: ast.Call) -> bool:
    layers = made.args[0] if made.args else next((k.value for k in made.keywords), None)
    if isinstance(layers, ast.List | ast.Tuple) and layers.elts:
        return _says_input(names, layers.elts[0])
    if layers is not None or not isinstance(model, ast.Name):
        return False
    for use in names.uses(model.id, names.scope_of(model)):  # model.add(…), in order
        match names.parents.get(use):
            case ast.Attribute(attr="add") as method:
                call = names.call_of(method)
                return call is not None and bool(call.args) and _says_input(names, call.args[0])
    return False


def _says_input(names: Names, layer: ast.expr) -> bool:
    layer = names.only_value(layer)
    if not isinstance(layer, ast.Call):
        return False
    name = keras_name(names, layer.func)
    return name in _INPUTS or any(k.arg in _SHAPES for k in layer.keywords)


def _makes_built(names: Names, node: ast.AST, depth: int) -> bool:
    if isinstance(node, ast.ClassDef):  # if its only parts with variables are built models
        held = [v for values in names.class_attributes[node].values() for v in values if v]
        made = [v for v in held if isinstance(v, ast.Call)
                and keras_name(names, v.func)]  # fmt: skip
        return bool(made) and all(is_built(names, v, depth) for v in made)
    if not isinstance(node, ast.FunctionDef):
        return False
    returned = [n.value for n in ast.walk(node)
                if isinstance(n, ast.Return) and names.function(n) is node]  # fmt: skip
    return bool(returned) and all(v is not None and is_built(names, v, depth) for v in returned)
