"""What TensorFlow itself does not run on a TPU, or runs otherwise there: its program stays."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from migrator.analysis.syntax.names import Names
from migrator.analysis.syntax.once import once_in
from migrator.frameworks.tensorflow import replica_losses
from migrator.frameworks.tensorflow.strategies import is_own_strategy, made_by_name

_ONE = "is of TensorFlow 1: move the script to TensorFlow 2 first (tf_upgrade_v2)"
_ESTIMATOR = (
    "is gone from TensorFlow: train a Keras model with model.fit, in the scope of a strategy"
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
        "is for asynchronous workers, of which a TPU has none: train with a TPUStrategy"
    ),
    "tensorflow.distribute.experimental.CentralStorageStrategy": (
        "keeps variables on the CPU: train with a TPUStrategy"
    ),
}
_BEGINNINGS["tensorflow.distribute.ParameterServerStrategy"] = _BEGINNINGS[
    "tensorflow.distribute.experimental.ParameterServerStrategy"
]
_LOOP = (
    "trains by a loop of its own: call the step by strategy.run on what "
    "strategy.experimental_distribute_dataset gives, and join what it returns by strategy.reduce "
    "(https://www.tensorflow.org/tutorials/distribute/custom_training)"
)
_SUMMED = (
    "its gradients are summed over the replicas: divide the loss by "
    "tf.distribute.get_strategy().num_replicas_in_sync, unless it is a sum"
)


def tpu_obstacles(names: Names) -> Mapping[ast.AST, tuple[str, str]]:
    """Each place that keeps a program from a TPU, with its name, and why it does."""
    return _obstacles(names, names.tree)


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
    """Loops of a program's own, and steps of a model's whose loss is not that of all replicas."""
    if has_strategy(names):
        return
    for training in replica_losses.trainings(names):
        if not training.is_of_fit(names):
            yield training.tape, "tf.GradientTape", _LOOP
        elif not replica_losses.kind(names, training.loss):
            yield training.loss, "the loss", _SUMMED


def losses_of_parts(names: Names) -> list[ast.expr]:
    """Losses that a step of `fit` averages over a replica's part of the batch."""
    if has_strategy(names):
        return []
    steps = (t for t in replica_losses.trainings(names) if t.is_of_fit(names))
    return [t.loss for t in steps if replica_losses.kind(names, t.loss) == replica_losses.MEAN]


def has_strategy(names: Names) -> bool:
    """Whether a file speaks of a strategy itself: then it is written for several devices."""
    speaks = (names.qualified(n) or "" for n in names.order if isinstance(n, ast.Attribute))
    return any(is_own_strategy(name) or name.endswith(_ASKS) for name in speaks)


_ASKS = ("distribute.get_strategy", "distribute.TPUStrategy", "experimental_set_strategy",
         "distribute.experimental.TPUStrategy")  # fmt: skip
