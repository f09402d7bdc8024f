"""TPUStrategy: made where a program starts, and models, optimizers and metrics in its scope."""

import ast

from migrator.rule_api import (
    Construct,
    Context,
    Decision,
    Edit,
    Example,
    Insert,
    Keep,
    Replace,
    Report,
    Rewrite,
    Rule,
    Wrap,
)
from migrator.rule_api.keras import (
    REPLICAS,
    Making,
    divided,
    has_strategy,
    stays,
    strategy_name,
    trainings,
)
from migrator.rule_api.python import last_import

SCOPE = Rule(
    code="KER040",
    name="strategy-scope",
    summary="an entry script makes a TPUStrategy, and its models in the strategy's scope",
    why="""TensorFlow uses a TPU through a `TPUStrategy`: variables made in its scope have a copy
on each core, and `fit` divides each batch over the cores. The batch size stays that of the whole
batch, so the learning rate stays, too. Batch normalization averages over each core's part.
Without a TPU the strategy is TensorFlow's default, which computes as the program did.""",
    framework="tensorflow",
    references=("https://www.tensorflow.org/guide/tpu",),
    examples=(
        Example(
            """
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64, drop_remainder=True)

            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            model.fit(data)
            """,
            except_on={
                "keras_jax": """
            import os

            os.environ["KERAS_BACKEND"] = "jax"
            os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"  # float32 stays float32

            import keras
            import tensorflow as tf

            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64, drop_remainder=True)

            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            model.fit(data)
            """,
                "tf_tpu": """
            import os
            import tensorflow as tf

            try:
                tpu = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME", "local"))
                tf.config.experimental_connect_to_cluster(tpu)
                tf.tpu.experimental.initialize_tpu_system(tpu)
                strategy = tf.distribute.TPUStrategy(tpu)
            except (ValueError, tf.errors.NotFoundError, tf.errors.InternalError) as error:
                tf.get_logger().warning("no TPU was found, so this runs on the CPU or GPU: %s", error)
                strategy = tf.distribute.get_strategy()

            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64, drop_remainder=True)

            with strategy.scope():
                model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
                model.compile("sgd", "mse")
            model.fit(data)
            """,  # noqa: E501
            },
            script=True,
        ),
        Example(
            """
            import tensorflow as tf

            for line in tf.data.TextLineDataset("train.txt"):
                print(line)
            """,
            script=True,
        ),
        Example(
            """
            import tensorflow as tf

            strategy = tf.distribute.get_strategy()
            with strategy.scope():
                model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            """,
            script=True,
        ),
    ),
)

SHARE = Rule(
    code="KER042",
    name="replica-loss",
    summary="a loss that a step averages itself is divided by the number of replicas",
    why="""A strategy sums the gradients of all replicas. Keras divides its own losses by their
number. An average that `train_step` or `compute_loss` computes is that of one replica's part, so
the sum of its gradients would be too large by the number of replicas.""",
    framework="tensorflow",
    examples=(
        Example(
            """
            import keras
            import tensorflow as tf


            class Model(keras.Model):
                def train_step(self, data):
                    x, y = data
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean(tf.square(self(x) - y))
                    gradients = tape.gradient(loss, self.trainable_variables)
                    self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
                    return {"loss": loss}
            """,
            except_on={
                "tf_tpu": """
            import keras
            import tensorflow as tf


            class Model(keras.Model):
                def train_step(self, data):
                    x, y = data
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean(tf.square(self(x) - y))
                        replica_loss = loss / tf.distribute.get_strategy().num_replicas_in_sync
                    gradients = tape.gradient(replica_loss, self.trainable_variables)
                    self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
                    return {"loss": loss}
            """
            },
        ),
        Example(
            """
            import keras


            class Model(keras.Model):
                def compute_loss(self, x, y, y_pred, sample_weight=None):
                    return super().compute_loss(x, y, y_pred, sample_weight)
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf


            class Model(keras.Model):
                def test_step(self, data):
                    x, y = data
                    return {"loss": tf.reduce_mean(tf.square(self(x) - y))}
            """,
        ),
        Example(
            """
            import keras
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x) - y))
            print(tape.gradient(loss, x))
            """,
        ),
    ),
)


