"""Advice on Keras and TensorFlow programs that already run."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Example,
    Names,
    Rule,
    Safety,
    advice,
    argument,
)
from migrator.rule_api.keras import is_traced, keras_name, replica_functions, traced_functions

ROWS = Rule(
    code="KER050",
    name="repeated-rows",
    summary="embedding rows that occur more than once in a batch train differently on JAX",
    why="""TensorFlow's gradient of an `Embedding` has one part for each occurrence of a word in a
batch. Optimizers that keep squares of gradients square each part there; on JAX, as in torch, they
square the sum. The model is not worse, but its losses differ: compare runs on one back end, or
train with SGD if the numbers have to agree.""",
    safety=Safety.DISPLAY_ONLY,
    framework="tensorflow",
    references=("https://www.tensorflow.org/api_docs/python/tf/IndexedSlices",),
    examples=(
        Example(
            """
            import keras

            model = keras.Sequential([keras.layers.Embedding(1000, 8), keras.layers.LSTM(8)])
            model.compile("adam", "mse")
            """,
        ),
        Example(
            """
            import keras

            model = keras.Sequential([keras.layers.Embedding(1000, 8), keras.layers.LSTM(8)])
            model.compile("sgd", "mse")
            """,
        ),
    ),
)
EXECUTION = Rule(
    code="KER053",
    name="steps-per-execution",
    summary="`steps_per_execution` runs several steps in one call",
    why="""The host starts each call of a program on the TPU, and waits for the values that
callbacks need. `steps_per_execution` runs several steps in one call. That saves time for short
steps, and callbacks are called less often. It has to divide the number of steps of an epoch.""",
    safety=Safety.DISPLAY_ONLY,
    framework="tensorflow",
    references=("https://www.tensorflow.org/guide/tpu",),
    examples=(
        Example(
            """
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            model.fit(x, y)
            """,
        ),
        Example(
            """
            import keras

            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse", steps_per_execution=32)
            model.fit(x, y)
            """,
        ),
    ),
)
SIZES = Rule(
    code="KER054",
    name="size-by-values",
    summary="operations in a model whose result size depends on values",
    why="""A TPU's programs have fixed shapes. The size of the result of `boolean_mask`, `unique`
and `where` with one argument depends on the values: multiply by the mask, or use `where` with three
arguments. In datasets, which run on the host, these operations are fine.""",
    safety=Safety.DISPLAY_ONLY,
    framework="tensorflow",
    references=("https://www.tensorflow.org/guide/tpu",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf


            class Positive(keras.layers.Layer):
                def call(self, x):
                    return tf.boolean_mask(x, x > 0)
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf


            def positive(rows):
                return tf.boolean_mask(rows, rows > 0)


            data = data.map(positive)
            """,
        ),
    ),
)
_SQUARES = ("adam", "adamw", "adamax", "adagrad", "rmsprop", "nadam", "lamb")


@ROWS.on("advice", "Embedding()", node=ast.Call)
def rows(ctx: Context, found: Construct, node: ast.Call) -> Decision | None:
    name = keras_name(ctx.names, node.func)
    if not ctx.api.keras_backend or name != "keras.layers.Embedding":
        return None
    optimizer = _squaring(ctx.names)
    if not optimizer:
        return None
    return advice(
        f"rows that occur more than once in a batch train slightly differently on JAX: {optimizer} "
        "squares the sum of their gradients, where TensorFlow squares each part"
    )


def _squaring(names: Names) -> str:
    """The name of an optimizer in the file that keeps squares of gradients; "" without one."""
    for node in names.order:
        if not isinstance(node, ast.Call):
            continue
        name = keras_name(names, node.func)
        last = name.removeprefix("keras.optimizers.")
        if last != name and last.lower() in _SQUARES:
            return last
        match node.func:
            case ast.Attribute(attr="compile"):
                given = argument(node, 0, "optimizer")
                if isinstance(given, ast.Constant) and str(given.value).lower() in _SQUARES:
                    return str(given.value)
    return ""


@EXECUTION.on("advice", "compile()", node=ast.Call)
def executed(ctx: Context, found: Construct, node: ast.Call) -> Decision | None:
    said = {keyword.arg for keyword in node.keywords}
    is_plain = bool(node.args or said) and not ctx.names.qualified(node.func)
    if ctx.api.strategy is None or not is_plain or "fit" not in ctx.names.by_attribute:
        return None
    if said & {"steps_per_execution", "run_eagerly", None}:
        return None
    return advice("steps_per_execution=… runs several steps in one call of the TPU's program")


@SIZES.on("advice", "boolean_mask()", "unique()", "where()", node=ast.Call)
def sized(ctx: Context, found: Construct, node: ast.Call) -> Decision | None:
    name = ctx.names.qualified(node.func) or ""
    if ctx.api.strategy is None or not name.startswith("tensorflow."):
        return None
    if name.endswith(".where") and len(node.args) + len(node.keywords) > 1:
        return None
    functions = {*traced_functions(ctx.names), *replica_functions(ctx.names)}
    if not is_traced(ctx.names, node, functions):
        return None
    return advice(
        "the result's size depends on values, but a TPU's programs have fixed shapes: multiply "
        "by the mask, or use tf.where(condition, a, b)"
    )
