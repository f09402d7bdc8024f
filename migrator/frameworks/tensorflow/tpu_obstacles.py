"""Code that TensorFlow doesn't run on a TPU, or runs with other results: its program stays."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from migrator.analysis.syntax.memoize import once_in
from migrator.analysis.syntax.names import Names
from migrator.frameworks.tensorflow import (
    replica_losses,
    replica_metrics,
    replica_steps,
    training_loops,
)
from migrator.frameworks.tensorflow.keras_names import keras_name
from migrator.frameworks.tensorflow.strategies import is_own_strategy, made_by_name
from migrator.frameworks.tensorflow.traced import called_by, is_part
from migrator.frameworks.tensorflow.training_loops import Step, Unfit

_ONE = "is TensorFlow 1: move the script to TensorFlow 2 first (tf_upgrade_v2)"
_ESTIMATOR = (
    "was removed from TensorFlow: train a Keras model with model.fit, in a strategy's scope"
)
_BEGINNINGS = {
    "tensorflow.compat.v1.estimator": _ESTIMATOR,
    "tensorflow.compat.v1.logging": "",
    "tensorflow.compat.v1": _ONE,
    "tensorflow.contrib.tpu": _ESTIMATOR,
    "tensorflow.contrib": _ONE,
    "tensorflow.estimator": _ESTIMATOR,
    "tensorflow.keras.estimator": _ESTIMATOR,
    "tensorflow.Session": _ONE,
    "tensorflow.placeholder": _ONE,
    "tensorflow.distribute.experimental.ParameterServerStrategy": (
        "is for asynchronous workers, which a TPU does not have: train with a TPUStrategy"
    ),
    "tensorflow.distribute.experimental.CentralStorageStrategy": (
        "keeps variables on the CPU: train with a TPUStrategy"
    ),
}
_MODELS = (["keras.Model"], ["keras.models.Model"])
_PARTS = ("train_step", "test_step", "compute_loss")  # methods that run on each core
_NO_CALL = (
    "has no call method, which Keras needs to create all variables before it trains on several "
    "cores: add one that computes what train_step computes"
)
_BEGINNINGS["tensorflow.distribute.ParameterServerStrategy"] = _BEGINNINGS[
    "tensorflow.distribute.experimental.ParameterServerStrategy"
]
_ELSEWHERE = (
    "trains in a loop in another file than the script that creates the strategy: move the loop "
    "to the script, or pass it the strategy"
)


def tpu_obstacles(names: Names) -> Mapping[ast.AST, tuple[str, str]]:
    """Each place that prevents a program from running on a TPU, with its name and the reason."""
    return _obstacles(names, names.tree)


def obstacles_elsewhere(names: Names) -> Mapping[ast.AST, tuple[str, str]]:
    """The same for a file that is not the started script."""
    loops: dict[ast.AST, tuple[str, str]] = {
        step.decorator or step.function: (step.function.name, _ELSEWHERE) for step in divided(names)
    }
    return {**tpu_obstacles(names), **loops}


@once_in
def _obstacles(names: Names, tree: ast.AST) -> dict[ast.AST, tuple[str, str]]:
    found = [*_named(names), *_steps(names)]
    found.sort(key=lambda item: getattr(item[0], "lineno", 0))
    return {node: (name, reason) for node, name, reason in found}


def _named(names: Names) -> Iterator[tuple[ast.AST, str, str]]:
    parts: set[ast.AST] = set()
    for node in names.order:
        if not isinstance(node, ast.Attribute | ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        if isinstance(node, ast.Attribute):
            parts.add(node.value)
        qualname = names.qualified(node) or ""
        if node in parts or not qualname.startswith("tensorflow."):
            continue
        if reason := _why(names, node, qualname):
            yield node, qualname, reason


def _why(names: Names, node: ast.expr, qualname: str) -> str:
    for beginning, reason in _BEGINNINGS.items():
        if f"{qualname}.".startswith(f"{beginning}."):
            return reason
    if is_own_strategy(qualname) and names.call_of(node) is not None:
        return made_by_name(names, node)
    return ""


def _steps(names: Names) -> Iterator[tuple[ast.AST, str, str]]:
    """Steps of models and loops that can't be shown to train the same on several cores."""
    if has_strategy(names):
        return
    found: list[Unfit] = [*_clipping(names), *_without_call(names)]
    for loss, kind in _own_losses(names):
        if kind not in (replica_losses.SHARED, replica_losses.MEAN):
            found.append(Unfit(loss, "the loss", replica_steps.SUMMED))
    for training in replica_losses.trainings(names):
        if training.is_of_fit(names):
            assert training.function is not None
            if not replica_steps.is_shared_out(names, training.loss):
                found.append(Unfit(training.loss, "the loss", replica_steps.SUMMED))
            applied = replica_steps.applied(names, training.function)
            found += [each for each in applied if isinstance(each, Unfit)]
    found += [step for step in training_loops.steps(names) if isinstance(step, Unfit)]
    inside: list[ast.FunctionDef] = []
    for step in divided(names):
        found += replica_steps.unfit(names, step)
        inside += called_by(names, step.function)
    found += replica_metrics.also_on_host(names, inside)
    yield from ((each.node, each.name, each.reason) for each in found)