@SCOPE.on("file", "setup")
def set_up(ctx: Context, found: Construct) -> Decision | None:
    word = ctx.api.strategy
    if word is None or not ctx.file.is_entry or has_strategy(ctx.names) or stays(ctx) is not None:
        return None
    runs = Making(ctx.names, ctx.project).runs()
    if not runs:
        return None
    name = strategy_name(ctx)
    tops = [_top(ctx, run[0]) for run in runs]
    batches = (c for step in divided(ctx.names) for loop in step.loops for c in loop.batched)
    tops += [_top(ctx, call) for call in batches]
    first = min(tops, key=lambda s: s.lineno)
    anchor = last_import(ctx.names, {first})
    lines = [*_imported_below(ctx, anchor), "", word.code.replace("{name}", name), ""]
    edits: list[Edit] = [Insert(ctx.names.tree, anchor, lines)]
    edits += [Wrap(run[0], run, f"with {name}.scope():") for run in runs]
    return Rewrite(edits, word.requires)


def _imported_below(ctx: Context, anchor: ast.stmt | None) -> list[str]:
    """Imports of what makes the strategy, where the script has them further below."""
    spelled, _ = ctx.code.module("tensorflow")
    first = anchor.lineno if anchor is not None else 0
    lines = []
    for module, name in (("os", "os"), ("tensorflow", spelled)):
        found = (b for b in ctx.names.top.bindings.get(name, ()) if b.kind == "import")
        places = [_top(ctx, b.node).lineno for b in found if b.qualname == module]
        if places and min(places) > first:
            lines.append(f"import {module}" + (f" as {name}" if name != module else ""))
    return lines


def _top(ctx: Context, statement: ast.AST) -> ast.stmt:
    """The statement of the module that holds a node."""
    around = [n for n in (statement, *ctx.names.ancestors(statement)) if isinstance(n, ast.stmt)]
    return around[-1]


@SHARE.on("tensorflow", "loss", node=ast.Name)
def share(ctx: Context, found: Construct, node: ast.Name) -> Decision | None:
    if ctx.api.strategy is None:
        return Keep("is the loss of the whole batch")
    if (held := stays(ctx)) is not None:
        return held
    training = next(t for t in trainings(ctx.names) if t.loss is node)
    code = node.id
    name = f"replica_{code}"
    if name in ctx.names.by_id:
        return Report(f"has to be divided by the number of replicas, and {name} is taken")
    spelled, requires = ctx.code.module("tensorflow")
    divided = f"{name} = {code} / {spelled}.distribute.get_strategy().{REPLICAS}"
    inserted = Insert(ctx.names.tree, training.tape.body[-1], [divided])
    return Rewrite([inserted, Replace(node, name)], requires)


@SHARE.on("tensorflow", "term")
def term(ctx: Context, found: Construct) -> Decision | None:
    """An average that is added to what is divided already, or that a `compute_loss` returns."""
    return _by_replicas(ctx, found.node, "/")


@SHARE.on("tensorflow", "measured")
def measured(ctx: Context, found: Construct) -> Decision | None:
    """A loss that is divided already, where a metric averages over the replicas, too."""
    return _by_replicas(ctx, found.node, "*")


def _by_replicas(ctx: Context, node: ast.AST, operator: str) -> Decision | None:
    if ctx.api.strategy is None:
        return Keep("is computed from the whole batch")
    if (held := stays(ctx)) is not None:
        return held
    assert isinstance(node, ast.expr)
    spelled, requires = ctx.code.module("tensorflow")
    template = f"{{value}} {operator} {spelled}.distribute.get_strategy().{REPLICAS}"
    return Rewrite([Replace(node, template, {"value": node})], requires)
