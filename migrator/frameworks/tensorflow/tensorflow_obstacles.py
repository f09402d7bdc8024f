"""Code that only TensorFlow runs: on a target with another back end, its whole program stays."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import Names
from migrator.decision import Obstacle
from migrator.frameworks.tensorflow.keras_names import computing_backend, in_keras
from migrator.frameworks.tensorflow.keras_ops import dtype_of, operation
from migrator.frameworks.tensorflow.strategies import (
    MIRRORED,
    ONE_DEVICE,
    OTHERWISE,
    strategy_of,
)
from migrator.frameworks.tensorflow.traced import is_part, is_traced, traced_functions

if TYPE_CHECKING:
    from migrator.analysis.project.facts import ProjectFacts

_GUIDE = "https://keras.io/guides/custom_train_step_in_jax/"
_STRATEGY = (
    "has no counterpart in Keras on JAX: use only MirroredStrategy's scope(), or set up "
    "keras.distribution.DataParallel by hand"
)
_ONE = "is TensorFlow 1: move the script to TensorFlow 2 first (tf_upgrade_v2)"
_REASONS = {
    "tensorflow.GradientTape": (
        "needs TensorFlow: train with model.fit and override compute_loss, or write the step "
        f"with jax.value_and_grad ({_GUIDE})"
    ),
    "tensorflow.gradients": "needs TensorFlow: use jax.grad",
    "tensorflow.function": (
        "makes a TensorFlow graph: train with model.fit, which Keras compiles itself, or use "
        f"jax.jit ({_GUIDE})"
    ),
    "tensorflow.custom_gradient": "needs TensorFlow: use keras.ops.custom_gradient",
    "tensorflow.py_function": "only runs in TensorFlow's graphs",
    "tensorflow.numpy_function": "only runs in TensorFlow's graphs",
}
_STEP = f"also takes and returns a state on JAX: see {_GUIDE}"
_METHODS = {
    "train_step": _STEP,
    "test_step": _STEP,
    "predict_step": _STEP,
    "update_state": "raises an error inside a layer's call on JAX: pass metrics to compile",
    "assign": (
        "has no effect on JAX, where a step drops assignments to trained weights: compute with "
        "the value instead of assigning it"
    ),
}
_BEGINNINGS = {
    "tensorflow.compat.v1": _ONE,
    "tensorflow.contrib": _ONE,
    "tensorflow.estimator": "was removed from TensorFlow: train with model.fit",
    "tensorflow.keras.estimator": "was removed from TensorFlow: train with model.fit",
    "tensorflow.python": "is private to TensorFlow, and not in Keras 3: use the public name",
    "tensorflow.Session": _ONE,
    "tensorflow.placeholder": _ONE,
    "tensorflow.lite": "converts TensorFlow models: convert in a separate program",
    "tensorflow.saved_model": "saves TensorFlow models: use model.save or model.export",
    "tensorflow.tpu": "is for TensorFlow on a TPU",
    "tensorflow.train.Checkpoint": "saves TensorFlow's variables: use model.save_weights",
    "tensorflow.distribute": _STRATEGY,
    "tensorflow.keras.optimizers.legacy": "is Keras 2: use the optimizer of the same name",
    "tensorflow.keras.layers.experimental": "is Keras 2: use the layer of the same name",
    "tensorflow.keras.experimental": "is Keras 2",
}
Finder = Callable[[Names], Mapping[ast.AST, tuple[str, str]]]
_TRAINED = ("kernel", "bias", "embeddings", "gamma", "beta")  # weights of Keras' layers
# Datasets, and functions that are passed to them, run in TensorFlow on any back end.
_OF_DATA = ("map", "filter", "flat_map", "interleave", "batch", "padded_batch", "from_generator")


def obstacles(names: Names) -> Mapping[ast.AST, tuple[str, str]]:
    """Each name that only runs in TensorFlow, with its full name and the reason."""
    return _obstacles(names, names.tree)


@once_in
def _obstacles(names: Names, tree: ast.AST) -> dict[ast.AST, tuple[str, str]]:
    found = {node: (name, reason) for node, name, reason in _found(names)}
    found |= {node: (name, _METHODS[name]) for node, name in _of_methods(names)}
    return dict(sorted(found.items(), key=lambda item: getattr(item[0], "lineno", 0)))


def _of_methods(names: Names) -> Iterator[tuple[ast.AST, str]]:
    """Custom steps of models, and metrics in a `call`, which each back end handles differently."""
    for owner in names.class_attributes:
        for method in owner.body if is_part(names, owner) else ():
            match method:
                case ast.FunctionDef(name="train_step" | "test_step" | "predict_step" as step):
                    if len(method.args.args) == 2:  # itself and the data
                        yield method.args.args[1], step
                case ast.FunctionDef(name="call"):
                    for node in ast.walk(method):
                        if isinstance(node, ast.Attribute) and names.call_of(node) is not None:
                            if node.attr == "update_state" or _assigns_trained(node):
                                yield node, node.attr


def _assigns_trained(method: ast.Attribute) -> bool:
    """`self.conv.kernel.assign`: assigning to a weight of a Keras layer."""
    held = method.value
    return method.attr == "assign" and isinstance(held, ast.Attribute) and held.attr in _TRAINED


def _found(names: Names) -> Iterator[tuple[ast.AST, str, str]]:
    functions = traced_functions(names)
    parts: set[ast.AST] = set()
    for node in names.order:
        if not isinstance(node, ast.Attribute | ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        if node in parts:
            if isinstance(node, ast.Attribute):
                parts.add(node.value)
            continue
        qualname = names.qualified(node) or ""
        if not qualname.startswith(("tensorflow.", "keras.backend.")):
            continue
        if isinstance(node, ast.Attribute):
            parts.add(node.value)
        if reason := _why(names, node, qualname, functions):
            yield node, qualname, reason


def _why(names: Names, node: ast.expr, qualname: str, functions: set[ast.AST]) -> str:
    if qualname in (MIRRORED, ONE_DEVICE):
        return "" if strategy_of(names, node) is not None else OTHERWISE
    if computing_backend(qualname):
        return "" if operation(names, node, qualname) else "needs TensorFlow: use keras.ops"
    if qualname in _REASONS:
        is_of_data = qualname == "tensorflow.function" and _is_for_data(names, node)
        return "" if is_of_data else _REASONS[qualname]
    for beginning, reason in _BEGINNINGS.items():
        if f"{qualname}.".startswith(f"{beginning}."):
            return reason
    if in_keras(qualname) is not None or not is_traced(names, node, functions):
        return ""
    if operation(names, node, qualname) is not None or dtype_of(qualname):
        return ""
    return _within(qualname.removeprefix("tensorflow."))


def _within(name: str) -> str:
    """Why a function of TensorFlow can't be called in a model on another back end."""
    if name.startswith("random."):
        return "draws random numbers in a model: use keras.random with a keras.random.SeedGenerator"
    if name.startswith("summary."):
        return "writes summaries in a model: write them in a callback of model.fit"
    if name.startswith("strings."):
        return "processes text in a model: do that in the dataset, before the model"
    return "is a TensorFlow operation in a model: use keras.ops"


