"""TensorFlow in Keras programs: operations with a counterpart in keras.ops, and the others."""

import ast
from collections.abc import Mapping

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Edit,
    EditCall,
    Effort,
    Example,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    Safety,
)
from migrator.rule_api.keras import (
    activation,
    dtype_of,
    keras,
    obstacles,
    obstacles_elsewhere,
    operation,
    stays,
    tpu_obstacles,
)

ONLY = Rule(
    code="KER003",
    name="tensorflow-only",
    summary="code that only TensorFlow runs keeps a program on TensorFlow",
    why="""With another back end, these raise an error or train nothing: a training loop with
`tf.GradientTape`, a `tf.function`, a model's own `train_step`, a metric that a layer updates in its
`call`, operations in a layer without a counterpart in `keras.ops`, and TensorFlow 1.

On a TPU, TensorFlow itself lacks TensorFlow 1, estimators, parameter servers, and training loops
that don't divide their loss over the cores.

The whole program stays; each such line is reported with what to write instead.""",
    safety=Safety.DISPLAY_ONLY,
    framework="tensorflow",
    effort=Effort.HOURS,
    references=("https://keras.io/guides/migrating_to_keras_3/",),
    examples=(
        Example(
            """
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = loss_of(model(x), y)
            gradients = tape.gradient(loss, model.trainable_variables)
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf


            class Noise(keras.layers.Layer):
                def call(self, x):
                    return x + tf.random.normal(tf.shape(x))
            """,
        ),
    ),
)

OPERATION = Rule(
    code="KER004",
    name="tensorflow-operation",
    summary="TensorFlow's operations in a layer become those of keras.ops",
    why="""A layer's or model's `call`, and losses and metrics of your own, get tensors of the
back end. `keras.ops` computes the same with any back end. Only functions whose arguments mean
the same are rewritten, and only where Keras calls them: code that prepares data stays
TensorFlow's.""",
    framework="tensorflow",
    imports=("tensorflow",),
    references=("https://keras.io/api/ops/",),
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf


            class Square(keras.layers.Layer):
                def call(self, x):
                    return tf.reduce_sum(tf.cast(x, tf.float32) ** 2, axis=-1, keepdims=True)
            """,
            after="""
            import keras


            class Square(keras.layers.Layer):
                def call(self, x):
                    return keras.ops.sum(keras.ops.cast(x, "float32") ** 2, axis=-1, keepdims=True)
            """,
            except_on={"tf_tpu": None},
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            hidden = keras.layers.Dense(8, activation=tf.nn.relu)
            """,
            after="""
            import keras

            hidden = keras.layers.Dense(8, activation=keras.activations.relu)
            """,
            except_on={"tf_tpu": None},
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            data = data.map(lambda image: tf.cast(image, tf.float32) / 255)
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf


            class Lengths(keras.layers.Layer):
                def call(self, x):
                    return tf.strings.length(x)
            """,
        ),
    ),
)


@ONLY.on("tensorflow", "only")
def only(ctx: Context, found: Construct) -> Decision | None:
    if ctx.api.keras_backend:
        return Report(obstacles(ctx.names)[found.node][1])
    stopped = _kept(ctx).get(found.node)
    return Keep("the target runs TensorFlow") if stopped is None else Report(stopped[1])


@ONLY.on("tensorflow", "unfit")
def unfit(ctx: Context, found: Construct) -> Decision | None:
    if ctx.api.keras_backend:
        return Keep("part of what keeps the program on TensorFlow, or irrelevant to it")
    stopped = _kept(ctx).get(found.node)
    return Keep("runs on each core") if stopped is None else Report(stopped[1])


def _kept(ctx: Context) -> Mapping[ast.AST, tuple[str, str]]:
    return tpu_obstacles(ctx.names) if ctx.file.is_entry else obstacles_elsewhere(ctx.names)


@OPERATION.on("tensorflow", "operation", node=ast.expr)
def computed(ctx: Context, found: Construct, node: ast.expr) -> Decision | None:
    if not ctx.api.keras_backend:
        return Keep("the target runs TensorFlow")
    if (held := stays(ctx)) is not None:
        return held
    known = operation(ctx.names, node, ctx.names.qualified(node) or "")
    call = ctx.names.call_of(node)
    assert known is not None
    assert call is not None
    spelled, requires = keras(ctx)
    given = {k.arg for k in call.keywords}
    rename = {old: new for old, new in known.renamed if old in given and old != new}
    put = dict([known.added.split("=")]) if known.added else {}
    edit: Edit = EditCall(call, function=f"{spelled}.ops.{known.name}", rename=rename, put=put)
    note = "an average of whole numbers is a fraction" if known.name == "mean" else ""
    return Rewrite([edit], requires, note=note)


@OPERATION.on("tensorflow", "dtype", node=ast.expr)
def typed(ctx: Context, found: Construct, node: ast.expr) -> Decision | None:
    if not ctx.api.keras_backend:
        return Keep("the target runs TensorFlow")
    if (held := stays(ctx)) is not None:
        return held
    name = dtype_of(ctx.names.qualified(node) or "")
    return Rewrite([Replace(node, ctx.code.quoted(name, node))])


@OPERATION.on("tensorflow", "activation", node=ast.expr)
def passed(ctx: Context, found: Construct, node: ast.expr) -> Decision | None:
    if not ctx.api.keras_backend:
        return Keep("the target runs TensorFlow")
    if (held := stays(ctx)) is not None:
        return held
    name = activation(ctx.names.qualified(node) or "")
    spelled, requires = keras(ctx)
    return Rewrite([Replace(node, f"{spelled}.activations.{name}")], requires)
