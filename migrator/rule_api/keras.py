# ruff: noqa: F401  what it imports is for rules
"""Keras and TensorFlow: names, strategies, training loops, and what is in the way."""

import ast
import sys

from migrator.frameworks.tensorflow.installed import BRINGS_TENSORFLOW, OF_CONDA, TENSORFLOW
from migrator.frameworks.tensorflow.keras_names import MODULES, in_keras, is_legacy, keras_name
from migrator.frameworks.tensorflow.keras_ops import activation, dtype_of, operation
from migrator.frameworks.tensorflow.model_creation import Making
from migrator.frameworks.tensorflow.replica_losses import REPLICAS, trainings
from migrator.frameworks.tensorflow.replica_steps import (
    Applied,
    applied,
    results,
    unbuilt,
    whole_sizes,
)
from migrator.frameworks.tensorflow.strategies import (
    MIRRORED,
    ONE_DEVICE,
    WORKERS,
    is_own_strategy,
    strategy_of,
)
from migrator.frameworks.tensorflow.tensorflow_obstacles import first_obstacle, obstacles
from migrator.frameworks.tensorflow.tpu_obstacles import (
    divided,
    has_strategy,
    obstacles_elsewhere,
    replica_functions,
    tpu_obstacles,
)
from migrator.frameworks.tensorflow.traced import is_traced, traced_functions
from migrator.frameworks.tensorflow.training_loops import Loop, Step, leaves_last_out
from migrator.rule_api import Context, Report


def stays(ctx: Context) -> Report | None:
    """Why code of Keras stays as it is; None where nothing keeps its program."""
    elsewhere = obstacles if ctx.api.keras_backend else obstacles_elsewhere
    found_in = tpu_obstacles if ctx.file.is_entry and not ctx.api.keras_backend else elsewhere
    obstacle = first_obstacle(ctx.names, ctx.project, found_in, elsewhere)
    if obstacle is None:
        return None
    file = "" if obstacle.path is None else f"{obstacle.path.name}, "
    return Report(
        f"stays because of {file}line {obstacle.line}: {obstacle.reason}", obstacle=obstacle
    )


def listed_devices(ctx: Context) -> tuple[str, tuple[str, ...]]:
    """What lists the target's devices, and the imports that this needs."""
    word = ctx.api.calls["list_devices"]
    if "{keras}" not in word.code:
        return word.code, tuple(word.requires)
    spelled, requires = keras(ctx)
    return word.code.replace("{keras}", spelled), requires


def keras(ctx: Context) -> tuple[str, tuple[str, ...]]:
    """How this file spells Keras behind the rewrite, and the imports that this needs."""
    for module in ("keras", *MODULES):
        if MODULES.get(module, "keras") == "keras" and (spelled := ctx.names.spelled(module)):
            return spelled, ()
    return "keras", ("keras",)


def strategy_name(ctx: Context) -> str:
    """The name of the strategy that is made in this script."""
    return "strategy" if "strategy" not in ctx.names.by_id else "tpu_strategy"