def _clipping(names: Names) -> Iterator[Unfit]:
    """Optimizers with clipping: each replica clips only its share of the gradients."""
    for call in names.order:
        if not isinstance(call, ast.Call) or not call.keywords:
            continue
        name = keras_name(names, call.func)
        if not name.startswith("keras.optimizers."):
            continue
        for keyword in call.keywords:
            is_none = isinstance(keyword.value, ast.Constant) and keyword.value.value is None
            if keyword.arg in ("clipnorm", "clipvalue", "global_clipnorm") and not is_none:
                reason = f"clips the gradients of each core {replica_steps.ADDED_UP}"
                yield Unfit(keyword.value, f"{name}({keyword.arg})", reason)


def _without_call(names: Names) -> Iterator[Unfit]:
    """Models without `call`, which Keras cannot build before they train on several cores."""
    for owner in names.class_attributes:
        methods = {s.name: s for s in owner.body if isinstance(s, ast.FunctionDef)}
        if {"train_step", "__init__"} <= {*methods} and "call" not in methods:
            is_model = [keras_name(names, base) for base in owner.bases] in _MODELS
            if is_model and not _takes_inputs(methods["__init__"]):
                yield Unfit(methods["train_step"], owner.name, _NO_CALL)


def _own_losses(names: Names) -> Iterator[tuple[ast.expr, str]]:
    """What models' own `compute_loss` return, which Keras takes to be divided already."""
    for owner in names.class_attributes:
        for method in owner.body if is_part(names, owner) else ():
            if isinstance(method, ast.FunctionDef) and method.name == "compute_loss":
                for node in ast.walk(method):
                    if not isinstance(node, ast.Return) or names.function(node) is not method:
                        continue
                    if node.value is not None:
                        yield node.value, replica_losses.loss_kind(names, node.value)


def own_averages(names: Names) -> list[ast.expr]:
    """Averages over a replica's part of the batch that models' own `compute_loss` return."""
    if has_strategy(names):
        return []
    return [loss for loss, kind in _own_losses(names) if kind == replica_losses.MEAN]


def _takes_inputs(init: ast.FunctionDef) -> bool:
    """Whether a model passes inputs and outputs to its base class, like functional models."""
    for node in ast.walk(init):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Call(), attr="__init__")):
                return bool(node.args) or any(k.arg == "inputs" for k in node.keywords)
    return False


def divided(names: Names) -> list[Step]:
    """The steps of loops that can be divided over the cores."""
    if has_strategy(names):
        return []
    return [step for step in training_loops.steps(names) if isinstance(step, Step)]


def replica_functions(names: Names) -> list[ast.FunctionDef]:
    """The functions that run on each core: steps of models and loops, and the functions they
    call."""
    if has_strategy(names):
        return []
    found = [f for step in divided(names) for f in called_by(names, step.function)]
    for owner in names.class_attributes:
        for method in owner.body if is_part(names, owner) else ():
            if isinstance(method, ast.FunctionDef) and method.name in _PARTS:
                found += called_by(names, method)
    return list(dict.fromkeys(found))


def losses_of_parts(names: Names) -> list[ast.expr]:
    """Losses that a step averages over a replica's part of the batch."""
    if has_strategy(names):
        return []
    steps = replica_losses.trainings(names)
    return [t.loss for t in steps if replica_losses.loss_kind(names, t.loss) == replica_losses.MEAN]


def has_strategy(names: Names) -> bool:
    """Whether a file mentions a strategy: then it is already written for several devices."""
    speaks = (names.qualified(n) or "" for n in names.all(ast.Attribute))
    return any(is_own_strategy(name) or name.endswith(_ASKS) for name in speaks)


_ASKS = ("distribute.get_strategy", "distribute.TPUStrategy", "experimental_set_strategy",
         "distribute.experimental.TPUStrategy")  # fmt: skip
