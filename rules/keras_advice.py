"""Keras and TensorFlow: what an expert would mention about programs that run as they are."""

import ast

from migrator.analysis.syntax.names import Names, argument
from migrator.construct import Construct
from migrator.frameworks.tensorflow.keras_names import keras_name
from migrator.frameworks.tensorflow.tpu_obstacles import divided, replica_functions
from migrator.frameworks.tensorflow.traced import is_traced, traced_functions
from migrator.rule import Context, Decision, Example, Rule, advice

ROWS = Rule(
    code="KER050",
    name="repeated-rows",
    summary="rows of an Embedding that occur more than once in a batch train otherwise on JAX",
    why="""TensorFlow's gradient of an `Embedding` comes in parts, one for each time that a word
occurs in a batch. Optimizers that keep squares of gradients square each part by itself there, and
the sum of them on JAX, as in torch. A model is not worse for it, but its losses are others: compare
runs on one back end, or train with SGD where the numbers have to agree.""",
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
REMAINDER = Rule(
    code="KER051",
    name="last-batch",
    summary="a last, smaller batch of each epoch is compiled for on its own",
    why="""A TPU runs programs of one shape. The last batch, where it is smaller, is another one,
and cannot be divided over several devices: `drop_remainder=True` leaves it out in training. In an
evaluation, choose a batch size that divides the data, or nothing is measured of what is left out.
""",
    framework="tensorflow",
    references=("https://www.tensorflow.org/guide/tpu",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).batch(64)
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000)
            data = data.batch(64, drop_remainder=True)
            """,
        ),
    ),
)
HOST = Rule(
    code="KER052",
    name="host-function",
    summary="Python functions and lengths of their own in a data set's elements",
    why="""`py_function` and `numpy_function` run on the host, one at a time, in the process that
made them: a data set of a TPU on another machine cannot call them, and a model on a TPU never.
`padded_batch` gives each batch a length of its own, for each of which a program is compiled: pad to
one length, or to a few (`bucket_by_sequence_length`).""",
    framework="tensorflow",
    references=("https://www.tensorflow.org/guide/data_performance",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf

            data = data.map(lambda x: tf.py_function(read, [x], tf.float32))
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            data = data.map(lambda x: tf.io.decode_png(tf.io.read_file(x)), tf.data.AUTOTUNE)
            """,
        ),
    ),
)
EXECUTION = Rule(
    code="KER053",
    name="steps-per-execution",
    summary="a strategy's model starts several steps at once with steps_per_execution",
    why="""The host starts each call of a TPU's program, and waits for what the callbacks are told.
`steps_per_execution` runs as many steps in one call: short ones take less time, and callbacks are
called as much less often. It has to divide the steps of an epoch.""",
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
    summary="within a model, what has a size that depends on values",
    why="""A TPU's programs have fixed shapes. What `boolean_mask`, `unique` and `where` with one
argument return is as large as there are values that fit: multiply by the mask, or choose by
`where` with three arguments. In data sets, which run on the host, they are right.""",
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


@ROWS.on("advice", "Embedding()")
def rows(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    name = keras_name(ctx.names, found.node.func)
    if not ctx.words.keras_backend or name != "keras.layers.Embedding":
        return None
    optimizer = _squaring(ctx.names)
    if not optimizer:
        return None
    return advice(
        f"rows that occur more than once in a batch train a little differently on JAX, where "
        f"{optimizer} squares the sum of their gradients: TensorFlow squares each by itself"
    )


def _squaring(names: Names) -> str:
    """An optimizer of the file that keeps squares of gradients."""
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


@REMAINDER.on("advice", "batch()")
def remainder(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    if argument(found.node, 1, "drop_remainder") is not None or not _is_data(ctx, found.node):
        return None
    if ctx.words.strategy is not None and found.node in _of_loops(ctx):
        return None
    return advice(
        "the last batch may be smaller: it is compiled for on its own, and cannot be divided over "
        "several devices; in training, drop_remainder=True leaves it out"
    )


def _of_loops(ctx: Context) -> list[ast.Call]:
    """What makes the batches of training loops, in which nothing smaller is divided."""
    return [call for step in divided(ctx.names) for loop in step.loops for call in loop.batched]


def _is_data(ctx: Context, call: ast.Call) -> bool:
    """Whether a method is called of a data set of TensorFlow's."""
    at: ast.expr = call
    for _ in range(_LONG):
        if (ctx.names.qualified(at) or "").startswith("tensorflow.data."):
            return True
        match at:
            case ast.Call(func=inner) | ast.Attribute(value=inner):
                at = inner
            case ast.Name():
                at = ctx.names.only_value(at)
                if isinstance(at, ast.Name):
                    return False
            case _:
                return False
    return False


_LONG = 60  # links of a chain of methods


@HOST.on("advice", "py_function()", "numpy_function()")
def hosted(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    name = ctx.names.qualified(found.node.func) or ""
    if not name.startswith("tensorflow."):
        return None
    return advice(
        "runs on the host, one call at a time, and only where data is prepared: operations of "
        "TensorFlow's run beside each other, and on a TPU"
    )


@HOST.on("advice", "padded_batch()")
def padded(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    if argument(found.node, 1, "padded_shapes") is not None:
        return None
    return advice(
        "each batch has a length of its own, and a program is compiled for each: give "
        "padded_shapes, or bucket_by_sequence_length with pad_to_bucket_boundary"
    )


@EXECUTION.on("advice", "compile()")
def executed(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    said = {keyword.arg for keyword in found.node.keywords}
    is_plain = bool(found.node.args or said) and not ctx.names.qualified(found.node.func)
    if ctx.words.strategy is None or not is_plain or "fit" not in ctx.names.by_attribute:
        return None
    if said & {"steps_per_execution", "run_eagerly", None}:
        return None
    return advice("steps_per_execution=… runs several steps in one call of the TPU's program")


@SIZES.on("advice", "boolean_mask()", "unique()", "where()")
def sized(ctx: Context, found: Construct) -> Decision | None:
    assert isinstance(found.node, ast.Call)
    name = ctx.names.qualified(found.node.func) or ""
    if ctx.words.strategy is None or not name.startswith("tensorflow."):
        return None
    if name.endswith(".where") and len(found.node.args) + len(found.node.keywords) > 1:
        return None
    functions = {*traced_functions(ctx.names), *replica_functions(ctx.names)}
    if not is_traced(ctx.names, found.node, functions):
        return None
    return advice(
        "its size depends on values, and a TPU's programs have fixed shapes: multiply by the "
        "mask, or choose by tf.where(condition, a, b)"
    )