def _is_for_data(names: Names, node: ast.expr) -> bool:
    """Whether `tf.function` decorates a function that only datasets call."""
    function = names.parents.get(node)
    if isinstance(function, ast.Call):
        function = names.parents.get(function)
    if not isinstance(function, ast.FunctionDef):
        return False
    uses = [*names.uses(function.name, names.scope_of(function))]
    return bool(uses) and all(_is_given_to_data(names, use) for use in uses)


def _is_given_to_data(names: Names, use: ast.expr) -> bool:
    match names.parents.get(use):
        case ast.Call(func=ast.Attribute(attr=method), args=args) if use in args:
            return method in _OF_DATA
    return False


def first_obstacle(
    names: Names, project: ProjectFacts | None, found_in: Finder, elsewhere: Finder
) -> Obstacle | None:
    """The first obstacle that keeps a program unchanged: here, or in its imports."""
    for node, (name, reason) in found_in(names).items():
        return Obstacle(None, getattr(node, "lineno", 0), f"{_short(name)} {reason}")
    if project is None:
        return None
    for path in sorted(project.reached() - {project.path}):
        if b"tensorflow" not in (project.reader.read(path) or b""):
            continue
        facts = project.cache.facts(path)
        for node, (name, reason) in elsewhere(facts.names).items() if facts is not None else ():
            return Obstacle(path, getattr(node, "lineno", 0), f"{_short(name)} {reason}")
    return None


def _short(name: str) -> str:
    return name.replace("tensorflow.", "tf.", 1)
